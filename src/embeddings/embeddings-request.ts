/**
 * The embeddings request: its schema, its validation, and the engine's bodies (one, or several
 * where the engine takes smaller batches).
 *
 * The schema describes everything; `input` is checked by hand, because sixteen million token ids
 * must not cost a schema call each. Token ids pass as they are; who must turn them into text
 * knows the model's tokenizer.
 */
import { z } from 'zod';
import { Fault } from '../core/faults.ts';
import { tokensByRule } from '../core/token-count.ts';
import type { JsonObject } from '../json/json-scan.ts';
import { spliceObject, type ParsedObject } from '../json/json-splice.ts';
import {
  invalidRequest,
  parseJsonObject,
  refuseIssues,
  type FlatIssue,
} from '../json/validation.ts';

/** `service.md`, Other constants. */
export const MAX_INPUT_TOKENS = 8192;
export const MAX_INPUTS = 2048;

const tokenIds = z.array(z.int().min(0)).min(1).max(MAX_INPUT_TOKENS);
const inputText = z.string().min(1);

export const EmbeddingsBody = z.looseObject({
  input: z
    .union([
      inputText,
      z.array(inputText).min(1).max(MAX_INPUTS),
      tokenIds,
      z.array(tokenIds).min(1).max(MAX_INPUTS),
    ])
    .describe('At most 8192 tokens per input'),
  model: z.string().min(1).max(2048).describe('Id of an embedding model'),
  dimensions: z.int().min(1).nullish(),
  encoding_format: z.enum(['float', 'base64']).nullish().describe('Default float'),
  user: z.string().nullish().describe('Discarded'),
});

const BodyBesideInput = EmbeddingsBody.omit({ input: true });

export type EmbeddingInput = string | readonly number[];
export type EmbeddingEncoding = 'float' | 'base64';

export interface EmbeddingsRequest {
  readonly model: string;
  /** Each becomes one vector, in this order. */
  readonly inputs: readonly EmbeddingInput[];
  readonly hasTokenIds: boolean;
  readonly dimensions: number | undefined;
  readonly encoding: EmbeddingEncoding;
  /** UTF-8 bytes of all texts: the basis of the bound on tokens. */
  readonly textBytes: number;
  /** Token ids given: exact, as far as they go. */
  readonly tokenIdCount: number;
  readonly fields: JsonObject;
  readonly source: ParsedObject;
}

/** Parses and validates an embeddings body. Throws the 400 (also `TOO_MANY_TOKENS`). */
export function parseEmbeddingsRequest(bytes: Buffer): EmbeddingsRequest {
  const source = parseJsonObject(bytes);
  const given = Object.entries(source.body).filter(
    ([key, value]) => value !== null && key !== 'user',
  );
  const fields: JsonObject = Object.fromEntries(given);
  const result = BodyBesideInput.safeParse(fields);
  const inputs = readInputs(fields['input']);
  if (!result.success) throw invalidRequest(result.error);
  if (!inputs.ok) throw inputs.fault;
  const body = result.data;
  return {
    model: body.model,
    ...inputs.value,
    dimensions: body.dimensions ?? undefined,
    encoding: body.encoding_format ?? 'float',
    fields,
    source,
  };
}

type Inputs = Pick<EmbeddingsRequest, 'inputs' | 'hasTokenIds' | 'textBytes' | 'tokenIdCount'>;
type InputResult =
  | { readonly ok: true; readonly value: Inputs }
  | { readonly ok: false; readonly fault: Fault };

function refused(path: readonly number[], code: string, message: string): InputResult {
  const issue: FlatIssue = { code, path: ['input', ...path], message };
  return { ok: false, fault: refuseIssues([issue]) };
}

const EXPECTED = 'Expected a string, a list of strings, token ids, or a list of lists of token ids';

function readInputs(input: unknown): InputResult {
  if (typeof input === 'string') return readTexts([input], true);
  if (!Array.isArray(input)) return refused([], 'invalid_type', EXPECTED);
  const list: readonly unknown[] = input;
  const first = list[0];
  if (first === undefined) return refused([], 'too_small', 'At least one input is needed');
  if (typeof first === 'number') return readTokenLists([list], true);
  if (list.length > MAX_INPUTS) {
    return refused([], 'too_big', `At most ${MAX_INPUTS} inputs are taken, got ${list.length}`);
  }
  return typeof first === 'string' ? readTexts(list, false) : readTokenLists(list, false);
}

