/**
 * The only way to fetch a URL that a caller supplied. Each hop is parsed, its name resolved once,
 * every address judged, and the connection made to exactly those addresses: a second answer of the
 * name server is never asked for. Redirects are judged the same way. Bytes, time, redirects, open
 * fetches and buffered memory are bounded, and what one caller may have of them.
 *
 * Faults: `UNSAFE_URL`, `FETCH_FAILED`, `PAYLOAD_TOO_LARGE`, `RATE_LIMIT_EXCEEDED`,
 * `SERVICE_UNAVAILABLE`; an abort of the caller rejects with the reason of its signal. None says what a name resolved to.
 */
import { Resolver } from 'node:dns/promises';
import type { LookupFunction } from 'node:net';
import { buildConnector, Client, type Dispatcher } from 'undici';
import { Fault } from '../core/faults.ts';
import { addressRule, type AddressRule } from './guard-address.ts';
import { ACCEPTED_ENCODINGS, drainBody, type Sink, tooLarge } from './guard-body.ts';
import { headerText } from './exchange.ts';
import { type GuardedUrl, parseGuardedUrl, unsafe } from './guard-url.ts';

/** Every address of a name, as text; rejects or gives none when the name does not exist. */
export type Resolve = (hostname: string) => Promise<readonly string[]>;

export interface GuardOptions {
  /** CIDRs beyond public addresses, on any port; tests open `127.0.0.0/8` here. */
  readonly allow?: readonly string[];
  readonly ports?: readonly number[];
  readonly userAgent?: string;
  readonly maxBufferedBytes?: number;
  /** For tests; the system's name servers otherwise. */
  readonly resolve?: Resolve;
}

export interface FetchOptions {
  /** Bound of the body, before and after decompression. */
  readonly maxBytes: number;
  /** Bound of the whole fetch: lookup, redirects and body. */
  readonly timeoutMs: number;
  /** 0 refuses every redirect. */
  readonly maxRedirects: number;
  /** Media types that are welcome: `image/png`, `image/*`; anything when absent. */
  readonly accept?: readonly string[];
  readonly signal?: AbortSignal;
  /** The account or address that asks: what it has open does not shut out others. */
  readonly caller?: string;
}

export interface FetchedHead {
  /** The URL that answered, after redirects. */
  readonly url: string;
  /** Lowercase, without parameters; empty when the server named none. */
  readonly mediaType: string;
  readonly charset: string | undefined;
}

export interface Fetched extends FetchedHead {
  readonly bytes: Buffer;
}

export interface StreamedHead extends FetchedHead {
  readonly sizeBytes: number;
}

export interface PostedMessage {
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  /** Bound of the whole call. */
  readonly timeoutMs: number;
  readonly signal?: AbortSignal;
}

/** The web's ports and their usual alternatives; anything else is more often a probe than a page. */
export const WEB_PORTS = [80, 443, 8080, 8443] as const;

/** Own bounds: open fetches, bytes held by all of them, name lookup, connect, silence of a body. */
const MAX_OPEN_FETCHES = 128;
const MAX_BUFFERED_BYTES = 512_000_000;
/**
 * A fetch can be slow for as long as its time limit: what is left when so much is taken is for
 * callers that have less than the rest of it.
 */
const SHARE_FOR_ALL = 3 / 4;
/** Messages of our own, which no fetch shuts out. */
const MAX_OPEN_POSTS = 128;
const LOOKUP_TIMEOUT_MS = 3_000;
const CONNECT_TIMEOUT_MS = 5_000;
const IDLE_TIMEOUT_MS = 15_000;
const MAX_HEADER_BYTES = 32 * 1024;
const MAX_ADDRESSES = 64;

const USER_AGENT = 'Mozilla/5.0 (compatible; Farebox/0.1)';
const NOT_PUBLIC = 'The URL does not lead to a public address';
const REDIRECTS = new Set([301, 302, 303, 307, 308]);

interface Checked extends GuardedUrl {
  readonly addresses: readonly string[];
}

interface Hop {
  readonly client: Client;
  readonly response: Dispatcher.ResponseData;
}

interface Landed extends Hop {
  readonly url: URL;
}

type Bounds = Pick<FetchOptions, 'signal' | 'timeoutMs'>;

