/**
 * The embeddings request: its schema, its validation, and the bodies for the engine. `input` is
 * validated by hand, because a schema would validate sixteen million token ids one by one.
 */
import * as z from 'zod';
import { Fault } from '../core/faults.ts';
import { bytesOfTokens } from '../core/token-count.ts';
import { UNSOLD_MEMBERS } from '../engines/unsold-members.ts';
import { type ParsedObject, parseJsonObject, type JsonObject } from '../json/json-scan.ts';
import { spliceObject } from '../json/json-splice.ts';
import { invalidRequest, refuseMember } from '../json/validation.ts';

/** Limits of the API: tokens per input, and inputs per request. */
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
    .describe('Text, token ids, or a list of up to 2,048 of either, each of at most 8,192 tokens.'),
  model: z.string().min(1).max(2048).describe('Id, trait or compatibility name of a model.'),
  dimensions: z
    .int()
    .min(1)
    .nullish()
    .describe('Length of the vectors, if supported. Default: full length.'),
  encoding_format: z
    .enum(['float', 'base64'])
    .nullish()
    .describe('`base64` is little-endian float32. Default `float`.'),
  user: z.string().nullish().describe('Discarded.'),
});

const BodyBesideInput = EmbeddingsBody.omit({ input: true });

export type EmbeddingInput = string | readonly number[];
export type EmbeddingEncoding = 'float' | 'base64';

export interface EmbeddingsRequest {
  readonly model: string;
  readonly inputs: readonly EmbeddingInput[];
  readonly hasTokenIds: boolean;
  readonly dimensions: number | undefined;
  readonly encoding: EmbeddingEncoding;
  /** UTF-8 bytes of all texts, which bound their tokens. */
  readonly textBytes: number;
  /** Number of token ids in the request. */
  readonly tokenIdCount: number;
  readonly fields: JsonObject;
  readonly source: ParsedObject;
}

/** Members by which engines return vectors of another length or number format. */
const VECTOR_FORMS = [
  'embed_dtype',
  'embedding_type',
  'embedding_types',
  'endianness',
  'output_dimension',
  'output_dtype',
  'return_multivector',
];

/** Throws 400, also `TOO_MANY_TOKENS`. */
export function parseEmbeddingsRequest(bytes: Buffer): EmbeddingsRequest {
  const source = parseJsonObject(bytes);
  const given = Object.entries(source.body).filter(
    ([key, value]) => value !== null && key !== 'user',
  );
  const fields: JsonObject = Object.fromEntries(given);
  const result = BodyBesideInput.safeParse(fields);
  if (!result.success) throw invalidRequest(result.error);
  const form = VECTOR_FORMS.find((name) => fields[name] !== undefined);
  if (form !== undefined) {
    const message = 'Vectors of another form are not sold; use "dimensions" and "encoding_format"';
    throw refuseMember([form], message, 'unsupported');
  }
  const { model, dimensions, encoding_format } = result.data;
  return {
    model,
    ...readInputs(fields['input']),
    dimensions: dimensions ?? undefined,
    encoding: encoding_format ?? 'float',
    fields,
    source,
  };
}

type Inputs = Pick<EmbeddingsRequest, 'inputs' | 'hasTokenIds' | 'textBytes' | 'tokenIdCount'>;

function refused(path: readonly number[], code: string, message: string): Fault {
  return refuseMember(['input', ...path], message, code);
}

const EXPECTED = 'Expected a string, a list of strings, token ids, or a list of lists of token ids';

function readInputs(input: unknown): Inputs {
  if (typeof input === 'string') return readTexts([input], true);
  if (!Array.isArray(input)) throw refused([], 'invalid_type', EXPECTED);
  const list: readonly unknown[] = input;
  const first = list[0];
  if (first === undefined) throw refused([], 'too_small', 'At least one input is needed');
  if (typeof first === 'number') return readTokenLists([list], true);
  if (list.length > MAX_INPUTS) {
    throw refused([], 'too_big', `At most ${MAX_INPUTS} inputs are allowed, got ${list.length}`);
  }
  return typeof first === 'string' ? readTexts(list, false) : readTokenLists(list, false);
}

function readTexts(list: readonly unknown[], isSingle: boolean): Inputs {
  const inputs: string[] = [];
  let textBytes = 0;
  for (const [index, text] of list.entries()) {
    const path = isSingle ? [] : [index];
    if (typeof text !== 'string') throw refused(path, 'invalid_type', 'Expected a string');
    if (text === '') throw refused(path, 'too_small', 'The input must not be empty');
    const bytes = Buffer.byteLength(text);
    // The tokenizer counts shorter texts, once the caller has credit.
    if (bytes > bytesOfTokens(MAX_INPUT_TOKENS)) throw tooLong(path);
    inputs.push(text);
    textBytes += bytes;
  }
  return { inputs, hasTokenIds: false, textBytes, tokenIdCount: 0 };
}

function readTokenLists(lists: readonly unknown[], isSingle: boolean): Inputs {
  const inputs: (readonly number[])[] = [];
  let tokenIdCount = 0;
  for (const [index, list] of lists.entries()) {
    const path = isSingle ? [] : [index];
    if (!Array.isArray(list)) throw refused(path, 'invalid_type', EXPECTED);
    if (list.length === 0) throw refused(path, 'too_small', 'The input must not be empty');
    if (list.length > MAX_INPUT_TOKENS) throw tooLong(path);
    const bad = list.findIndex((id) => !Number.isSafeInteger(id) || id < 0);
    if (bad !== -1) {
      throw refused([...path, bad], 'invalid_type', 'Expected a token id, an integer >= 0');
    }
    inputs.push(list);
    tokenIdCount += list.length;
  }
  return { inputs, hasTokenIds: true, textBytes: 0, tokenIdCount };
}

function tooLong(path: readonly number[]): Fault {
  const where = path.length === 0 ? 'The input' : `Input ${path.join('.')}`;
  const message = `${where} is longer than ${MAX_INPUT_TOKENS} tokens`;
  return new Fault('TOO_MANY_TOKENS', { message });
}

/** Throws 400 if the model's vectors cannot have these dimensions. */
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
  throw refuseMember(['dimensions'], message, 'invalid_value');
}

export interface EmbeddingsBatch {
  readonly body: Buffer;
  readonly count: number;
}

export interface EngineForm {
  readonly model: string;
  /** `undefined` for an engine that rejects `encoding_format`. */
  readonly encoding: EmbeddingEncoding | undefined;
  readonly maxBatch: number;
}

/** The bodies of batches of at most `maxBatch` inputs. `replaced` are decoded inputs. */
export function engineEmbeddings(
  request: EmbeddingsRequest,
  { model, encoding, maxBatch }: EngineForm,
  replaced?: readonly EmbeddingInput[],
): EmbeddingsBatch[] {
  const fields: Record<string, unknown> = {
    ...request.fields,
    ...UNSOLD_MEMBERS,
    model,
    encoding_format: encoding,
    // Vectors are truncated here, so that all engines give equal results.
    dimensions: undefined,
  };
  const inputs = replaced ?? request.inputs;
  if (inputs.length <= maxBatch) {
    if (replaced !== undefined) fields['input'] = inputs;
    return [{ body: spliceObject(request.source, fields), count: inputs.length }];
  }
  const batches: EmbeddingsBatch[] = [];
  for (let at = 0; at < inputs.length; at += maxBatch) {
    const input = inputs.slice(at, at + maxBatch);
    batches.push({ body: spliceObject(request.source, { ...fields, input }), count: input.length });
  }
  return batches;
}
