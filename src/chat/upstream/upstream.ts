/**
 * Protocols of engines other than chat completions. A run makes the body for an engine of chat
 * completions; an `Upstream` translates it and the response, so that the rest of the chat is the
 * same for every engine.
 *
 * Members of a chat that other protocols have, in the form that clients of chat completions know:
 *
 * - `reasoning_details` of a message: signed reasoning (`reasoning.text` with `signature`) and
 *   encrypted reasoning (`reasoning.encrypted` with `data`). `format` names the protocol of the
 *   engine that made it; an `Upstream` leaves out those of others.
 * - `cache_control` of content parts and tools
 * - `annotations` of a message: citations
 */
import type { EngineFailure } from '../../engines/engines.ts';
import type { JsonObject } from '../../json/json-scan.ts';

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
}

/** Translates the events of one response. */
export interface UpstreamReader {
  /** Returns the chunks of a chat, as bytes of server-sent events; `[DONE]` after the last one. */
  push(bytes: Buffer): Buffer;
}