/** What is open and held, of a caller or of all. */
interface Load {
  fetches: number;
  bytes: number;
}

/** One for a process; it keeps no connection and needs no closing. */
export class Guard {
  readonly #rule: AddressRule;
  readonly #ports: ReadonlySet<number>;
  readonly #resolve: Resolve;
  readonly #userAgent: string;
  readonly #maxBufferedBytes: number;
  readonly #all: Load = { fetches: 0, bytes: 0 };
  readonly #callers = new Map<string, Load>();
  #openPosts = 0;

  constructor(options: GuardOptions = {}) {
    this.#rule = addressRule(options.allow ?? []);
    this.#ports = new Set(options.ports ?? WEB_PORTS);
    this.#resolve = options.resolve ?? systemResolve();
    this.#userAgent = options.userAgent ?? USER_AGENT;
    this.#maxBufferedBytes = options.maxBufferedBytes ?? MAX_BUFFERED_BYTES;
  }

  /** Throws `UNSAFE_URL` unless every address of the URL is public; connects to nothing. */
  async check(url: string): Promise<void> {
    await this.#judge(url);
  }

  /** Fetches the body into memory. */
  async fetch(url: string, wanted: FetchOptions): Promise<Fetched> {
    const chunks: Buffer[] = [];
    let heldBytes = 0;
    const hold = (chunk: Buffer): void => {
      heldBytes += chunk.length;
      this.#take(wanted.caller, 'bytes', chunk.length);
      chunks.push(chunk);
    };
    try {
      const { url: finalUrl, mediaType, charset } = await this.stream(url, hold, wanted);
      return { url: finalUrl, mediaType, charset, bytes: Buffer.concat(chunks) };
    } finally {
      this.#count(wanted.caller, 'bytes', -heldBytes);
    }
  }

  /** Feeds the body to `sink` piece by piece, waiting for it; resolves when all is taken. */
  async stream(url: string, sink: Sink, wanted: FetchOptions): Promise<StreamedHead> {
    try {
      this.#take(wanted.caller, 'fetches', 1);
      return await this.#stream(url, sink, wanted);
    } finally {
      this.#count(wanted.caller, 'fetches', -1);
    }
  }

