/**
 * Tools with a language model: `chat` and `web_search`. Both stream `POST /chat/completions`, so that
 * they can report progress, and a caller that cancels pays only for the produced tokens.
 */
import type { Readable } from 'node:stream';
import * as z from 'zod';
import type { Catalog } from '../catalog/catalog.ts';
import { REASONING_EFFORTS } from '../core/reasoning-efforts.ts';
import { priceOf } from './prices.ts';
import type { Json } from './protocol.ts';
import {
  CostUsd,
  type Tool,
  type ToolCall,
  type ToolResult,
  asJson,
  defineTool,
  failure,
  listOf,
} from './tool.ts';

export interface ChatToolParts {
  readonly catalog: Catalog;
  /** Prefix of the parameters of Farebox in a chat. */
  readonly serviceName: string;
  /** Price of a web search as text; `undefined` if none is configured. */
  readonly searchPrice: () => string | undefined;
}

const MAX_PROMPT_CHARACTERS = 10_000_000;
const MAX_TURNS = 500;
const MAX_IMAGES = 20;
const MAX_EVENT_CHARACTERS = 32 * 1024 * 1024;

const Text = z.string().min(1).max(MAX_PROMPT_CHARACTERS);
const Model = z
  .string()
  .min(1)
  .max(256)
  .default('default')
  .describe(
    'A model id of list_models, or a trait such as `default`, `fastest` or `default_code`.',
  );
const MaxTokens = z.int().min(1).optional().describe('Maximum output tokens, including reasoning.');

const ChatInput = z.strictObject({
  prompt: Text.describe('Prompt for the model.'),
  system: Text.optional().describe('Instructions for the model.'),
  history: z
    .array(z.strictObject({ role: z.enum(['user', 'assistant']), content: Text }))
    .max(MAX_TURNS)
    .optional()
    .describe('Earlier turns of the conversation, oldest first.'),
  image_urls: z
    .array(z.string().regex(/^(?:https?:|data:image\/)/i, 'Must be an http(s) or data URL'))
    .max(MAX_IMAGES)
    .optional()
    .describe('Images for models with vision.'),
  model: Model,
  max_tokens: MaxTokens,
  temperature: z.number().min(0).max(2).optional(),
  reasoning_effort: z.enum(REASONING_EFFORTS).optional().describe('Reasoning effort of the model.'),
  web_search: z
    .enum(['off', 'on', 'auto'])
    .default('off')
    .describe('Whether to search the web first; `auto` lets the model decide.'),
  json_schema: z
    .record(z.string(), z.unknown())
    .optional()
    .describe('JSON Schema of the completion, which is then JSON text.'),
});

const SearchInput = z.strictObject({
  query: Text.describe('Question or search words.'),
  model: Model,
  max_tokens: MaxTokens,
});

const Count = z.int().min(0);
const Source = z.strictObject({ url: z.string(), title: z.string() });

const Completion = z.strictObject({
  text: z.string(),
  model: z.string().describe('Model of the completion.'),
  finish: z
    .string()
    .describe(
      '`stop`; `length`: truncated at `max_tokens`; `content_filter`; or that of the engine.',
    ),
  usage: z.strictObject({ input_tokens: Count, output_tokens: Count, total_tokens: Count }),
  cost_usd: CostUsd,
  sources: z.array(Source).describe('Pages that the model read.'),
});

export function chatTools(parts: ChatToolParts): Tool[] {
  const { catalog, searchPrice } = parts;
  return [
    defineTool({
      name: 'chat',
      title: 'Call a language model',
      hints: { readOnlyHint: true, openWorldHint: true },
      input: ChatInput,
      output: Completion,
      isPaid: true,
      example: { prompt: 'Name a colour.', max_tokens: 100 },
      about: () => {
        const price = priceOf(catalog, 'text');
        if (price === undefined) return undefined;
        const search = searchPrice();
        const searching = search === undefined ? '' : ` A web search costs ${search} more.`;
        return `Runs a language model on this server and returns its completion. ${price}${searching}`;
      },
      run: (input, call) => complete(parts, call, input),
    }),
    defineTool({
      name: 'web_search',
      title: 'Search the web',
      hints: { readOnlyHint: true, openWorldHint: true },
      input: SearchInput,
      output: Completion,
      isPaid: true,
      example: { query: 'When is the next spring tide?' },
      about: () => {
        const price = priceOf(catalog, 'text');
        const search = searchPrice();
        if (price === undefined || search === undefined) return undefined;
        return `Searches the web, reads the pages and returns a summary with sources. A search costs ${search}, plus the tokens of the model. ${price}`;
      },
      run: ({ query: prompt, ...input }, call) =>
        complete(parts, call, { prompt, ...input, web_search: 'on' }),
    }),
  ];
}

