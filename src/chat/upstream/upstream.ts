/**
 * Protocols of engines other than chat completions. A run makes the body for an engine of chat
 * completions; an `Upstream` translates it and the response, so that the rest of the chat is the
 * same for every engine. If caller and engine have the same protocol, a `PassThrough` passes the
 * bytes on instead.
 *
 * Members of a chat that other protocols have, in the form that clients of chat completions know:
 *
 * - `reasoning_details` of a message: signed reasoning (`reasoning.text` with `signature`) and
 *   encrypted reasoning (`reasoning.encrypted` with `data`). `format` names the protocol of the
 *   engine that made it; an `Upstream` leaves out those of others.
 * - `cache_control` of content parts and tools
 * - `annotations` of a message: citations
 */
import type { CatalogModel } from '../../catalog/catalog.ts';
import type { ChatProtocol, EngineFailure } from '../../engines/engines.ts';
import { isJsonObject, type JsonObject } from '../../json/json-scan.ts';
import { refuseMember } from '../../json/validation.ts';
import type { LearnedDialects } from '../learned.ts';
import type { ChatRequest } from '../wire/chat-request.ts';
import type { ChatResponse, ResponseEnd, ResponseFrame } from '../wire/chat-response.ts';
import type { ChatStream } from '../wire/chat-stream.ts';
import type { EngineTarget } from '../wire/engine-request.ts';

/** Members of a chat that another protocol can lack, each with the values that change nothing. */
const HARMLESS: Readonly<Record<string, (value: unknown) => boolean>> = {
  stop: isEmpty,
  n: (value) => value === 1,
  seed: () => false,
  logit_bias: isEmpty,
  logprobs: (value) => value === false,
  prediction: () => false,
  audio: () => false,
  modalities: (value) => Array.isArray(value) && value.every((one) => one === 'text'),
  stop_token_ids: isEmpty,
  frequency_penalty: (value) => value === 0,
  presence_penalty: (value) => value === 0,
  repetition_penalty: (value) => value === 1,
};

/** Throws 400 `INVALID_REQUEST` for a member that the protocol lacks. */
export function refuseMissing(chat: JsonObject, missing: readonly string[]): void {
  for (const name of missing) {
    const value = chat[name] ?? undefined;
    if (value === undefined || HARMLESS[name]?.(value) === true) continue;
    const message = `The engine of this model has no equivalent of ${name}; omit it`;
    throw refuseMember([name], message, 'unsupported');
  }
}

function isEmpty(value: unknown): boolean {
  if (typeof value === 'string' || Array.isArray(value)) return value.length === 0;
  return isJsonObject(value) && Object.keys(value).length === 0;
}

export interface Upstream {
  /** Translates the body for an engine of chat completions. Throws a Fault if it cannot. */
  writeRequest(chat: JsonObject, options: WriteOptions): JsonObject | undefined;
  /** Returns the chat completion; `undefined` if the body is no response of the protocol. */
  readResponse(body: JsonObject): JsonObject | undefined;
  newReader(): UpstreamReader;
}

export interface WriteOptions {
  /** The caller's body, if it has the protocol of the engine: its own settings apply. */
  readonly own: JsonObject | undefined;
  /** The rejection of the last body: another one is needed, or `undefined`. */
  readonly refusal: EngineFailure | undefined;
  /** Whether to request a prompt cache for a chat without marks. */
  readonly cachePrompts?: boolean | undefined;
}

/** Begins a chunk that the chat stream passes on without parsing, which requires these members. */
export const CHUNK_START =
  '{"id":"upstream","object":"chat.completion.chunk","created":0,"model":"upstream",';

/** Translates the events of one response. */
export interface UpstreamReader {
  /** Returns the chunks of a chat, as bytes of server-sent events; `[DONE]` after the last one. */
  push(bytes: Buffer): Buffer;
}

/** Reads a stream of an engine and writes that of the caller. */
export type EngineStream = Pick<
  ChatStream,
  | 'closing'
  | 'failure'
  | 'flush'
  | 'hasShownText'
  | 'isComplete'
  | 'isCutOff'
  | 'isOver'
  | 'push'
  | 'reported'
  | 'tally'
  | 'usageChunk'
>;

/** Whether engines of the model speak the protocol of the caller; `undefined` if none does. */
export function passingOf(
  dialects: LearnedDialects,
  model: CatalogModel | undefined,
  protocol: ChatProtocol,
): Passing | undefined {
  const replicas = model?.replicas ?? [];
  const speaking = replicas.filter((replica) => dialects.of(replica).protocol === protocol);
  if (model === undefined || speaking.length === 0) return undefined;
  const canKeep = speaking.length === replicas.length && model.capabilities.has('vision');
  return { keepsFiles: canKeep };
}

interface Passing {
  /** Whether every engine of the model reads files, which only their own protocol can pass on. */
  readonly keepsFiles: boolean;
}

/** The bound of a prompt that may be passed on includes what a translation would drop. */
export function passableRequest(
  request: ChatRequest,
  unknownBytes: number,
  { keepsFiles }: Passing,
): ChatRequest {
  const { facts } = request;
  const { imageCount, fileCount } = facts;
  // The model reads the pages of a file as images.
  const files = keepsFiles ? { imageCount: imageCount + fileCount, fileCount: 0 } : {};
  return { ...request, keepsFiles, facts: { ...facts, unknownBytes, ...files } };
}

/** A request of a caller, for engines of the same protocol. */
export interface PassThrough {
  readonly upstream: ChatProtocol;
  readonly body: JsonObject;
  /** Further request headers as a flat list, also of a translated request. */
  readonly headers: readonly string[];
  /** Returns `undefined` if the request has to be translated, or a rejected one cannot be changed. */
  writeRequest(options: PassOptions): Buffer | undefined;
  /** Returns `undefined` if the body is no response of the protocol. */
  readResponse(body: Buffer, outputTokens: number): ChatResponse | undefined;
  writeResponse(response: ChatResponse, frame: ResponseFrame, end: ResponseEnd): Buffer;
  newStream(outputTokens: number, frame: ResponseFrame): EngineStream;
}

export interface PassOptions extends Pick<
  EngineTarget,
  'model' | 'dialect' | 'maxOutputTokens' | 'promptCacheKey' | 'serviceTier'
> {
  /** The rejection of the last body. */
  readonly refusal: EngineFailure | undefined;
}
