/** Emulations of the wires of model providers: one file of data per provider. */
import { type AwsAccount, awsEvent } from './aws-wire.ts';
import { readdirSync, readFileSync } from 'node:fs';
import { type IncomingMessage, type ServerResponse, createServer } from 'node:http';
import { buffer } from 'node:stream/consumers';
import { endServer, listen } from './loopback.ts';

export interface Reply {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly type?: string;
  readonly body?: unknown;
  /** Instead of `body`. */
  readonly text?: string;
  readonly base64?: string;
  /** Types and payloads of an event stream of AWS. */
  readonly awsEvents?: readonly (readonly [type: string, payload: unknown])[];
}

export interface WireCase {
  readonly name: string;
  readonly method?: string;
  readonly path: string;
  readonly body?: unknown;
  /** A form instead of `body`; the member `file` is base64. */
  readonly form?: Readonly<Record<string, string>>;
  /** Path and members of the first request that the provider receives. */
  readonly sends?: { readonly path?: string; readonly body?: unknown };
  /** Request headers, if they are others than those of the wire. */
  readonly authorization?: Readonly<Record<string, string>>;
  /** The response of the provider, or its responses in turn. */
  readonly replies?: Reply | readonly Reply[];
  readonly returns: {
    readonly status: number;
    readonly body?: unknown;
    readonly base64?: string;
    readonly retryAfter?: string;
    readonly meaning?: string;
    readonly stream?: Readonly<Record<string, unknown>>;
  };
}

export interface Wire {
  readonly provider: string;
  /** Path of the base URL of the emulation. */
  readonly baseURL: string;
  readonly apiKey?: string;
  /** Headers of every request, except downloads from `/files/`. */
  readonly authorization: Readonly<Record<string, string>>;
  readonly settings?: Readonly<Record<string, unknown>>;
  /** The account whose signature (SigV4) every request has. */
  readonly signature?: AwsAccount;
  /** Requests have a token of a service account of Google. */
  readonly usesGoogleToken?: boolean;
  readonly cases: readonly WireCase[];
}

const FOLDER = new URL('../fixtures/provider-wires/', import.meta.url);

export const WIRES = readdirSync(FOLDER).map((file): readonly [name: string, wire: Wire] => {
  const wire = JSON.parse(readFileSync(new URL(file, FOLDER), 'utf8')) as Wire; // our own file
  return [file.replace('.json', ''), wire];
});

export interface ReceivedRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: Buffer;
}

/** A provider on loopback, with responses of the test. `{origin}` in a reply is its own address. */
export class EmulatedProvider {
  readonly requests: ReceivedRequest[] = [];
  replies: Reply[] = [];
  /** Handles a request instead of the replies if it returns `true`. */
  handle: (request: ReceivedRequest, response: ServerResponse) => boolean = () => false;
  url = '';
  readonly #server = createServer((raw, response) => void this.#serve(raw, response));

  static async open(): Promise<EmulatedProvider> {
    const provider = new EmulatedProvider();
    provider.url = `http://127.0.0.1:${await listen(provider.#server)}`;
    return provider;
  }

  close(): Promise<void> {
    return endServer(this.#server);
  }

  async #serve(raw: IncomingMessage, response: ServerResponse): Promise<void> {
    const { method = '', url: path = '', headers } = raw;
    const request = { method, path, headers, body: await buffer(raw) };
    this.requests.push(request);
    if (this.handle(request, response)) return;
    const reply = this.replies.shift() ?? { status: 500, text: 'No reply is left' };
    const { status, type = 'application/json', text, base64, awsEvents } = reply;
    const json = (text ?? JSON.stringify(reply.body ?? null)).replaceAll('{origin}', this.url);
    let bytes = base64 === undefined ? Buffer.from(json) : Buffer.from(base64, 'base64');
    if (awsEvents !== undefined) bytes = Buffer.concat(awsEvents.map(awsEvent));
    response.writeHead(status, { 'content-type': type, ...reply.headers }).end(bytes);
  }
}

/** Reads the chunks of a streamed chat completion. */
export function readChunks(text: string): Readonly<Record<string, unknown>> {
  const events = text.split('\n\n').filter((event) => event.startsWith('data: '));
  if (events.pop() !== 'data: [DONE]') throw new Error('The stream has no end');
  const made = { content: '', reasoning: '', details: [] as unknown[] };
  const calls: { id?: unknown; name: string; arguments: string; signature?: unknown }[] = [];
  let finish: unknown;
  let usage: unknown;
  for (const event of events) {
    const chunk = JSON.parse(event.slice('data: '.length));
    usage = chunk.usage ?? usage;
    for (const { delta, finish_reason: reason } of chunk.choices) {
      finish = reason ?? finish;
      made.content += delta.content ?? '';
      made.reasoning += delta.reasoning_content ?? '';
      made.details.push(...(delta.reasoning_details ?? []));
      for (const piece of delta.tool_calls ?? []) {
        const call = (calls[piece.index] ??= { id: piece.id, name: '', arguments: '' });
        call.name += piece.function?.name ?? '';
        call.arguments += piece.function?.arguments ?? '';
        const signature = piece.extra_content?.google.thought_signature;
        if (signature !== undefined) call.signature = signature;
      }
    }
  }
  return { ...made, calls, finish, usage };
}
