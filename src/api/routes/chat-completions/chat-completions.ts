/** `POST /chat/completions`: parses the body, runs the chat flow, and gives its answer headers. */
import type { AnswerFacts } from '../../../flows/answer-facts.ts';
import {
  type ChatNotes,
  type ChatParts,
  type ChatReceiver,
  runChat,
} from '../../../flows/chat/chat.ts';
import { parseChatRequest } from '../../../wire/chat-request.ts';
import type { Queryable } from '../../../store/store.ts';
import { AnswerHeaders, GatheredHeaders } from '../../answer-headers.ts';
import type { Exchange, StreamWriter } from '../../exchange.ts';
import { JSON_BODY, type Route } from '../../route.ts';
import { CHAT_DESCRIPTION } from './describe.ts';

const EVENT_STREAM = 'text/event-stream; charset=utf-8';
const JSON_TYPE = 'application/json; charset=utf-8';

export function chatCompletionsRoute(parts: ChatParts): Route {
  const make = new AnswerHeaders(parts);
  return {
    method: 'POST',
    path: '/chat/completions',
    auth: 'key-or-wallet',
    about: 'Chat completions',
    body: JSON_BODY,
    sells: 'chat',
    describe: CHAT_DESCRIPTION,
    handle: async (exchange) => {
      const request = parseChatRequest(exchange.body, { serviceName: parts.serviceName });
      const headers = new GatheredHeaders(exchange, make);
      const call = {
        requestId: exchange.requestId,
        caller: exchange.caller,
        request,
        signal: exchange.workSignal,
        receiver: receiverOf(exchange, headers),
        note: (notes: ChatNotes) => Object.assign(exchange.notes, notes),
      };
      await headers.during(() => runChat(parts, call));
    },
  };
}

function receiverOf(exchange: Exchange, headers: GatheredHeaders): ChatReceiver {
  let writer: StreamWriter | undefined;
  const copy = new StreamCopy(exchange.keeper?.maxBytes ?? 0);
  const open = (): StreamWriter => {
    if (writer === undefined) throw new Error('A stream is written before it begins');
    return writer;
  };
  const keep = async (tx: Queryable, facts: AnswerFacts, rest: Buffer): Promise<void> => {
    if (writer === undefined) headers.answered(facts);
    exchange.set('content-type', writer === undefined ? JSON_TYPE : EVENT_STREAM);
    const body = copy.with(rest);
    if (body !== undefined) await exchange.keepAnswer(200, body, tx);
  };
  return {
    resolved: (model, deprecation) => headers.resolved(model, deprecation),
    admitted: (admission, rate) => headers.admitted(admission, rate),
    begin: (facts) => {
      headers.answered(facts);
      exchange.set('cache-control', 'no-cache');
      // Proxies that buffer (nginx) are told not to.
      exchange.set('x-accel-buffering', 'no');
      writer = exchange.stream(200, EVENT_STREAM);
    },
    write: (chunk) => {
      copy.add(chunk);
      return open().write(chunk);
    },
    onDrain: (resume) => open().onDrain(resume),
    end: (last) => open().end(last),
    whole: async (facts, body) => {
      headers.answered(facts);
      await exchange.json(200, body);
    },
    ...(exchange.keeper === undefined ? {} : { keep }),
  };
}

/** What a stream has sent, for the retries of its request; given up above `maxBytes`. */
class StreamCopy {
  readonly #maxBytes: number;
  #chunks: Buffer[] = [];
  #sizeBytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  add(chunk: Buffer): void {
    this.#sizeBytes += chunk.length;
    if (this.#sizeBytes <= this.#maxBytes) this.#chunks.push(chunk);
    else this.#chunks = [];
  }

  /** Everything with its end, or `undefined` when it is too much to keep. */
  with(last: Buffer): Buffer | undefined {
    if (this.#sizeBytes + last.length > this.#maxBytes) return undefined;
    return Buffer.concat([...this.#chunks, last]);
  }
}
