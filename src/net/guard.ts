/**
 * The only way to fetch a URL that a caller supplied. For each hop the URL is parsed, its name
 * resolved once, and every address checked. The connection is made to exactly those addresses, so
 * DNS rebinding has no effect. Redirects are checked the same way. Bytes, time, redirects, open
 * fetches and buffered memory are bounded, in total and per caller.
 *
 * Faults: `UNSAFE_URL`, `FETCH_FAILED`, `PAYLOAD_TOO_LARGE`, `RATE_LIMIT_EXCEEDED`,
 * `SERVICE_UNAVAILABLE`; an abort by the caller rejects with the reason of its signal. Errors never
 * contain resolved addresses.
 */
import { Resolver } from 'node:dns/promises';
import type { LookupFunction } from 'node:net';
import { buildConnector, Client, type Dispatcher } from 'undici';
import { BodyPieces } from '../core/body-pieces.ts';
import { Fault } from '../core/faults.ts';
import { addressRule, type AddressRule } from './guard-address.ts';
import { ACCEPTED_ENCODINGS, drainBody, type Sink, tooLarge } from './guard-body.ts';
import { connectorOf } from './connector.ts';
import { headerText } from './exchange.ts';
import { type GuardedUrl, isLocalName, parseGuardedUrl, unsafe } from './guard-url.ts';

/** Resolves a name to all its addresses; rejects or returns an empty list if it does not exist. */
export type Resolve = (hostname: string) => Promise<readonly string[]>;

export interface GuardOptions {
  /** CIDRs allowed on any port in addition to public addresses; tests use `127.0.0.0/8`. */
  readonly allow?: readonly string[];
  readonly ports?: readonly number[];
  readonly userAgent?: string;
  readonly maxBufferedBytes?: number;
  readonly resolve?: Resolve;
  /** Rejects `http://`, also after a redirect. */
  readonly isHttpsOnly?: boolean;
  /** All connections are tunnels of this proxy. It resolves the names, so only literals are checked. */
  readonly proxy?: string;
}

export interface FetchOptions {
  /** Limit of the body, before and after decompression. */
  readonly maxBytes: number;
  /** Limit of the whole fetch: lookup, redirects and body. */
  readonly timeoutMs: number;
  /** 0 rejects every redirect. */
  readonly maxRedirects: number;
  /** Accepted media types, such as `image/png` or `image/*`; default: any. */
  readonly accept?: readonly string[];
  readonly signal?: AbortSignal;
  /** The account or address of the caller, for its share of open fetches. */
  readonly caller?: string;
}

export interface FetchedHead {
  /** The final URL, after redirects. */
  readonly url: string;
  /** Lowercase, without parameters; empty if the server sent none. */
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
  readonly timeoutMs: number;
  readonly signal?: AbortSignal;
}

/** The web's ports and their usual alternatives; other ports suggest a port scan. */
export const WEB_PORTS = [80, 443, 8080, 8443] as const;

/** Limits: open fetches, bytes held by all of them, name lookup, connect, idle time of a body. */
const MAX_OPEN_FETCHES = 128;
const MAX_BUFFERED_BYTES = 512_000_000;
/**
 * Once this share is taken, the rest is only for callers that have less than the remaining share,
 * because slow fetches can keep their slots for their whole time limit.
 */
const SHARE_FOR_ALL = 3 / 4;
/** Outgoing messages of this server; separate, so that fetches cannot block them. */
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
  readonly connect: buildConnector.connector;
}

interface Hop {
  readonly client: Client;
  readonly response: Dispatcher.ResponseData;
}

interface Landed extends Hop {
  readonly url: URL;
}

type Bounds = Pick<FetchOptions, 'signal' | 'timeoutMs'>;

interface Load {
  fetches: number;
  bytes: number;
}

/** One per process; it keeps no connections and needs no closing. */
export class Guard {
  readonly #rule: AddressRule;
  readonly #ports: ReadonlySet<number>;
  readonly #resolve: Resolve;
  readonly #userAgent: string;
  readonly #maxBufferedBytes: number;
  readonly #isHttpsOnly: boolean;
  readonly #proxy: string | undefined;
  readonly #all: Load = { fetches: 0, bytes: 0 };
  readonly #callers = new Map<string, Load>();
  #openPosts = 0;

  constructor(options: GuardOptions = {}) {
    this.#rule = addressRule(options.allow ?? []);
    this.#ports = new Set(options.ports ?? WEB_PORTS);
    this.#resolve = options.resolve ?? systemResolve();
    this.#userAgent = options.userAgent ?? USER_AGENT;
    this.#maxBufferedBytes = options.maxBufferedBytes ?? MAX_BUFFERED_BYTES;
    this.#isHttpsOnly = options.isHttpsOnly ?? false;
    this.#proxy = options.proxy;
  }