  #stream(url: string, sink: Sink, wanted: FetchOptions): Promise<StreamedHead> {
    const { maxBytes } = wanted;
    return bounded(wanted, async (signal) => {
      const hop = await this.#follow(url, wanted, signal);
      const take = async (): Promise<StreamedHead> => {
        const head = readHead(hop.response, hop.url, wanted);
        const encoding = headerText(hop.response.headers, 'content-encoding');
        const sizeBytes = await drainBody(hop.response.body, encoding, sink, { maxBytes, signal });
        return { ...head, sizeBytes };
      };
      try {
        return await take();
      } finally {
        await hop.client.destroy();
      }
    });
  }

  /** Posts a small body and gives the status; follows no redirect and reads no answer. */
  async post(url: string, message: PostedMessage): Promise<number> {
    if (this.#openPosts >= MAX_OPEN_POSTS) throw busy();
    this.#openPosts += 1;
    try {
      return await bounded(message, async (signal) => {
        const target = await untilAborted(this.#judge(url), signal);
        const headers = { 'user-agent': this.#userAgent, ...message.headers };
        const { client, response } = await request(target, headers, signal, message.body);
        await client.destroy();
        return response.statusCode;
      });
    } finally {
      this.#openPosts -= 1;
    }
  }

  /**
   * Counts for all and for the caller; what is refused is counted too, until it is given back.
   * Bytes are measured by bytes alone: a fetch that has begun does not end because others begin.
   */
  #take(caller: string | undefined, kind: keyof Load, amount: number): void {
    const most = kind === 'fetches' ? MAX_OPEN_FETCHES : this.#maxBufferedBytes;
    const own = this.#count(caller, kind, amount);
    const all = this.#all[kind];
    if (all > most) throw busy();
    if (own !== undefined && all > most * SHARE_FOR_ALL && own > most * (1 - SHARE_FOR_ALL)) {
      throw tooMany();
    }
  }

  /** What the caller has then; less than nothing is taken to give back. */
  #count(caller: string | undefined, kind: keyof Load, amount: number): number | undefined {
    this.#all[kind] += amount;
    if (caller === undefined) return undefined;
    const own = this.#callers.get(caller) ?? { fetches: 0, bytes: 0 };
    own[kind] += amount;
    if (own.fetches + own.bytes > 0) this.#callers.set(caller, own);
    else this.#callers.delete(caller);
    return own[kind];
  }

  async #follow(url: string, wanted: FetchOptions, signal: AbortSignal): Promise<Landed> {
    let next = url;
    for (let hops = 0; ; hops++) {
      const target = await untilAborted(this.#judge(next), signal);
      const hop = await request(target, headersFor(wanted, this.#userAgent), signal);
      const { response } = hop;
      const isRedirect = REDIRECTS.has(response.statusCode);
      const location = isRedirect ? headerText(response.headers, 'location') : undefined;
      if (location === undefined) return { ...hop, url: target.url };
      await hop.client.destroy();
      const { maxRedirects } = wanted;
      if (hops >= maxRedirects) {
        const message =
          maxRedirects === 0
            ? 'The URL redirects; give the final address'
            : `The URL redirects more than ${maxRedirects} times`;
        throw new Fault('FETCH_FAILED', { message });
      }
      next = absolute(location, target.url);
    }
  }

  /** Refuses unless every address is public on a web port, or opened by the operator. */
  async #judge(text: string): Promise<Checked> {
    const target = parseGuardedUrl(text);
    const addresses = target.isLiteral
      ? [target.hostname]
      : await lookUp(this.#resolve, target.hostname);
    const verdicts = addresses.map(this.#rule);
    if (verdicts.length === 0 || verdicts.includes('refused')) throw unsafe(NOT_PUBLIC);
    if (verdicts.includes('public') && !this.#ports.has(target.port)) {
      throw unsafe(`The port of the URL must be one of ${[...this.#ports].join(', ')}`);
    }
    return { ...target, addresses };
  }
}

/** Runs a call within its time; what fails inside becomes one of the public faults. */
async function bounded<T>(wanted: Bounds, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const timeout = AbortSignal.timeout(wanted.timeoutMs);
  const signal = wanted.signal === undefined ? timeout : AbortSignal.any([timeout, wanted.signal]);
  try {
    signal.throwIfAborted();
    return await work(signal);
  } catch (error) {
    if (error instanceof Fault) throw error;
    if (wanted.signal?.aborted === true) throw wanted.signal.reason;
    const message = timeout.aborted
      ? `The URL did not answer in full within ${Math.ceil(wanted.timeoutMs / 1000)} seconds`
      : 'The URL could not be fetched';
    throw new Fault('FETCH_FAILED', { message, cause: error });
  }
}

async function lookUp(resolve: Resolve, hostname: string): Promise<readonly string[]> {
  if (hostname === 'localhost' || hostname.endsWith('.localhost')) return ['127.0.0.1', '::1'];
  try {
    return (await resolve(hostname)).slice(0, MAX_ADDRESSES);
  } catch {
    // A name that does not exist and a name of the inside get the same answer: no oracle.
    return [];
  }
}

/**
 * Asks the name servers over sockets of its own. `dns.lookup` would take a thread of the pool that
 * also flushes the ledger, and a slow name server could hold all of them.
 */
function systemResolve(): Resolve {
  const resolver = new Resolver({ timeout: LOOKUP_TIMEOUT_MS, tries: 2 });
  return async (hostname) => {
    const answers = await Promise.allSettled([
      resolver.resolve4(hostname),
      resolver.resolve6(hostname),
    ]);
    return answers.flatMap((answer) => (answer.status === 'fulfilled' ? answer.value : []));
  };
}

async function request(
  target: Checked,
  headers: Record<string, string>,
  signal: AbortSignal,
  body?: string,
): Promise<Hop> {
  const client = new Client(target.url.origin, {
    connect: pinnedConnector(target.addresses),
    headersTimeout: IDLE_TIMEOUT_MS,
    bodyTimeout: IDLE_TIMEOUT_MS,
    maxHeaderSize: MAX_HEADER_BYTES,
    keepAliveTimeout: 1,
    pipelining: 1,
    allowH2: false,
  });
  try {
    const path = `${target.url.pathname}${target.url.search}`;
    const sent =
      body === undefined ? { method: 'GET' as const } : { method: 'POST' as const, body };
    const response = await client.request({ ...sent, path, headers, signal });
    return { client, response };
  } catch (error) {
    await client.destroy(); // nobody else knows of this connection
    throw error;
  }
}

/** Connects to the checked addresses and nowhere else, and looks again at what it got. */
function pinnedConnector(addresses: readonly string[]): buildConnector.connector {
  const records = addresses.map((address) => ({ address, family: address.includes(':') ? 6 : 4 }));
  const lookup: LookupFunction = (_hostname, options, done) => {
    const first = records[0];
    if (options.all === true) done(null, records);
    else if (first !== undefined) done(null, first.address, first.family);
    else done(new Error('No address'), '', 0);
  };
  const connect = buildConnector({ timeout: CONNECT_TIMEOUT_MS, lookup, allowH2: false });
  return (options, done) => {
    connect(options, (...result) => {
      const [error, socket] = result;
      if (error === null && !addresses.includes(socket.remoteAddress ?? '')) {
        socket.destroy();
        done(new Error('Connected to an address that was not checked'), null);
        return;
      }
      done(...result);
    });
  };
}

function headersFor(wanted: FetchOptions, userAgent: string): Record<string, string> {
  return {
    accept: wanted.accept === undefined ? '*/*' : [...wanted.accept, '*/*;q=0.1'].join(', '),
    'accept-encoding': ACCEPTED_ENCODINGS,
    'user-agent': userAgent,
  };
}

function readHead(response: Dispatcher.ResponseData, url: URL, wanted: FetchOptions): FetchedHead {
  if (response.statusCode !== 200) {
    throw new Fault('FETCH_FAILED', { message: `The URL answered with ${response.statusCode}` });
  }
  if (Number(headerText(response.headers, 'content-length') ?? 0) > wanted.maxBytes) {
    throw tooLarge(wanted.maxBytes);
  }
  const contentType = headerText(response.headers, 'content-type') ?? '';
  const mediaType = /^[\w!#$&^.+-]+\/[\w!#$&^.+-]+/.exec(contentType)?.[0].toLowerCase() ?? '';
  if (wanted.accept !== undefined && !isWelcome(mediaType, wanted.accept)) {
    throw new Fault('FETCH_FAILED', {
      message: `The URL gives ${mediaType || 'no media type'}, expected ${wanted.accept.join(', ')}`,
    });
  }
  const charset = /charset\s{0,9}=\s{0,9}"?([\w.:-]{1,40})/i.exec(contentType)?.[1]?.toLowerCase();
  return { url: url.href, mediaType, charset };
}

/** Storage services often name no type at all; the bytes are sniffed by whoever asked. */
function isWelcome(mediaType: string, accept: readonly string[]): boolean {
  if (mediaType === '' || mediaType === 'application/octet-stream') return true;
  if (mediaType === 'binary/octet-stream') return true;
  return accept.some((type) =>
    type.endsWith('/*') ? mediaType.startsWith(type.slice(0, -1)) : type === mediaType,
  );
}

function absolute(location: string, base: URL): string {
  // An absolute target keeps its spelling, so that a numeric host is judged as it was written.
  if (/^[a-z][a-z\d+.-]*:/i.test(location)) return location;
  if (!URL.canParse(location, base)) throw unsafe('The URL redirects to something that is no URL');
  if (location.startsWith('//')) return `${base.protocol}${location}`;
  return new URL(location, base).href;
}

async function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  signal.throwIfAborted();
  let stop: (() => void) | undefined;
  const aborted = new Promise<never>((_resolve, reject) => {
    stop = () => reject(signal.reason as Error); // an AbortSignal of ours always carries an Error
    signal.addEventListener('abort', stop, { once: true });
  });
  try {
    return await Promise.race([work, aborted]);
  } finally {
    if (stop !== undefined) signal.removeEventListener('abort', stop);
  }
}

const RETRY_SECONDS = 5;

function busy(): Fault {
  return new Fault('SERVICE_UNAVAILABLE', {
    message: 'Too many fetches are running',
    retryAfterSeconds: RETRY_SECONDS,
  });
}

function tooMany(): Fault {
  return new Fault('RATE_LIMIT_EXCEEDED', {
    message: 'Too much is being fetched for this caller; wait until some of it has come',
    retryAfterSeconds: RETRY_SECONDS,
  });
}
