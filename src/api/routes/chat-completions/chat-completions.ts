/** `POST /chat/completions`: parses the body, runs the chat flow, and gives its answer headers. */
import type { CatalogModel, DeprecationNotice } from '../../../catalog/catalog.ts';
import type { AnswerFacts } from '../../../flows/answer-facts.ts';
import type { Admission, RateRule } from '../../../flows/charge.ts';
import {
  type ChatNotes,
  type ChatParts,
  type ChatReceiver,
  runChat,
} from '../../../flows/chat/chat.ts';
import { parseChatRequest } from '../../../wire/chat-request.ts';
import type { Queryable } from '../../../store/store.ts';
import { AnswerHeaders, GatheredHeaders } from '../../answer-headers.ts';
import type { Exchange } from '../../exchange.ts';
import { LARGE_BODY_BYTES, type LargeBodies } from '../../large-bodies.ts';
import { JSON_BODY, type Route } from '../../route.ts';
import type { StreamWriter } from '../../stream-writer.ts';
import { CHAT_DESCRIPTION } from './describe.ts';

const EVENT_STREAM = 'text/event-stream; charset=utf-8';
const JSON_TYPE = 'application/json; charset=utf-8';

export function chatCompletionsRoute(parts: ChatParts, largeBodies: LargeBodies): Route {
  const make = new AnswerHeaders(parts);
  const options = { serviceName: parts.serviceName };
  return {
    method: 'POST',
    path: '/chat/completions',
    auth: 'key-or-wallet',
    about: 'Chat completions',
    body: JSON_BODY,
    sells: 'chat',
    describe: CHAT_DESCRIPTION,
    handle: async (exchange) => {
      const { body } = exchange;
      const request =
        body.length < LARGE_BODY_BYTES
          ? parseChatRequest(body, options)
          : await largeBodies.chat(body, options);
      const headers = new GatheredHeaders(exchange, make);
      const call = {
        requestId: exchange.requestId,
        caller: exchange.caller,
        request,
        signal: exchange.workSignal,
        receiver: new ExchangeReceiver(exchange, headers),
        note: (notes: ChatNotes) => Object.assign(exchange.notes, notes),
      };
      await headers.during(() => runChat(parts, call));
    },
  };
}

/** Gives the answer of one chat to its exchange. */
class ExchangeReceiver implements ChatReceiver {
  readonly #exchange: Exchange;
  readonly #headers: GatheredHeaders;
  #copy: StreamCopy | undefined;
  #writer: StreamWriter | undefined;

  constructor(exchange: Exchange, headers: GatheredHeaders) {
    this.#exchange = exchange;
    this.#headers = headers;
    if (exchange.keeper !== undefined) this.#copy = new StreamCopy(exchange.keeper.maxBytes);
  }

  get isKept(): boolean {
    return this.#copy !== undefined;
  }

  resolved(model: CatalogModel, deprecation: DeprecationNotice | undefined): void {
    this.#headers.resolved(model, deprecation);
  }

  admitted(admission: Admission, rate: RateRule): void {
    this.#headers.admitted(admission, rate);
  }

  async keep(tx: Queryable, facts: AnswerFacts, rest: Buffer): Promise<void> {
    const exchange = this.#exchange;
    const isStream = this.#writer !== undefined;
    if (!isStream) this.#headers.answered(facts);
    exchange.set('content-type', isStream ? EVENT_STREAM : JSON_TYPE);
    await exchange.keepAnswer(200, this.#copy?.with(rest), tx);
  }

  begin(facts: AnswerFacts): void {
    const exchange = this.#exchange;
    this.#headers.answered(facts);
    exchange.set('cache-control', 'no-cache');
    // Proxies that buffer (nginx) are told not to.
    exchange.set('x-accel-buffering', 'no');
    this.#writer = exchange.stream(200, EVENT_STREAM);
  }

  write(chunk: Buffer): boolean {
    this.#copy?.add(chunk);
    return this.#stream.write(chunk);
  }

  onDrain(resume: () => void): void {
    this.#stream.onDrain(resume);
  }

  end(last: Buffer): void {
    this.#stream.end(last);
  }

  whole(facts: AnswerFacts, body: Buffer): Promise<void> {
    this.#headers.answered(facts);
    return this.#exchange.json(200, body);
  }

  get #stream(): StreamWriter {
    if (this.#writer === undefined) throw new Error('A stream is written before it begins');
    return this.#writer;
  }
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
