/**
 * The requirements for an engine, in terms of the wire protocol, and the values that pass between
 * an endpoint and the engines.
 *
 * | work          | request to the engine                 | response                           |
 * |---------------|---------------------------------------|------------------------------------|
 * | chat          | POST to the path of `CHAT_PATHS`      | JSON, or SSE with `stream: true`   |
 * | embeddings    | POST /embeddings                      | JSON                               |
 * | transcription | POST /audio/transcriptions, multipart | JSON                               |
 * | completions   | POST /completions                     | JSON, or SSE with `stream: true`   |
 * | translation   | POST /audio/translations, multipart   | JSON, in English                   |
 * | cutout        | POST of an image (rembg /api/remove)  | PNG with alpha                     |
 * | images        | POST /images/generations, POST of a form to /images/edits | JSON, images in base64 |
 * | speech        | POST /audio/speech                    | sound, as it is generated          |
 * | moderation    | POST /moderations                     | JSON                               |
 * | rerank        | POST /rerank                          | JSON                               |
 * | video         | POST /videos, GET /videos/{id}[/content] | JSON, then the media            |
 *
 * An engine responds to `GET /models` (any status below 500 counts as healthy), may return 429 or
 * 503 with `Retry-After`, and stops working on a request whose connection closes.
 */
import type { Cancelling } from '../core/cancellation.ts';
import type { TryLog } from '../core/request-tries.ts';
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

/** The path of a chat by the protocol of the engine. */
export const CHAT_PATHS = {
  openai: '/chat/completions',
  anthropic: '/messages',
  responses: '/responses',
} as const;
export type ChatProtocol = keyof typeof CHAT_PATHS;

/** Sends the caller of a request to an embedded engine. */
export const CALLER_HEADER = 'x-farebox-caller';

export interface EngineSettings extends Route {
  readonly id: string;
  readonly protocol: ChatProtocol | 'rembg';
  /**
   * The base URL including `/v1`: `http(s)://host/v1` or `unix:/path.sock:/v1`; for a rembg server,
   * without the path.
   */
  readonly url: string;
  readonly apiKey?: string | undefined;
  readonly headers?: Readonly<Record<string, string>> | undefined;
  readonly timeLimits?: Partial<TimeLimits> | undefined;
  /** An embedded engine: its error messages are written for callers. */
  readonly isOwn?: boolean | undefined;
  /** An embedded engine that schedules callers in turns: it receives `CALLER_HEADER`. */
  readonly takesTurns?: boolean | undefined;
  /** Maximum number of sockets to the engine; also the upper bound of `concurrency`. */
  readonly maxConnections?: number | undefined;
  /** Maximum number of concurrent calls; further ones wait in the queue. */
  readonly concurrency?: number | undefined;
  /** Maximum number of waiting calls; further ones fail as `overloaded`. */
  readonly maxQueued?: number | undefined;
}

/** One model on one engine. Reuse arrays of replicas: routes are cached by their identity. */
export interface Replica {
  readonly engine: string;
  /** The engine's name of the model. */
  readonly model: string;
  /** Share of the load, above 0; default 1. */
  readonly weight?: number | undefined;
  /** Lower orders are used first; a higher one only if all lower ones are down or full. */
  readonly order?: number | undefined;
}

export interface EngineCall {
  readonly work: EngineWork;
  readonly replicas: readonly Replica[];
  readonly method: 'GET' | 'POST' | 'DELETE';
  /** Appended to the engine's URL, with a leading slash; for a chat, the engine's own replaces it. */
  readonly path: string;
  readonly contentType?: string | undefined;
  /**
   * Returns the body for a replica (model name, dialect); it is not called again for a retry on the
   * same replica. With `canAmend` it is also called with the rejection of its last body, a few
   * times at most: it returns another body to try, or `undefined`.
   */
  readonly buildBody?:
    | ((replica: Replica, refusal?: EngineFailure) => Buffer | StreamedBody | undefined)
    | undefined;
  readonly canAmend?: boolean | undefined;
  /** Further request headers as a flat list: name, value, name, value. */
  readonly headers?: readonly string[] | undefined;
  /** The last body, if `buildBody` translated it, with its path and further request headers. */
  readonly translated?:
    | { readonly path: string; readonly headers: readonly string[] | undefined }
    | undefined;
  /** `prompt_cache_key`: calls with the same key go to the same replica while it has capacity. */
  readonly affinityKey?: string | undefined;
  /**
   * The caller's id. A breaker that opened on failures of a few callers blocks only their calls, and
   * queues serve callers in turns.
   */
  readonly caller?: string | undefined;
  /** Receives each failed attempt. Default: failures are only counted. */
  readonly tries?: TryLog | undefined;
  readonly signal?: Cancelling | undefined;
  /** Override the limits of the engine for this call. */
  readonly timeLimits?: Partial<TimeLimits> | undefined;
  readonly maxResponseBytes: number;
  /**
   * Allowed prefixes of the content type of a 2xx response, such as `text/event-stream`; any other
   * type is `garbage`.
   */
  readonly accept?: readonly string[] | undefined;
  /**
   * Engines of the model may lack this path: 404, 405 or 501 then means `unsupported` and does not
   * count against the replica.
   */
  readonly isOptionalPath?: boolean | undefined;
  /** With 1 the request is never written again, even after a closed idle connection. */
  readonly maxAttempts?: number | undefined;
}