async function complete(
  parts: ChatToolParts,
  call: ToolCall,
  input: z.infer<typeof ChatInput>,
): Promise<ToolResult> {
  const body = bodyOf(input, parts.serviceName);
  const collected = new CollectedChunks();
  const { body: stream } = await call.run({ path: '/chat/completions', body });
  for await (const data of eventsOf(stream)) {
    if (data === DONE) break;
    if (collected.add(asJson(JSON.parse(data))))
      call.progress(collected.pieces, 'The model is generating');
  }
  if (collected.problem !== undefined) return failure(collected.problem);
  const value = Completion.parse(collected.value(parts.serviceName));
  return { content: [{ type: 'text', text: value.text }], structuredContent: value };
}

function bodyOf(input: z.infer<typeof ChatInput>, serviceName: string): Json {
  const { prompt, system, history = [], image_urls: images = [], json_schema: schema } = input;
  const content = [
    ...images.map((url) => ({ type: 'image_url', image_url: { url } })),
    { type: 'text', text: prompt },
  ];
  return {
    model: input.model,
    stream: true,
    messages: [
      ...(system === undefined ? [] : [{ role: 'system', content: system }]),
      ...history,
      { role: 'user', content: images.length === 0 ? prompt : content },
    ],
    max_completion_tokens: input.max_tokens,
    temperature: input.temperature,
    reasoning_effort: input.reasoning_effort,
    response_format: schema && {
      type: 'json_schema',
      json_schema: { name: 'answer', strict: true, schema },
    },
    ...(input.web_search === 'off'
      ? {}
      : { [`${serviceName}_parameters`]: { enable_web_search: input.web_search } }),
  };
}

/** Collects the chunks of a streamed completion. */
class CollectedChunks {
  readonly #text: string[] = [];
  #last: Json = {};
  #finish: unknown;
  pieces = 0;
  problem: string | undefined;

  add(chunk: Json): boolean {
    const { choices, error, cost } = chunk;
    if (error !== undefined) this.problem = String(asJson(error)['message']);
    // The last chunk has the cost, the usage and the sources.
    if (cost !== undefined) this.#last = chunk;
    const [choice = {}] = listOf(choices);
    this.#finish = choice['finish_reason'] ?? this.#finish;
    const { content } = asJson(choice['delta']);
    if (typeof content !== 'string' || content === '') return false;
    this.#text.push(content);
    this.pieces += 1;
    return true;
  }

  value(serviceName: string): Json {
    const { model, usage, cost, [`${serviceName}_parameters`]: parameters } = this.#last;
    const { prompt_tokens, completion_tokens, total_tokens } = asJson(usage);
    const found = listOf(asJson(parameters)['web_search_citations']);
    return {
      text: this.#text.join(''),
      model,
      finish: this.#finish,
      usage: { input_tokens: prompt_tokens, output_tokens: completion_tokens, total_tokens },
      cost_usd: asJson(cost)['usd'],
      sources: found.map(({ url, title }) => ({ url, title })),
    };
  }
}

const DONE = '[DONE]';

async function* eventsOf(stream: Readable): AsyncGenerator<string> {
  let rest = '';
  stream.setEncoding('utf8');
  for await (const piece of stream as AsyncIterable<string>) {
    const lines = (rest + piece).split('\n');
    rest = lines.pop() ?? '';
    if (rest.length > MAX_EVENT_CHARACTERS)
      throw new Error('An event of a completion is too large');
    for (const line of lines) if (line.startsWith(DATA)) yield line.slice(DATA.length);
  }
}

const DATA = 'data: ';
