/**
 * The Responses API of an engine, as published: response objects, and the events of their streams
 * with text in small pieces.
 */
import type { Behaviour } from './test-upstream.ts';

type Json = Readonly<Record<string, unknown>>;

export interface EngineResponse {
  readonly output: readonly Json[];
  readonly status?: string;
  readonly usage?: Json;
  /** Other members of the response. */
  readonly more?: Json;
}

export const ENGINE_USAGE = {
  input_tokens: 120,
  input_tokens_details: { cached_tokens: 100 },
  output_tokens: 30,
  output_tokens_details: { reasoning_tokens: 12 },
  total_tokens: 150,
};

export function engineResponse({ output, status = 'completed', usage, more }: EngineResponse) {
  return {
    id: 'resp_engine',
    object: 'response',
    created_at: 1_764_000_000,
    completed_at: status === 'completed' ? 1_764_000_001 : null,
    status,
    background: false,
    error: null,
    incomplete_details: null,
    instructions: null,
    max_output_tokens: null,
    max_tool_calls: null,
    model: 'engine-model',
    output,
    parallel_tool_calls: true,
    previous_response_id: null,
    presence_penalty: 0,
    frequency_penalty: 0,
    prompt_cache_key: null,
    reasoning: { effort: null, summary: null },
    safety_identifier: null,
    service_tier: 'default',
    store: false,
    temperature: 1,
    text: { format: { type: 'text' }, verbosity: 'medium' },
    tool_choice: 'auto',
    tools: [],
    top_logprobs: 0,
    top_p: 1,
    truncation: 'disabled',
    usage: usage ?? ENGINE_USAGE,
    user: null,
    metadata: {},
    ...more,
  };
}

export const reasoning = (id: string, summary: readonly string[], data?: string): Json => ({
  id,
  type: 'reasoning',
  summary: summary.map((text) => ({ type: 'summary_text', text })),
  ...(data === undefined ? {} : { encrypted_content: data }),
});
export const message = (id: string, text: string, annotations: readonly Json[] = []): Json => ({
  id,
  type: 'message',
  status: 'completed',
  content: [{ type: 'output_text', annotations, logprobs: [], text }],
  role: 'assistant',
});
export const functionCall = (id: string, name: string, input: object): Json => ({
  id: `fc_${id}`,
  type: 'function_call',
  status: 'completed',
  arguments: JSON.stringify(input),
  call_id: `call_${id}`,
  name,
});
export const customCall = (id: string, name: string, input: string): Json => ({
  id: `ctc_${id}`,
  type: 'custom_tool_call',
  status: 'completed',
  call_id: `call_${id}`,
  input,
  name,
});

/** The events of a stream, each as its members without `sequence_number`. */
export function engineEvents(given: EngineResponse): Json[] {
  const response = engineResponse(given);
  const started = {
    ...response,
    status: 'in_progress',
    completed_at: null,
    error: null,
    incomplete_details: null,
    output: [],
    usage: null,
  };
  const events: Json[] = [
    { type: 'response.created', response: started },
    { type: 'response.in_progress', response: started },
  ];
  for (const [output_index, item] of given.output.entries()) {
    const add = (type: string, members: Json) => events.push({ type, ...members });
    const at = { item_id: item['id'], output_index };
    add('response.output_item.added', { output_index, item: emptied(item) });
    if (item['type'] === 'message') {
      for (const [content_index, part] of partsOf(item['content']).entries()) {
        const { text = '', annotations = [] } = part as { text?: string; annotations?: Json[] };
        const place = { ...at, content_index };
        const empty = { ...part, text: '', annotations: [] };
        add('response.content_part.added', { ...place, part: empty });
        for (const delta of pieces(text)) {
          add('response.output_text.delta', { ...place, delta, logprobs: [], obfuscation: 'x' });
        }
        for (const [annotation_index, annotation] of annotations.entries()) {
          const type = 'response.output_text.annotation.added';
          add(type, { ...place, annotation_index, annotation });
        }
        add('response.output_text.done', { ...place, text, logprobs: [] });
        add('response.content_part.done', { ...place, part });
      }
    }
    if (item['type'] === 'reasoning') {
      for (const [summary_index, part] of partsOf(item['summary']).entries()) {
        const place = { ...at, summary_index };
        const text = String(part['text']);
        add('response.reasoning_summary_part.added', { ...place, part: { ...part, text: '' } });
        for (const delta of pieces(text)) {
          add('response.reasoning_summary_text.delta', { ...place, delta });
        }
        add('response.reasoning_summary_text.done', { ...place, text });
        add('response.reasoning_summary_part.done', { ...place, part });
      }
      for (const [content_index, part] of partsOf(item['content']).entries()) {
        const place = { ...at, content_index };
        const text = String(part['text']);
        for (const delta of pieces(text)) add('response.reasoning_text.delta', { ...place, delta });
        add('response.reasoning_text.done', { ...place, text });
      }
    }
    for (const [type, member, name] of CALLS) {
      if (item['type'] !== type) continue;
      const text = String(item[member]);
      for (const delta of pieces(text)) add(`response.${name}.delta`, { ...at, delta });
      add(`response.${name}.done`, { ...at, [member]: text });
    }
    add('response.output_item.done', { output_index, item });
  }
  events.push({ type: `response.${response.status}`, response });
  return events;
}

const CALLS = [
  ['function_call', 'arguments', 'function_call_arguments'],
  ['custom_tool_call', 'input', 'custom_tool_call_input'],
] as const;

function partsOf(value: unknown): readonly Json[] {
  return (value ?? []) as readonly Json[]; // items of this file
}

function emptied(item: Json): Json {
  const { encrypted_content: _data, ...rest } = item;
  const changed: Record<string, unknown> = { ...rest, status: 'in_progress' };
  for (const list of ['content', 'summary']) if (list in rest) changed[list] = [];
  for (const text of ['arguments', 'input']) if (text in rest) changed[text] = '';
  return changed;
}

/** Pieces of one to seven UTF-16 units, the same for the same text. */
function pieces(text: string): string[] {
  const cut: string[] = [];
  for (let at = 0, size = 3; at < text.length; at += size, size = (size % 7) + 1) {
    cut.push(text.slice(at, at + size));
  }
  return cut;
}

export function eventBytes(events: readonly Json[]): string {
  return events
    .map(({ type, ...members }, sequence_number) => {
      const data = JSON.stringify({ type, sequence_number, ...members });
      return `event: ${String(type)}\ndata: ${data}\n\n`;
    })
    .join('');
}

/** The behaviour of an engine that returns this response, as a stream if requested. */
export function responds(given: EngineResponse): Behaviour {
  return {
    kind: 'own',
    answer: (response, body) => {
      const isStream = (JSON.parse(body) as Json)['stream'] === true;
      const type = isStream ? 'text/event-stream' : 'application/json';
      response.writeHead(200, { 'content-type': type });
      response.end(
        isStream ? eventBytes(engineEvents(given)) : JSON.stringify(engineResponse(given)),
      );
    },
  };
}
