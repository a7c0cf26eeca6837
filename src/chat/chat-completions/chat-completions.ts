/** `POST /chat/completions`. */
import { JSON_BODY, type Route } from '../../http/route.ts';
import { type ReadLargeChat, chatHandler } from '../admission.ts';
import type { ChatParts } from '../chat-plan.ts';
import { CHAT_DESCRIPTION } from './describe.ts';

export function chatCompletionsRoute(parts: ChatParts, readLarge: ReadLargeChat): Route {
  return {
    method: 'POST',
    path: '/chat/completions',
    auth: 'key-or-wallet',
    about: 'Chat completions',
    body: JSON_BODY,
    sells: 'chat',
    describe: CHAT_DESCRIPTION,
    handle: chatHandler(parts, readLarge),
  };
}
