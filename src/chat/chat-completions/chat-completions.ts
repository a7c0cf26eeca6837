/** `POST /chat/completions`: parses the body, runs the chat flow, and gives its answer headers. */
import type { CatalogModel, DeprecationNotice } from '../../catalog/catalog.ts';
import type { AnswerFacts } from '../../http/answer-facts.ts';
import type { Admission, RateRule } from '../../billing/sale.ts';
import { type ChatNotes, type ChatParts, type ChatReceiver, runChat } from '../chat.ts';
import {
  type ChatRequest,
  type ChatRequestOptions,
  parseChatRequest,
} from '../wire/chat-request.ts';
import type { Queryable } from '../../db/db.ts';
import { AnswerHeaders, GatheredHeaders } from '../../http/answer-headers.ts';
import type { RequestContext } from '../../http/request-context.ts';
import { LARGE_BODY_BYTES } from '../../http/json-body.ts';
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
  readonly #context: RequestContext;
  readonly #headers: GatheredHeaders;
  #copy: StreamCopy | undefined;
  #writer: StreamWriter | undefined;

  constructor(context: RequestContext, headers: GatheredHeaders) {
    this.#context = context;
    this.#headers = headers;
    if (context.keeper !== undefined) this.#copy = new StreamCopy(context.keeper.maxBytes);
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
    const context = this.#context;
    const isStream = this.#writer !== undefined;
    if (!isStream) this.#headers.answered(facts);
    context.set('content-type', isStream ? EVENT_STREAM : JSON_TYPE);
    await context.keepAnswer(200, this.#copy?.with(rest), tx);
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

  whole(facts: AnswerFacts, body: Buffer): Promise<void> {
    this.#headers.answered(facts);
    return this.#context.json(200, body);
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
