/** The protocols of engines that need a translation, and its use by a run. */
import { CHAT_PATHS, type EngineFailure } from '../../engines/engines.ts';
import { parsedJsonObject } from '../../json/json-text.ts';
import type { PreparedAdditions } from '../additions.ts';
import type { ChatPlan } from '../chat-plan.ts';
import { type ChatResponse, readChatBody, type ResponseOptions } from '../wire/chat-response.ts';
import { engineFields, type EngineTarget } from '../wire/engine-request.ts';
import { MessageReader } from './anthropic/message-reader.ts';
import { messageRequest } from './anthropic/message-request.ts';
import { completionOfMessage } from './anthropic/message-response.ts';
import { responsesBody } from './responses/chat-to-responses.ts';
import { ResponsesReader } from './responses/responses-reader.ts';
import { completionOf } from './responses/responses-to-chat.ts';
import type { PassThrough, Upstream } from './upstream.ts';

export const UPSTREAMS = {
  anthropic: {
    writeRequest: messageRequest,
    readResponse: completionOfMessage,
    newReader: () => new MessageReader(),
  },
  responses: {
    writeRequest: responsesBody,
    readResponse: completionOf,
    newReader: () => new ResponsesReader(),
  },
} satisfies Readonly<Record<string, Upstream>>;

export interface UpstreamBody {
  readonly upstream: Upstream;
  /** `undefined` if the engine has rejected the last body and there is no other. */
  readonly body: Buffer | undefined;
  /** Set if the request is passed on unchanged, and so is the response. */
  readonly pass: PassThrough | undefined;
  readonly path: string;
  readonly headers: readonly string[] | undefined;
}

/** The body for an engine of another protocol than chat completions. */
export function upstreamBody(
  protocol: keyof typeof UPSTREAMS,
  { plan, prepared, target, refusal }: UpstreamInputs,
): UpstreamBody {
  const given = plan.protocol?.passThrough;
  const own = given?.upstream === protocol ? given : undefined;
  const upstream = UPSTREAMS[protocol];
  const sent = { upstream, path: CHAT_PATHS[protocol], headers: own?.headers };
  if (own !== undefined && mayPass(plan, prepared)) {
    const body = own.writeRequest({ ...target, refusal });
    if (body !== undefined || refusal !== undefined) return { ...sent, body, pass: own };
  }
  const chat = engineFields(plan.request, target);
  const { cachePrompts } = target.dialect;
  const body = upstream.writeRequest(chat, { own: own?.body, refusal, cachePrompts });
  const bytes = body === undefined ? undefined : Buffer.from(JSON.stringify(body));
  return { ...sent, body: bytes, pass: undefined };
}

interface UpstreamInputs {
  readonly plan: ChatPlan;
  readonly prepared: PreparedAdditions;
  readonly target: EngineTarget;
  readonly refusal: EngineFailure | undefined;
}

/** Whether nothing is added to the request, and nothing removed from the response. */
function mayPass({ systemPrompt, additions, request }: ChatPlan, prepared: PreparedAdditions) {
  const { strip_thinking_response, disable_thinking } = request.parameters;
  const isSame = systemPrompt === '' && prepared.messages === undefined;
  const isAlone = additions.autoSearch === undefined && additions.socialSearch === undefined;
  return isSame && isAlone && !strip_thinking_response && !disable_thinking;
}

/** Throws, or returns `undefined`, if the body is no response of the protocol. */
export function readUpstream(
  { upstream, pass }: UpstreamBody,
  body: Buffer,
  options: ResponseOptions,
): ChatResponse | undefined {
  if (pass !== undefined) return pass.readResponse(body, options.maxOutputTokens);
  const message = parsedJsonObject(body.toString());
  const completion = message && upstream.readResponse(message);
  if (completion === undefined) return undefined;
  const bytes = Buffer.from(JSON.stringify(completion));
  return readChatBody({ bytes, body: completion }, options);
}
