/**
 * Responses that several callers may share: identical pending reads of the head, constants of a
 * chain, and blocks by hash. A shared response is billed like any other.
 *
 * Invariant: only successes are stored, with limits of size and time. A key is the exact method and
 * params as sent. A call with any other member has no key, because some nodes read a network from
 * it. So two calls share a response only if a node could not tell them apart.
 */
import type { RpcSection } from '../config/config.ts';
import type { Clock } from '../core/clock.ts';
import { type Call, hasParams, type ParsedRequest } from './parse-request.ts';
import type { Method } from './catalogue.ts';
import type { ItemResponse } from './classify.ts';

/** Longer params are unlikely to be repeated. */
const MAX_PARAMS_BYTES = 256;
/** Larger results are cheaper to fetch than to store. */
const MAX_RESULT_BYTES = 65_536;
const STATIC_MS = 600_000;
const BY_HASH_MS = 60_000;

interface Kept {
  readonly result: Buffer;
  readonly untilMs: number;
}

type ResponseCacheSettings = Pick<RpcSection, 'cacheBytes' | 'mergeHeadReads'>;

export class ResponseCache {
  readonly #settings: ResponseCacheSettings;
  readonly #clock: Clock;
  readonly #kept = new Map<string, Kept>();
  readonly #running = new Map<string, Promise<ItemResponse | undefined>>();
  #sizeBytes = 0;

  constructor(settings: ResponseCacheSettings, clock: Clock) {
    this.#settings = settings;
    this.#clock = clock;
  }

  /** The key under which a call may share its response; `undefined` if it may not. */
  keyOf({ body, network }: ParsedRequest, { method, span }: Call): string | undefined {
    const { hasMore, paramsStart, paramsEnd } = span;
    const isOn =
      method.sharing === 'head' ? this.#settings.mergeHeadReads : this.#settings.cacheBytes > 0;
    if (method.sharing === undefined || !isOn || hasMore) return undefined;
    if (paramsEnd - paramsStart > MAX_PARAMS_BYTES) return undefined;
    const isGiven = hasParams(body, span);
    const params = isGiven ? body.toString('latin1', paramsStart, paramsEnd) : '';
    return `${network.slug} ${method.name} ${params}`;
  }

  get(key: string): Buffer | undefined {
    const kept = this.#kept.get(key);
    if (kept === undefined) return undefined;
    if (kept.untilMs > this.#clock.monotonicMs()) return kept.result;
    this.#drop(key, kept);
    return undefined;
  }

  /** Stores a successful result; head reads are only shared while pending. */
  keep(key: string, { sharing }: Method, response: ItemResponse): void {
    if (sharing === 'head' || response.outcome !== 'success' || response.isNull) return;
    const { resultStart, resultEnd } = response.span;
    const sizeBytes = key.length + resultEnd - resultStart;
    if (sizeBytes > MAX_RESULT_BYTES || sizeBytes > this.#settings.cacheBytes) return;
    const before = this.#kept.get(key);
    if (before !== undefined) this.#drop(key, before);
    const untilMs = this.#clock.monotonicMs() + (sharing === 'static' ? STATIC_MS : BY_HASH_MS);
    this.#kept.set(key, {
      result: Buffer.from(response.bytes.subarray(resultStart, resultEnd)),
      untilMs,
    });
    this.#sizeBytes += sizeBytes;
    for (const [oldest, kept] of this.#kept) {
      if (this.#sizeBytes <= this.#settings.cacheBytes) break;
      this.#drop(oldest, kept);
    }
  }

  async merge(
    key: string,
    call: () => Promise<ItemResponse | undefined>,
  ): Promise<ItemResponse | undefined> {
    const running = this.#running.get(key);
    if (running !== undefined) return running;
    const started = call().finally(() => this.#running.delete(key));
    this.#running.set(key, started);
    return started;
  }

  #drop(key: string, kept: Kept): void {
    this.#kept.delete(key);
    this.#sizeBytes -= key.length + kept.result.length;
  }
}
