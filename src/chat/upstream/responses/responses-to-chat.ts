/** Reads a response object of `POST /responses` as a chat completion. */
import { isJsonObject, type JsonObject } from '../../../json/json-scan.ts';
import { jsonObjects, stringOrEmpty } from '../../../json/json-text.ts';
import { detailsOf, reasoningText } from './reasoning-details.ts';

const INCOMPLETE_REASONS: ReadonlyMap<unknown, string> = new Map([
  ['content_filter', 'content_filter'],
]);

/** Returns `undefined` if the value is no response that has ended. */
export function completionOf(response: JsonObject): JsonObject | undefined {
  const { id, created_at, model, output, usage, service_tier } = response;
  const finish_reason = finishOf(response);
  if (!Array.isArray(output) || finish_reason === undefined) return undefined;
  const items = jsonObjects(output);
  const messages = items.filter(({ type }) => type === 'message');
  const parts = messages.flatMap(({ content }) => jsonObjects(content));
  const calls = items.flatMap((item) => callOf(item) ?? []);
  const reasoning = items.filter(({ type }) => type === 'reasoning');
  const reasoning_details: JsonObject[] = [];
  for (const item of reasoning)
    reasoning_details.push(...detailsOf(item, reasoning_details.length));
  const refusal = joined(parts, 'refusal');
  const annotations = annotationsOf(parts);
  const logprobs = parts.flatMap((part) =>
    Array.isArray(part['logprobs']) ? (part['logprobs'] as readonly unknown[]) : [],
  );
  const message = {
    role: 'assistant',
    content: parts.some(({ type }) => type === 'output_text') ? joined(parts, 'text') : null,
    ...(refusal === '' ? {} : { refusal }),
    ...(reasoning.length === 0
      ? {}
      : {
          reasoning_content: reasoning.map(reasoningText).filter(Boolean).join('\n\n'),
          reasoning_details,
        }),
    ...(annotations.length === 0 ? {} : { annotations }),
    ...(calls.length === 0 ? {} : { tool_calls: calls }),
  };
  const choice = {
    index: 0,
    message,
    finish_reason,
    logprobs: logprobs.length === 0 ? null : { content: logprobs },
  };
  const created = created_at;
  return { id, object: 'chat.completion', created, model, choices: [choice], usage, service_tier };
}

/**
 * The finish reason of a response, `error` if it has failed; `undefined` while it runs. A call of a
 * tool is shown by the calls themselves.
 */
export function finishOf({ status, incomplete_details: details }: JsonObject): string | undefined {
  switch (status) {
    case 'completed':
      return 'stop';
    case 'incomplete': {
      const reason = isJsonObject(details) ? details['reason'] : undefined;
      return INCOMPLETE_REASONS.get(reason) ?? 'length';
    }
    case 'failed':
    case 'cancelled':
      return 'error';
    default:
      return undefined;
  }
}

/** A call of a function or of a custom tool, as a tool call. */
export function callOf(item: JsonObject): JsonObject | undefined {
  const { type, call_id: id, name } = item;
  if (type === 'function_call') {
    return { id, type: 'function', function: { name, arguments: item['arguments'] } };
  }
  if (type !== 'custom_tool_call') return undefined;
  const text = JSON.stringify({ input: item['input'] });
  return { id, type: 'function', function: { name, arguments: text } };
}

function joined(parts: readonly JsonObject[], member: 'text' | 'refusal'): string {
  return parts.map((part) => stringOrEmpty(part[member])).join('');
}

/** Positions of an annotation are counted in its part; those of a chat in the whole content. */
function annotationsOf(parts: readonly JsonObject[]): JsonObject[] {
  const all: JsonObject[] = [];
  let before = 0;
  for (const { annotations, text } of parts) {
    for (const one of jsonObjects(annotations)) {
      const annotation = annotationOf(one, before);
      if (annotation !== undefined) all.push(annotation);
    }
    before += stringOrEmpty(text).length;
  }
  return all;
}

/** Returns `undefined` for a kind that a chat lacks. */
export function annotationOf(annotation: JsonObject, before: number): JsonObject | undefined {
  const { type, url, title, start_index: start, end_index: end } = annotation;
  if (type !== 'url_citation') return undefined;
  const moved = (index: unknown) => (typeof index === 'number' ? index + before : index);
  const url_citation = { url, title, start_index: moved(start), end_index: moved(end) };
  return { type, url_citation };
}
