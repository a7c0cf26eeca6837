/**
 * What an engine must do, in the terms of the wire protocol that it already speaks, and the
 * values that pass between a flow and the engines.
 *
 * | work          | request to the engine                 | answer                             |
 * |---------------|---------------------------------------|------------------------------------|
 * | chat          | POST /chat/completions                | JSON, or SSE with `stream: true`   |
 * | embeddings    | POST /embeddings                      | JSON                               |
 * | transcription | POST /audio/transcriptions, multipart | JSON                               |
 * | completions   | POST /completions                     | JSON, or SSE with `stream: true`   |
 * | translation   | POST /audio/translations, multipart   | JSON, in English                   |
 * | cutout        | POST of an image (rembg /api/remove)  | PNG with alpha                     |
 * | images        | POST /images/generations, POST of a form to /images/edits | JSON, pictures in base64 |
 * | speech        | POST /audio/speech                    | sound, as it is made               |
 * | moderation    | POST /moderations                     | JSON                               |
 * | rerank        | POST /rerank                          | JSON                               |
 * | video         | POST /videos, GET /videos/{id}[/content] | JSON, then the media            |
 *
 * An engine answers `GET /models` (any status below 500 proves that it lives), may answer 429 or
 * 503 with `Retry-After`, and stops working on a request whose connection closes.
 */
import type { Cancelling } from '../core/cancellation.ts';
import type { BreakerState } from '../net/circuit-breaker.ts';
import type { Route } from '../net/connector.ts';
import type { ReceivedHeaders, StreamedBody, TimeLimits } from '../net/exchange.ts';

export type EngineWork =
  | 'chat'
  | 'completions'
  | 'embeddings'
  | 'transcription'
  | 'translation'
  | 'cutout'
  | 'images'
  | 'speech'
  | 'moderation'
  | 'rerank'
  | 'video';

/** Tells a child process of ours whose call it is. */
export const CALLER_HEADER = 'x-farebox-caller';

export interface EngineSettings extends Route {
  readonly id: string;
  readonly protocol: 'openai' | 'rembg';
  /**
   * The address up to and with `/v1`: `http(s)://host/v1` or `unix:/path.sock:/v1`; that of a rembg
   * server is without its path.
   */
  readonly url: string;
  /** Sent as `Authorization: Bearer`. */
  readonly apiKey?: string | undefined;
  readonly headers?: Readonly<Record<string, string>> | undefined;
  readonly timeLimits?: Partial<TimeLimits> | undefined;
  /** A child process of ours: what it says when it refuses is written for callers. */
  readonly isOwn?: boolean | undefined;
  /** A child process of ours that lets callers take turns: it is told whose call each is. */
  readonly takesTurns?: boolean | undefined;
  /** Sockets to the engine; also the ceiling of `concurrency`. */
  readonly maxConnections?: number | undefined;
  /** Calls that run at once; further ones wait in the queue. */
  readonly concurrency?: number | undefined;
  /** Calls that wait at once; further ones are `overloaded`. */
  readonly maxQueued?: number | undefined;
}

/** One place where a model runs. Keep the array that holds them: routes are cached by it. */
export interface Replica {
  readonly engine: string;
  /** The name that the engine gives the model. */
  readonly model: string;
  /** Share of the load, above 0; 1 when absent. */
  readonly weight?: number | undefined;
  /** Lower orders are used first; a higher one only when all lower ones are down or full. */
  readonly order?: number | undefined;
}

export interface EngineCall {
  readonly work: EngineWork;
  readonly replicas: readonly Replica[];
  readonly method: 'GET' | 'POST' | 'DELETE';
  /** Appended to the engine's URL, with a leading slash. */
  readonly path: string;
  /** Of the request body. */
  readonly contentType?: string | undefined;
  /**
   * The body for a replica (model name, dialect); not asked again to retry on the same one. With
   * `canAmend` it is asked with the refusal of its last body, a few times at most: for another one
   * that may pass, or `undefined` when it has none.
   */
  readonly buildBody?:
    | ((replica: Replica, refusal?: EngineFailure) => Buffer | StreamedBody | undefined)
    | undefined;
  readonly canAmend?: boolean | undefined;
  /** Further request headers, flat: name, value, name, value. */
  readonly headers?: readonly string[] | undefined;
  /** `prompt_cache_key`: calls with the same key meet the same replica while it can take them. */
  readonly affinityKey?: string | undefined;
  /** Whose call it is: what one caller sees fail is closed for it alone, and queues take turns. */
  readonly caller?: string | undefined;
  readonly signal?: Cancelling | undefined;
  /** Over the engine's own limits, for this call. */
  readonly timeLimits?: Partial<TimeLimits> | undefined;
  readonly maxResponseBytes: number;
  /** Starts of content types that a 2xx may have, such as `text/event-stream`; else `garbage`. */
  readonly accept?: readonly string[] | undefined;
  /**
   * Engines that serve the model for other work may not have this path: their 404, 405 or 501 is
   * `unsupported`, and no reason to think worse of them.
   */
  readonly mayLackPath?: boolean | undefined;
  /** 1 also takes no dead connection for an idle one: the request is written once at most. */
  readonly maxAttempts?: number | undefined;
}

