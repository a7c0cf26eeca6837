/** `POST /chat/completions`: parses the body, runs the chat flow, and gives its answer headers. */
import type { CatalogModel, DeprecationNotice } from '../../catalog/catalog.ts';
import type { AnswerFacts } from '../../http/answer-facts.ts';
import { MAX_STORED_BYTES } from '../../billing/idempotency/idempotency.ts';
import type { AnswerKeeper, RateRule, Sale, SoldAnswer } from '../../billing/sale.ts';
import {
  type ChatNotes,
  type ChatParts,
  type ChatReceiver,
  type WholeAnswer,
  runChat,
} from '../chat.ts';
import {
  type ChatRequest,
  type ChatRequestOptions,
  parseChatRequest,
} from '../wire/chat-request.ts';
import { AnswerHeaders, GatheredHeaders } from '../../http/answer-headers.ts';
import type { RequestContext } from '../../http/request-context.ts';
import { LARGE_BODY_BYTES } from '../../http/read-request.ts';
import { JSON_BODY, type Route } from '../../http/route.ts';
import type { StreamWriter } from '../../http/stream-writer.ts';
import { CHAT_DESCRIPTION } from './schema.ts';

const EVENT_STREAM = 'text/event-stream; charset=utf-8';
const JSON_TYPE = 'application/json; charset=utf-8';

/** `parseChatRequest` for a body that would hold up the event loop. */
export type ReadLargeChat = (body: Buffer, options: ChatRequestOptions) => Promise<ChatRequest>;

export function chatCompletionsRoute(parts: ChatParts, readLarge: ReadLargeChat): Route {
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
    handle: async (context) => {
      const { body } = context;
      const request =
        body.length < LARGE_BODY_BYTES
          ? parseChatRequest(body, options)
          : await readLarge(body, options);
      const headers = new GatheredHeaders(context, make);
      const call = {
        requestId: context.requestId,
        caller: context.caller,
        request,
        signal: context.workSignal,
        receiver: new ExchangeReceiver(context, headers),
        note: (notes: ChatNotes) => Object.assign(context.notes, notes),
      };
      await headers.during(() => runChat(parts, call));
    },
  };
}

/** Gives the answer of one chat to its context. */
class ExchangeReceiver implements ChatReceiver {
  readonly keeper: AnswerKeeper | undefined;
  readonly #context: RequestContext;
  readonly #headers: GatheredHeaders;
  #copy: StreamCopy | undefined;
  #writer: StreamWriter | undefined;

  constructor(context: RequestContext, headers: GatheredHeaders) {
    this.#context = context;
    this.#headers = headers;
    this.keeper = context.keeper;
    if (this.keeper !== undefined) this.#copy = new StreamCopy();
  }

  resolved(model: CatalogModel, deprecation: DeprecationNotice | undefined): void {
    this.#headers.resolved(model, deprecation);
  }

  admitted(admission: Sale, rate: RateRule): void {
    this.#headers.admitted(admission, rate);
  }

  sent(lastChunk: Buffer): SoldAnswer {
    return { type: EVENT_STREAM, body: this.#copy?.with(lastChunk) };
  }

  begin(facts: AnswerFacts): void {
    const context = this.#context;
    this.#headers.answered(facts);
    context.set('cache-control', 'no-cache');
    // Proxies that buffer (nginx) are told not to.
    context.set('x-accel-buffering', 'no');
    this.#writer = context.stream(200, EVENT_STREAM);
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

  answered(facts: AnswerFacts, body: Buffer): WholeAnswer {
    this.#headers.answered(facts);
    return { type: JSON_TYPE, body };
  }

  whole({ type, body }: WholeAnswer): Promise<void> {
    return this.#context.bytes(200, type, body);
  }

  get #stream(): StreamWriter {
    if (this.#writer === undefined) throw new Error('A stream is written before it begins');
    return this.#writer;
  }
}

/** What a stream has sent, for the retries of its request; given up above what is kept. */
class StreamCopy {
  #chunks: Buffer[] = [];
  #sizeBytes = 0;

  add(chunk: Buffer): void {
    this.#sizeBytes += chunk.length;
    if (this.#sizeBytes <= MAX_STORED_BYTES) this.#chunks.push(chunk);
    else this.#chunks = [];
  }

  /** Everything with its end, or `undefined` when it is too much to keep. */
  with(last: Buffer): Buffer | undefined {
    if (this.#sizeBytes + last.length > MAX_STORED_BYTES) return undefined;
    return Buffer.concat([...this.#chunks, last]);
  }
}
