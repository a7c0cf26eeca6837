/**
 * Downloads the files whose URLs a provider returns. URLs at the base URL of the engine are those of
 * the operator; any other URL must be https and lead to a public address, also after a redirect.
 * Bytes, time and redirects are bounded.
 */
import { Fault } from '../../src/core/faults.ts';
import { Guard } from '../../src/net/guard.ts';
import { ProviderFailure } from './failure.ts';

/** As the limit of videos in the server. */
const MAX_BYTES = 2_000_000_000;
/** The file is in memory. */
const MAX_FETCHED_BYTES = 100_000_000;
const TIMEOUT_MS = 600_000;
const MAX_REDIRECTS = 5;
const REDIRECTS = [301, 302, 303, 307, 308];

type Sink = (chunk: Buffer) => void | Promise<void>;

export class Downloads {
  /** Empty if the package uses the public hosts of the provider. */
  readonly #ownOrigin: string;
  readonly #guard: Guard;

  constructor(baseURL: unknown, proxy: string | undefined) {
    this.#ownOrigin = (typeof baseURL === 'string' && URL.parse(baseURL)?.origin) || '';
    this.#guard = new Guard({ isHttpsOnly: true, ...(proxy && { proxy }) });
  }

  /** Passes the file to `sink`, and waits for it after each piece. */
  async stream(url: string, sink: Sink, signal: AbortSignal, maxBytes = MAX_BYTES): Promise<void> {
    const limits = { maxBytes, timeoutMs: TIMEOUT_MS, signal };
    try {
      const next =
        URL.parse(url)?.origin === this.#ownOrigin ? await fetchOwn(url, sink, limits) : url;
      if (next === undefined) return;
      await this.#guard.stream(next, sink, { ...limits, maxRedirects: MAX_REDIRECTS });
    } catch (error) {
      signal.throwIfAborted();
      if (!(error instanceof Fault)) throw error;
      const message = `The provider returned a file that cannot be downloaded: ${error.message}`;
      throw new ProviderFailure(502, message);
    }
  }

  async fetch(url: string, signal: AbortSignal): Promise<Buffer<ArrayBuffer>> {
    const chunks: Buffer[] = [];
    await this.stream(url, (chunk) => void chunks.push(chunk), signal, MAX_FETCHED_BYTES);
    return Buffer.concat(chunks);
  }
}

interface Limits {
  readonly maxBytes: number;
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

/** Returns the URL of a redirect. */
async function fetchOwn(url: string, sink: Sink, limits: Limits): Promise<string | undefined> {
  const signal = AbortSignal.any([limits.signal, AbortSignal.timeout(limits.timeoutMs)]);
  let next = url;
  for (let hops = 0; hops <= MAX_REDIRECTS; hops++) {
    const found = await fetch(next, { signal, redirect: 'manual' });
    const location = REDIRECTS.includes(found.status) ? found.headers.get('location') : null;
    if (location === null) return await drain(found, sink, limits.maxBytes);
    await found.body?.cancel();
    const target = URL.parse(location, next);
    if (target?.origin !== new URL(url).origin) return target?.href ?? location;
    next = target.href;
  }
  throw new ProviderFailure(502, `The file URL redirects more than ${MAX_REDIRECTS} times`);
}

async function drain({ status, body }: Response, sink: Sink, maxBytes: number): Promise<undefined> {
  if (status !== 200 || body === null) {
    await body?.cancel();
    const isGone = status === 404 || status === 410;
    throw new ProviderFailure(isGone ? 404 : 502, `The file URL returned ${status}`);
  }
  let sizeBytes = 0;
  for await (const chunk of body) {
    sizeBytes += chunk.length;
    if (sizeBytes > maxBytes) {
      throw new ProviderFailure(502, `The file is larger than ${maxBytes} bytes`);
    }
    await sink(Buffer.from(chunk));
  }
}
