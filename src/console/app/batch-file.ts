/**
 * A file of requests, read before it is uploaded: for which endpoint and models they are, how many,
 * what is wrong with its lines, and about what it costs at the prices of batches. The server checks
 * all of it again.
 */
import type { Amount, Model } from './shapes.ts';

/** As `GET /models` has them; USD a million tokens. */
type Prices = Partial<Record<'input' | 'output', Amount>>;

interface ModelUse {
  requests: number;
  /** Characters of the prompts. */
  promptChars: number;
  /** Sum of what the requests allow; those that allow any number are counted in `unbounded`. */
  mostTokens: number;
  unbounded: number;
}

export interface BatchFile {
  /** Of the first line, as it is written. */
  readonly endpoint: string;
  readonly models: ReadonlyMap<string, Readonly<ModelUse>>;
  /** The first of them, in words. */
  readonly problems: readonly string[];
}

const MAX_PROBLEMS = 5;
/** The server's own bound. */
const MAX_LINE_CHARS = 10_000_000;
/** About; a tokenizer would have to be the model's own. */
const CHARS_PER_TOKEN = 4;
const PREFIX = /^(?:\/api)?\/v1(?=\/)/;
/** Whose requests are paid by tokens. */
const BY_TOKENS = ['/chat/completions', '/completions', '/responses', '/messages', '/embeddings'];

interface Reading {
  endpoint: string;
  readonly models: Map<string, ModelUse>;
  readonly problems: string[];
}

/** Reads a file line by line; `signal` ends it early. */
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
    reading.problems.push('The file has no line');
  }
  return reading;
}

async function* linesOf(file: Blob, signal: AbortSignal): AsyncGenerator<string> {
  const reader = file.stream().pipeThrough(new TextDecoderStream()).getReader();
  let begun = '';
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done || signal.aborted) break;
      const pieces = (begun + value).split('\n');
      begun = pieces.pop() ?? '';
      if (begun.length > MAX_LINE_CHARS) break;
      yield* pieces;
    }
    if (begun !== '') yield begun;
  } finally {
    // What is not read any more need not be there.
    await reader.cancel().catch(() => undefined);
  }
}

/** Counts a line; what is wrong with it. */
function take(reading: Reading, text: string): string | undefined {
  if (text.length > MAX_LINE_CHARS) return 'is too long';
  const line = objectOf(text);
  if (line === undefined) return 'is no JSON object';
  const { custom_id: id, url, body } = line;
  if (typeof id !== 'string' || id === '') return '"custom_id" must be a text';
  if (typeof url !== 'string' || url === '') return '"url" must name the endpoint';
  if (!isObject(body)) return '"body" must be the request';
  if (reading.endpoint === '') reading.endpoint = url;
  if (pathOf(url) !== pathOf(reading.endpoint)) {
    return `"url" must be ${reading.endpoint}, as in the lines before`;
  }
  const model = typeof body['model'] === 'string' ? body['model'] : 'default';
  const use = reading.models.get(model) ?? {
    requests: 0,
    promptChars: 0,
    mostTokens: 0,
    unbounded: 0,
  };
  use.requests += 1;
  use.promptChars += promptChars(body);
  const most = body['max_completion_tokens'] ?? body['max_tokens'] ?? body['max_output_tokens'];
  const choices = typeof body['n'] === 'number' ? body['n'] : 1;
  if (typeof most === 'number') use.mostTokens += most * choices;
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

export interface Estimate {
  /** About, in USD. */
  readonly promptsUsd: number;
  /** At most, in USD. */
  readonly answersUsd: number;
}

/** What a file costs; `undefined` where that is not known before it has run. */
export function estimateOf(
  { endpoint, models: used }: BatchFile,
  models: readonly Model[],
): Estimate | undefined {
  if (!BY_TOKENS.includes(pathOf(endpoint))) return undefined;
  let promptsUsd = 0;
  let answersUsd = 0;
  for (const [name, { promptChars: chars, mostTokens, unbounded }] of used) {
    const model = modelNamed(models, name);
    const prices = model?.model_spec.pricing?.['batch'] as Prices | undefined; // as the route promises
    if (prices === undefined) return undefined;
    const { maxCompletionTokens: most } = model?.model_spec ?? {};
    if (prices.output !== undefined && unbounded > 0 && most === undefined) return undefined;
    promptsUsd += (chars / CHARS_PER_TOKEN / 1e6) * (prices.input?.usd ?? 0);
    answersUsd += ((mostTokens + unbounded * (most ?? 0)) / 1e6) * (prices.output?.usd ?? 0);
  }
  return { promptsUsd, answersUsd };
}

/** By its id or as the default. */
function modelNamed(models: readonly Model[], name: string): Model | undefined {
  return (
    models.find(({ id }) => id === name) ??
    models.find(({ model_spec: { traits } }) => traits.includes(name))
  );
}