  /** Throws `UNSAFE_URL` unless every address of the URL is public; makes no connection. */
  async check(url: string): Promise<void> {
    await this.#check(url);
  }

  async fetch(url: string, wanted: FetchOptions): Promise<Fetched> {
    const body = new BodyPieces();
    const buffer = (chunk: Buffer): void => {
      body.add(chunk);
      this.#take(wanted.caller, 'bytes', chunk.length);
    };
    try {
      const { url: finalUrl, mediaType, charset } = await this.stream(url, buffer, wanted);
      return { url: finalUrl, mediaType, charset, bytes: await body.joined() };
    } finally {
      this.#count(wanted.caller, 'bytes', -body.sizeBytes);
    }
  }

  /** Writes the body to `sink` piece by piece, waiting for each; resolves when all is written. */
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

  /** Posts a small body and returns the status; follows no redirect and reads no response. */
  async post(url: string, message: PostedMessage): Promise<number> {
    if (this.#openPosts >= MAX_OPEN_POSTS) throw busy();
    this.#openPosts += 1;
    try {
      return await bounded(message, async (signal) => {
        const target = await untilAborted(this.#check(url), signal);
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
   * Counts for all and for the caller, and throws if a limit is exceeded; the rejected amount stays
   * counted until it is released. Bytes are limited by bytes alone, so that a running fetch does
   * not fail because others start.
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

  /** Returns the new count of the caller; a negative `amount` releases. */
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
      const target = await untilAborted(this.#check(next), signal);
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

  /** Throws unless every address is public on a web port, or allowed by the operator. */
  async #check(text: string): Promise<Checked> {
    const target = parseGuardedUrl(text);
    if (this.#isHttpsOnly && target.url.protocol !== 'https:') {
      throw unsafe('The URL must start with https://');
    }
    const { hostname, isLiteral } = target;
    const isTunnelled = this.#proxy !== undefined && !isLiteral && !isLocalName(hostname);
    const addresses = isLiteral || isTunnelled ? [hostname] : await lookUp(this.#resolve, hostname);
    const results = isTunnelled ? ['public'] : addresses.map(this.#rule);
    if (results.length === 0 || results.includes('refused')) throw unsafe(NOT_PUBLIC);
    if (results.includes('public') && !this.#ports.has(target.port)) {
      throw unsafe(`The port of the URL must be one of ${[...this.#ports].join(', ')}`);
    }
    const connect =
      this.#proxy === undefined
        ? pinnedConnector(addresses)
        : connectorOf({ proxy: this.#proxy }, CONNECT_TIMEOUT_MS, null);
    return { ...target, connect };
  }
}

/** Runs a call within its time limit; converts internal errors into public faults. */
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
      ? `The URL did not send a complete response within ${Math.ceil(wanted.timeoutMs / 1000)} seconds`
      : 'The URL could not be fetched';
    throw new Fault('FETCH_FAILED', { message, cause: error });
  }
}

async function lookUp(resolve: Resolve, hostname: string): Promise<readonly string[]> {
  if (isLocalName(hostname)) return ['127.0.0.1', '::1'];
  try {
    return (await resolve(hostname)).slice(0, MAX_ADDRESSES);
  } catch {
    // A missing name and an internal name get the same response, so that names cannot be probed.
    return [];
  }
}

/**
 * Queries the name servers on sockets of its own. `dns.lookup` would use the thread pool that also
 * flushes the ledger, and a slow name server could block all of its threads.
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
    connect: target.connect,
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
    await client.destroy(); // this connection is used here only
    throw error;
  }
}

/** Connects to the checked addresses only, and checks the connected address again. */
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
    throw new Fault('FETCH_FAILED', { message: `The URL responded with ${response.statusCode}` });
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

/** Storage services often send no type; the caller detects it from the bytes. */
function isWelcome(mediaType: string, accept: readonly string[]): boolean {
  if (mediaType === '' || mediaType === 'application/octet-stream') return true;
  if (mediaType === 'binary/octet-stream') return true;
  return accept.some((type) =>
    type.endsWith('/*') ? mediaType.startsWith(type.slice(0, -1)) : type === mediaType,
  );
}

function absolute(location: string, base: URL): string {
  // An absolute target keeps its spelling, so that a numeric host is validated as written.
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
    message: 'Too many fetches of this caller are running; wait until some have ended',
    retryAfterSeconds: RETRY_SECONDS,
  });
}
