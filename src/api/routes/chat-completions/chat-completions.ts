/** `POST /chat/completions`: parses the body, runs the chat flow, and gives its answer headers. */
import {
  type ChatHead,
  type ChatParts,
  type ChatReceiver,
  runChat,
} from '../../../flows/chat/chat.ts';
import { parseChatRequest } from '../../../wire/chat-request.ts';
import { answerHeaders } from '../../answer-headers.ts';
import type { Exchange, StreamWriter } from '../../exchange.ts';
import { JSON_BODY, type Route } from '../../route.ts';

const EVENT_STREAM = 'text/event-stream; charset=utf-8';

export function chatCompletionsRoute(parts: ChatParts): Route {
  return {
    method: 'POST',
    path: '/chat/completions',
    auth: 'key-or-wallet',
    body: JSON_BODY,
    sells: 'chat',
    handle: async (exchange) => {
      const request = parseChatRequest(exchange.body, { serviceName: parts.serviceName });
      await runChat(parts, {
        requestId: exchange.requestId,
        caller: exchange.caller,
        request,
        signal: exchange.signal,
        receiver: receiverOf(exchange, parts),
        note: (notes) => Object.assign(exchange.notes, notes),
      });
    },
  };
}

function receiverOf(exchange: Exchange, parts: ChatParts): ChatReceiver {
  let writer: StreamWriter | undefined;
  const open = (): StreamWriter => {
    if (writer === undefined) throw new Error('A stream is written before it begins');
    return writer;
  };
  const setHeaders = (head: ChatHead): void => {
    exchange.setAll(answerHeaders(head, parts.serviceName, parts.clock.nowMs()));
  };
  return {
    begin: (head) => {
      setHeaders(head);
      exchange.set('cache-control', 'no-cache');
      // Proxies that buffer (nginx) are told not to.
      exchange.set('x-accel-buffering', 'no');
      writer = exchange.stream(200, EVENT_STREAM);
    },
    write: (chunk) => open().write(chunk),
    onDrain: (resume) => open().onDrain(resume),
    end: (last) => open().end(last),
    whole: async (head, body) => {
      setHeaders(head);
      await exchange.json(200, body);
    },
  };
}
