/**
 * `POST /messages` and `POST /messages/count_tokens`: Anthropic's Messages API, translated to the
 * chat run, which decides what runs and what it costs.
 */
import { Fault } from '../../core/faults.ts';
import { LARGE_BODY_BYTES, type ReadLargeJson } from '../../http/read-request.ts';
import type { RequestContext } from '../../http/request-context.ts';
import { JSON_BODY, type Route } from '../../http/route.ts';
import { parseJsonObject, isJsonObject, type JsonObject } from '../../json/json-scan.ts';
import type { ResponseProtocol } from '../agents/response-protocol.ts';
import type { ChatParts } from '../chat-plan.ts';
import { sellChat } from '../admission.ts';
import { type ChatRequest, chatRequestOf } from '../wire/chat-request.ts';
import type { ChatMessage } from '../wire/chat-schema.ts';
import { promptTokensAbout } from '../wire/prompt-facts.ts';
import { messageError, messageErrors, REQUEST_ID_HEADER } from './message-errors.ts';
import { MessagePass } from '../upstream/anthropic/message-pass.ts';
import { passableRequest, passingOf } from '../upstream/upstream.ts';
import { MessageWriter } from './message-writer.ts';
import { COUNT_TOKENS_DESCRIPTION, MESSAGES_DESCRIPTION } from './describe.ts';
import { type MessagesRequest, readMessagesRequest } from './messages-request.ts';

/**
 * Clients repeat a request that was truncated below this limit, so a smaller balance is rejected.
 */
const LEAST_OUTPUT_TOKENS = 1_024;
const CALL_ID_BYTES = 12;
const BETA_HEADER = 'anthropic-beta';
/** The session of an agent: it selects the replica and is a tag of the usage records. */
const SESSION_HEADER = 'x-claude-code-session-id';

export function messagesRoutes(parts: ChatParts, readLarge: ReadLargeJson): readonly Route[] {
  const shared = {
    method: 'POST',
    auth: 'key-or-wallet',
    body: JSON_BODY,
    errors: messageErrors,
  } as const;
  return [
    {
      ...shared,
      path: '/messages',
      about: 'Messages',
      sells: 'chat',
      describe: MESSAGES_DESCRIPTION,
      handle: async (context) => answer(parts, context, await bodyOf(context, readLarge)),
    },
    {
      ...shared,
      path: '/messages/count_tokens',
      describe: COUNT_TOKENS_DESCRIPTION,
      handle: async (context) => {
        const { request } = read(parts, context, await bodyOf(context, readLarge));
        parts.catalog.require(request.model, 'text');
        await context.json(200, { input_tokens: promptTokensAbout(request) });
      },
    },
  ];
}

async function bodyOf(
  { body, caller }: RequestContext,
  readLarge: ReadLargeJson,
): Promise<JsonObject> {
  if (body.length < LARGE_BODY_BYTES) return parseJsonObject(body).body;
  const value = await readLarge(body, caller.accountId);
  if (isJsonObject(value)) return value;
  throw new Fault('INVALID_REQUEST', { message: 'The body must be a JSON object' });
}

function read(parts: ChatParts, context: RequestContext, body: JsonObject) {
  const { sealer, canSearch, serviceName } = parts;
  context.set(REQUEST_ID_HEADER, context.requestId);
  const { accountId } = context.caller;
  const given = readMessagesRequest(body, {
    canSearch,
    serviceName,
    openSealed: (signature) => sealer.open(signature, accountId),
    sessionId: context.header(SESSION_HEADER),
  });
  const { chat, markedMessages } = given;
  return { given, request: { ...chatRequestOf(chat, { serviceName }), markedMessages } };
}

async function answer(parts: ChatParts, context: RequestContext, body: JsonObject): Promise<void> {
  const { given, request: translated } = read(parts, context, body);
  const { catalog, dialects, serviceName } = parts;
  const model = catalog.resolve(translated.model, 'text')?.model;
  const contextTokens = model?.context ?? 0;
  const passing = passingOf(dialects, model, 'anthropic');
  const options = { betas: context.header(BETA_HEADER), contextTokens, serviceName };
  const passThrough = passing && new MessagePass(context.body, body, options);
  const request = passing
    ? passableRequest(translated, untranslatedBytes(translated, context.body), passing)
    : translated;
  try {
    const protocol = protocolOf(parts, context, given, contextTokens);
    await sellChat(parts, context, request, { ...protocol, passThrough });
  } catch (error) {
    if (!(error instanceof Fault) || error.code !== 'CONTEXT_LENGTH_EXCEEDED') throw error;
    // Only this route knows the token counts that the error has to contain.
    const promptTokens = promptTokensAbout(request);
    const { requestId } = context;
    const refused = messageError(error, { requestId, promptTokens, contextTokens });
    throw new Fault(error.code, { ...error.options, message: error.message, body: refused });
  }
}

function untranslatedBytes({ facts, messages }: ChatRequest, body: Buffer): number {
  const mediaBytes = messages.reduce((sum, message) => sum + dataBytes(message), 0);
  return Math.max(facts.unknownBytes, body.length - mediaBytes - facts.textBytes);
}

function dataBytes({ content }: ChatMessage): number {
  if (!Array.isArray(content)) return 0;
  return content.reduce((sum, part) => {
    if (part.type === 'image_url') return sum + part.image_url.url.length;
    return part.type === 'file' ? sum + part.file.file_data.length : sum;
  }, 0);
}

function protocolOf(
  { sealer, ids }: ChatParts,
  { caller }: RequestContext,
  given: MessagesRequest,
  contextTokens: number,
): ResponseProtocol {
  const { thinking, stopSequences, toolNames } = given;
  const seal = (text: string): string => sealer.seal(text, caller.accountId);
  const options = { thinking, stopSequences, toolNames, seal, contextTokens };
  return {
    name: 'messages',
    leastOutputTokens: LEAST_OUTPUT_TOKENS,
    maxSearches: given.maxSearches,
    takenCallIds: given.callIds,
    newCallId: () => `toolu_${ids.hex(CALL_ID_BYTES)}`,
    writer: (frame) => new MessageWriter(frame, options),
  };
}