export interface EngineHead {
  readonly status: number;
  readonly headers: ReceivedHeaders;
  readonly replica: Replica;
  /** 1 when the first try answered. */
  readonly attempts: number;
  /** From the start of the call to the first byte of the body. */
  readonly firstByteMs: number;
}

/**
 * Hears a response that is a success. `onHead` comes together with the first piece of the body,
 * in one tick: until then the call can still fail over. The calls are synchronous on purpose;
 * an async iterator costs a promise and a microtask turn per piece.
 */
export interface EngineSink {
  onHead(head: EngineHead): void;
  /** Return `false` to pause the engine until `run.resume()`, else `true`. Keep the buffer freely. */
  onChunk(chunk: Buffer): boolean;
}

/** Why a call failed. */
export type FailureReason =
  | 'unreachable' // no replica takes a connection, or all are taken out by their breaker
  | 'timeout' // a time limit of the call
  | 'overloaded' // 429 or 503, or the queue is full; `retryAfterSeconds` may say when
  | 'refused' // the engine calls the request wrong (4xx); its status and body are given
  | 'misconfigured' // 401, 402, 403, 404, 405 or a redirect: our access to the engine is wrong
  | 'unsupported' // no engine of the model has the path
  | 'failed' // the engine answered 5xx
  | 'broken' // the connection died in mid-body
  | 'garbage' // the answer is not HTTP, or not what was asked for
  | 'too-large' // the answer is larger than `maxResponseBytes`
  | 'aborted'; // the caller left

export interface EngineSuccess {
  readonly ok: true;
  readonly bytes: number;
  readonly attempts: number;
  readonly replica: Replica;
  readonly firstByteMs: number;
}

export interface EngineFailure {
  readonly ok: false;
  readonly reason: FailureReason;
  /** Whether the sink heard anything: a caller has seen part of an answer. */
  readonly sawFirstByte: boolean;
  /** Bytes that the sink got. */
  readonly bytes: number;
  /** Of the engine's answer, when it gave one. */
  readonly status: number | null;
  /** The engine's own words when it refused, at most 64 KiB; check before showing them. */
  readonly body: Buffer | null;
  /** Whether `body` is that of an engine of our own; the words of others are for the log. */
  readonly isOwn: boolean;
  readonly retryAfterSeconds: number | null;
  readonly attempts: number;
  /** Whether any of it may have reached an engine: what it asks for may then be done. */
  readonly wasSent: boolean;
  /** The last one tried; null when none was. */
  readonly replica: Replica | null;
  /** For the log only: it names addresses. */
  readonly message: string;
}

export type EngineOutcome = EngineSuccess | EngineFailure;

/** A call whose answer is taken whole: it can still fail over when the answer breaks half-way. */
export interface WholeCall extends EngineCall {
  /** Whether the body is what was asked for; when not, the answer is `garbage`. */
  readonly isUsable?: ((body: Buffer) => boolean | Promise<boolean>) | undefined;
}

/** A whole answer, for work that is not streamed. */
export interface EngineResponse extends EngineSuccess {
  readonly head: EngineHead;
  readonly body: Buffer;
}

export interface ReplicaStatus {
  readonly engine: string;
  readonly model: string;
  readonly isHealthy: boolean;
  readonly breaker: BreakerState;
  readonly inFlight: number;
  readonly calls: number;
  readonly failures: number;
  /** To the first byte of an answer, a moving average; `null` before the first. */
  readonly firstByteMs: number | null;
}

export interface EngineStatus {
  readonly id: string;
  readonly inFlight: number;
  readonly queued: number;
  /** Open sockets, and those of them that serve a request or are being opened for one. */
  readonly connections: number;
  readonly busy: number;
  /** Whether connections are reused; `false` since the engine sent bytes that belong to no request. */
  readonly keepsAlive: boolean;
  readonly replicas: readonly ReplicaStatus[];
}

export type ProbeResult =
  | { readonly ok: true; readonly latencyMs: number; readonly models: readonly string[] }
  | {
      readonly ok: false;
      readonly latencyMs: number;
      readonly reason: FailureReason | 'unknown-engine';
      readonly status: number | null;
      readonly message: string;
    };