function readTexts(list: readonly unknown[], isSingle: boolean): InputResult {
  const inputs: string[] = [];
  let textBytes = 0;
  for (const [index, text] of list.entries()) {
    const path = isSingle ? [] : [index];
    if (typeof text !== 'string') return refused(path, 'invalid_type', 'Expected a string');
    if (text === '') return refused(path, 'too_small', 'The input must not be empty');
    if (tokensByRule(text.length) > MAX_INPUT_TOKENS) {
      return tooLong(path);
    }
    inputs.push(text);
    textBytes += Buffer.byteLength(text);
  }
  return { ok: true, value: { inputs, hasTokenIds: false, textBytes, tokenIdCount: 0 } };
}

function readTokenLists(lists: readonly unknown[], isSingle: boolean): InputResult {
  const inputs: (readonly number[])[] = [];
  let tokenIdCount = 0;
  for (const [index, list] of lists.entries()) {
    const path = isSingle ? [] : [index];
    if (!Array.isArray(list)) return refused(path, 'invalid_type', EXPECTED);
    if (list.length === 0) return refused(path, 'too_small', 'The input must not be empty');
    if (list.length > MAX_INPUT_TOKENS) return tooLong(path);
    const bad = list.findIndex((id) => !Number.isSafeInteger(id) || id < 0);
    if (bad !== -1) {
      return refused([...path, bad], 'invalid_type', 'Expected a token id, an integer >= 0');
    }
    inputs.push(list);
    tokenIdCount += list.length;
  }
  return { ok: true, value: { inputs, hasTokenIds: true, textBytes: 0, tokenIdCount } };
}

function tooLong(path: readonly number[]): InputResult {
  const where = path.length === 0 ? 'The input' : `Input ${path.join('.')}`;
  const message = `${where} is longer than ${MAX_INPUT_TOKENS} tokens`;
  return { ok: false, fault: new Fault('TOO_MANY_TOKENS', { message }) };
}

/** Refuses `dimensions` that the model's vectors cannot have (400). */
export function refuseDimensions(
  request: EmbeddingsRequest,
  modelId: string,
  vectors: { readonly native: number; readonly canCut: boolean },
): void {
  const { dimensions } = request;
  if (dimensions === undefined || dimensions === vectors.native) return;
  if (vectors.canCut && (vectors.native === 0 || dimensions < vectors.native)) return;
  const most = vectors.canCut ? `at most ${vectors.native}` : `${vectors.native} and no other`;
  const message = `The vectors of ${modelId} have ${most} dimensions, got ${dimensions}`;
  throw refuseIssues([{ code: 'invalid_value', path: ['dimensions'], message }]);
}

export interface EmbeddingsTarget {
  /** The engine's own name of the model. */
  readonly model: string;
  /** The most inputs that the engine takes in one request. */
  readonly maxBatch: number;
  /** Asks for base64 whatever the caller wants: a third of the bytes, and nothing to parse. */
  readonly takesBase64: boolean;
  /** Whether the engine cuts vectors itself; if not, `embeddings-response.ts` does. */
  readonly takesDimensions: boolean;
  /** Replaces the inputs (token ids turned into text); same length. */
  readonly inputs?: readonly EmbeddingInput[];
}

export interface EmbeddingsBatch {
  readonly body: Buffer;
  /** How many vectors must come back. */
  readonly count: number;
}

/** The engine's bodies, in order: together they hold every input once. */
export function engineEmbeddings(
  request: EmbeddingsRequest,
  target: EmbeddingsTarget,
): EmbeddingsBatch[] {
  const fields: Record<string, unknown> = {
    ...request.fields,
    model: target.model,
    encoding_format: target.takesBase64 ? 'base64' : 'float',
  };
  if (!target.takesDimensions) delete fields['dimensions'];
  const inputs = target.inputs ?? request.inputs;
  if (inputs.length <= target.maxBatch) {
    if (target.inputs !== undefined) fields['input'] = inputs;
    return [{ body: spliceObject(request.source, fields), count: inputs.length }];
  }
  const batches: EmbeddingsBatch[] = [];
  for (let at = 0; at < inputs.length; at += target.maxBatch) {
    const input = inputs.slice(at, at + target.maxBatch);
    batches.push({ body: spliceObject(request.source, { ...fields, input }), count: input.length });
  }
  return batches;
}