export interface EngineHead {
  readonly status: number;
  readonly headers: ReceivedHeaders;
  readonly replica: Replica;
  readonly attempts: number;
  /** From the start of the call to the first byte of the body. */
  readonly firstByteMs: number;
}

/**
 * Receives a successful response. `onHead` is called together with the first piece of the body, in
 * the same tick; until then the call can still fail over. The calls are synchronous, because an
 * async iterator costs a promise and a microtask per piece.
 */
export interface EngineSink {
  onHead(head: EngineHead): void;
  /** `false` pauses the engine until `run.resume()`. The sink may keep the buffer. */
  onChunk(chunk: Buffer): boolean;
}

export type FailureReason =
  | 'unreachable' // no replica accepts a connection, or all breakers are open
  | 'timeout' // a time limit of the call
  | 'overloaded' // 429 or 503, or the queue is full; `retryAfterSeconds` may say when
  | 'refused' // the engine rejects the request (4xx); status and body are included
  | 'misconfigured' // 401, 402, 403, 404, 405 or a redirect: the operator's engine settings are wrong
  | 'unsupported' // no engine of the model has the path
  | 'failed' // the engine returned 5xx
  | 'broken' // the connection ended within the body
  | 'garbage' // the response is not HTTP, or not of the requested kind
  | 'too-large' // the response exceeds `maxResponseBytes`
  | 'aborted'; // the caller disconnected

export interface EngineSuccess {
  readonly ok: true;
  readonly head: EngineHead;
  readonly bytes: number;
  /** The response of a non-streaming call. */
  readonly body?: Buffer | undefined;
  readonly attempts: number;
  readonly replica: Replica;
  readonly firstByteMs: number;
}

export interface EngineFailure {
  readonly ok: false;
  readonly reason: FailureReason;
  /** Whether the sink received any data, so that the caller may have seen part of the response. */
  readonly sawFirstByte: boolean;
  readonly bytes: number;
  readonly status: number | null;
  /** The body of the engine's error response, at most 64 KiB; sanitise it before showing it. */
  readonly body: Buffer | null;
  /** Whether `body` is from an embedded engine; bodies of other engines are only logged. */
  readonly isOwn: boolean;
  readonly retryAfterSeconds: number | null;
  readonly attempts: number;
  /** Whether any part of the request may have reached an engine and been executed. */
  readonly wasSent: boolean;
  /** Whether an engine was processing the request, or had processed it, when the call ended. */
  readonly wasWorking: boolean;
  readonly replica: Replica | null;
  /** Only for the log, because it contains addresses. */
  readonly message: string;
}

export type EngineOutcome = EngineSuccess | EngineFailure;

/** A call with a non-streaming response: it can fail over even after a part of the body. */
export interface WholeCall extends EngineCall {
  /** Whether the body has the requested content; if not, the response is `garbage`. */
  readonly isUsable?: ((body: Buffer) => boolean | Promise<boolean>) | undefined;
}

export interface EngineResponse extends EngineSuccess {
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
  /** Moving average of the time to the first byte; `null` before the first response. */
  readonly firstByteMs: number | null;
}

export interface EngineStatus {
  readonly id: string;
  readonly inFlight: number;
  readonly queued: number;
  /** Open sockets, and the number of them that serve a request or are being opened for one. */
  readonly connections: number;
  readonly busy: number;
  /** Whether connections are reused; `false` after the engine sent bytes of no request. */
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
