/** `POST /chat/completions`: parses the body and sells the chat. */
import { LARGE_BODY_BYTES } from '../../http/read-request.ts';
import { JSON_BODY, type Route } from '../../http/route.ts';
import { sellChat } from '../admission.ts';
import type { ChatParts } from '../chat-plan.ts';
import {
  type ChatRequest,
  type ChatRequestOptions,
  parseChatRequest,
} from '../wire/chat-request.ts';
import { CHAT_DESCRIPTION } from './describe.ts';

/** `parseChatRequest` on another thread, for large bodies. */
export type ReadLargeChat = (
  body: Buffer,
  caller: string,
  options: ChatRequestOptions,
) => Promise<ChatRequest>;

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
        ? sellChat(parts, context, parseChatRequest(body, options))
        : readLarge(body, context.caller.accountId, options).then((request) =>
            sellChat(parts, context, request),
          );
    },
  };
}
