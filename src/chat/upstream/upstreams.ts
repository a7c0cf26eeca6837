/** The protocols of engines that need a translation, and its use by a run. */
import type { EngineFailure } from '../../engines/engines.ts';
import { parsedJsonObject } from '../../json/json-text.ts';
import type { ChatRequest } from '../wire/chat-request.ts';
import { engineFields, type EngineTarget } from '../wire/engine-request.ts';
import { ANTHROPIC } from './anthropic/anthropic.ts';
import { RESPONSES } from './responses/responses.ts';
import type { Upstream } from './upstream.ts';

export const UPSTREAMS = { anthropic: ANTHROPIC, responses: RESPONSES } satisfies Readonly<
  Record<string, Upstream>
>;

/** Returns `undefined` if the engine has rejected the last body and there is no other. */
export function upstreamBody(
  upstream: Upstream,
  request: ChatRequest,
  target: EngineTarget,
  refusal: EngineFailure | undefined,
): Buffer | undefined {
  const chat = engineFields(request, target);
  const body = upstream.writeRequest(chat, { own: undefined, refusal });
  return body === undefined ? undefined : Buffer.from(JSON.stringify(body));
}

/** The response as a chat completion; empty if it is none. */
export function completionBytes(upstream: Upstream, body: Buffer): Buffer {
  const message = parsedJsonObject(body.toString());
  const completion = message === undefined ? undefined : upstream.readResponse(message);
  return Buffer.from(completion === undefined ? '' : JSON.stringify(completion));
}
