/**
 * `POST /chat/completions`, and what other folders take of the chat. What runs it is `run-chat.ts`.
 */
import { LARGE_BODY_BYTES } from '../http/read-request.ts';
import { JSON_BODY, type Route } from '../http/route.ts';
import { CHAT_DESCRIPTION } from './chat-completions/schema.ts';
import type { ChatParts } from './chat-run.ts';
import { runChat } from './run-chat.ts';
import {
  type ChatRequest,
  type ChatRequestOptions,
  parseChatRequest,
} from './wire/chat-request.ts';

export { type AdditionParts, planAdditions } from './additions.ts';
export { AGENTS_MIGRATIONS } from './agents/migrations.ts';
export { openSealer, type Sealer } from './agents/sealed-text.ts';
export { RESPONSES_MIGRATIONS, responsesRoutes, StoredTurns } from './responses/responses.ts';
export type { ChatParts } from './chat-run.ts';
export { LearnedDialects } from './learned-dialects.ts';
export { PaidResults } from './paid-results.ts';

/** `parseChatRequest` for a body that would hold up the event loop. */
export type ReadLargeChat = (body: Buffer, options: ChatRequestOptions) => Promise<ChatRequest>;

export function chatCompletionsRoute(parts: ChatParts, readLarge: ReadLargeChat): Route {
  const options = { serviceName: parts.serviceName };
  return {
    method: 'POST',
    path: '/chat/completions',
    auth: 'key-or-wallet',
    about: 'Chat completions',
    body: JSON_BODY,
    sells: 'chat',
    describe: CHAT_DESCRIPTION,
    handle: (context) => {
      const { body } = context;
      return body.length < LARGE_BODY_BYTES
        ? runChat(parts, context, parseChatRequest(body, options))
        : readLarge(body, options).then((request) => runChat(parts, context, request));
    },
  };
}
