/**
 * Reads a file of batch requests before its upload: endpoint, models, number of requests, invalid
 * lines, and the estimated cost at batch prices. The server validates the file again.
 */
import type { Model } from './shapes.ts';

interface ModelUse {
  requests: number;
  promptChars: number;
  /** Sum of the token limits of the requests. */
  maxTokens: number;
  /** Number of completions without a token limit. */
  unbounded: number;
}

export interface BatchFile {
  readonly endpoint: string;
  readonly models: ReadonlyMap<string, Readonly<ModelUse>>;
  /** The first `MAX_PROBLEMS`. */
  readonly problems: readonly string[];
}

const MAX_PROBLEMS = 5;
/** The limit of the server. */
const MAX_LINE_CHARS = 10_000_000;
/** An estimate; the exact number depends on the tokenizer of the model. */
const CHARS_PER_TOKEN = 4;
const PREFIX = /^(?:\/api)?\/v1(?=\/)/;
/** Endpoints that are priced by tokens. */
const BY_TOKENS = ['/chat/completions', '/completions', '/responses', '/messages', '/embeddings'];

interface Reading {
  endpoint: string;
  readonly models: Map<string, ModelUse>;
  readonly problems: string[];
}

/** Reads a file line by line; `signal` stops early. */
export async function readBatchFile(file: Blob, signal: AbortSignal): Promise<BatchFile> {
  const reading: Reading = { endpoint: '', models: new Map(), problems: [] };
  let number = 0;
  for await (const line of linesOf(file, signal)) {
    number += 1;
    const text = line.trim();
    if (text === '') continue;
    const problem = take(reading, text);
    if (problem !== undefined) reading.problems.push(`Line ${number}: ${problem}`);
    if (reading.problems.length >= MAX_PROBLEMS) break;
  }
  if (reading.models.size === 0 && reading.problems.length === 0) {
    reading.problems.push('The file is empty');
  }
  return reading;
}

async function* linesOf(file: Blob, signal: AbortSignal): AsyncGenerator<string> {
  const reader = file.stream().pipeThrough(new TextDecoderStream()).getReader();
  let partial = '';
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done || signal.aborted) break;
      const pieces = (partial + value).split('\n');
      partial = pieces.pop() ?? '';
      if (partial.length > MAX_LINE_CHARS) break;
      yield* pieces;
    }
    if (partial !== '') yield partial;
  } finally {
    await reader.cancel().catch(() => undefined); // the rest is not needed
  }
}

/** Counts a line. Returns what is wrong with it. */
function take(reading: Reading, text: string): string | undefined {
  if (text.length > MAX_LINE_CHARS) return `must have at most ${MAX_LINE_CHARS} characters`;
  const line = objectOf(text);
  if (line === undefined) return 'must be a JSON object';
  const { custom_id: id, url, body } = line;
  if (typeof id !== 'string' || id === '') return '"custom_id" must be a non-empty string';
  if (typeof url !== 'string' || url === '') return '"url" must be the path of the endpoint';
  if (!isObject(body)) return '"body" must be the request object';
  if (reading.endpoint === '') reading.endpoint = url;
  if (pathOf(url) !== pathOf(reading.endpoint)) {
    return `"url" must be ${reading.endpoint}, as in the previous lines`;
  }
  const model = typeof body['model'] === 'string' ? body['model'] : 'default';
  const use = reading.models.get(model) ?? {
    requests: 0,
    promptChars: 0,
    maxTokens: 0,
    unbounded: 0,
  };
  use.requests += 1;
  use.promptChars += promptChars(body);
  const limit = body['max_completion_tokens'] ?? body['max_tokens'] ?? body['max_output_tokens'];
  const choices = typeof body['n'] === 'number' ? body['n'] : 1;
  if (typeof limit === 'number') use.maxTokens += limit * choices;
  else use.unbounded += choices;
  reading.models.set(model, use);
  return undefined;
}

const PROMPTS = ['messages', 'input', 'prompt', 'instructions', 'system', 'tools'];

function promptChars(body: Readonly<Record<string, unknown>>): number {
  return PROMPTS.reduce((sum, name) => {
    const part = body[name];
    return sum + (part === undefined ? 0 : JSON.stringify(part).length);
  }, 0);
}

function objectOf(text: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function pathOf(endpoint: string): string {
  return endpoint.replace(PREFIX, '');
}

/**
 * Estimates the cost in USD: approximate for prompts, an upper bound for completions. Returns
 * `undefined` if the cost is known only after the run.
 */
export function estimateOf(
  { endpoint, models: used }: BatchFile,
  models: readonly Model[],
): { readonly promptsUsd: number; readonly completionsUsd: number } | undefined {
  if (!BY_TOKENS.includes(pathOf(endpoint))) return undefined;
  let promptsUsd = 0;
  let completionsUsd = 0;
  for (const [name, { promptChars: chars, maxTokens, unbounded }] of used) {
    const model = modelNamed(models, name);
    const prices = model?.model_spec.pricing?.batch;
    if (prices === undefined) return undefined;
    const { maxCompletionTokens: limit } = model?.model_spec ?? {};
    if (prices.output !== undefined && unbounded > 0 && limit === undefined) return undefined;
    promptsUsd += (chars / CHARS_PER_TOKEN / 1e6) * (prices.input?.usd ?? 0);
    completionsUsd += ((maxTokens + unbounded * (limit ?? 0)) / 1e6) * (prices.output?.usd ?? 0);
  }
  return { promptsUsd, completionsUsd };
}

function modelNamed(models: readonly Model[], name: string): Model | undefined {
  return (
    models.find(({ id }) => id === name) ??
    models.find(({ model_spec: { traits } }) => traits.includes(name))
  );
}
