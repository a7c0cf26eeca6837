/**
 * Answers that several callers may share: identical head reads in flight, the constants of a chain,
 * and blocks named by their hash. A shared answer is billed like any other.
 *
 * Invariant: only successes are kept, bounded in bytes and time; a key is the exact method and
 * params as sent, and a call with any other member has none (some nodes take a network there), so
 * two calls share an answer only when a node could not tell them apart.
 */
import type { Clock } from '../core/clock.ts';
import { type Call, hasParams, type ParsedRequest } from './parse-request.ts';
import type { Method } from './catalogue.ts';
import type { ItemResponse } from './classify.ts';

/** Longer params are never shared: they are not repeated either. */
const MAX_PARAMS_BYTES = 256;
/** Larger results are cheaper to fetch than to keep. */
const MAX_RESULT_BYTES = 65_536;
const STATIC_MS = 600_000;
const BY_HASH_MS = 60_000;
interface Kept {
  readonly result: Buffer;
  readonly untilMs: number;
}

export interface ResponseCacheSettings {
  readonly isMerging: boolean;
  readonly maxBytes: number;
}

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

  /** Under what a call may share its answer; undefined when it may not. */
  keyOf({ body, network }: ParsedRequest, { method, span }: Call): string | undefined {
    const { hasMore, paramsStart, paramsEnd } = span;
    const isOn = method.sharing === 'head' ? this.#settings.isMerging : this.#settings.maxBytes > 0;
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

  /** Keeps the result of a success; head reads are merged in flight, never kept. */
  keep(key: string, { sharing }: Method, answer: ItemResponse): void {
    if (sharing === 'head' || answer.outcome !== 'success' || answer.isNull) return;
    const { resultStart, resultEnd } = answer.span;
    const sizeBytes = key.length + resultEnd - resultStart;
    if (sizeBytes > MAX_RESULT_BYTES || sizeBytes > this.#settings.maxBytes) return;
    const before = this.#kept.get(key);
    if (before !== undefined) this.#drop(key, before);
    const untilMs = this.#clock.monotonicMs() + (sharing === 'static' ? STATIC_MS : BY_HASH_MS);
    this.#kept.set(key, {
      result: Buffer.from(answer.bytes.subarray(resultStart, resultEnd)),
      untilMs,
    });
    this.#sizeBytes += sizeBytes;
    for (const [oldest, kept] of this.#kept) {
      if (this.#sizeBytes <= this.#settings.maxBytes) break;
      this.#drop(oldest, kept);
    }
  }

  async merge(
    key: string,
    ask: () => Promise<ItemResponse | undefined>,
  ): Promise<ItemResponse | undefined> {
    const running = this.#running.get(key);
    if (running !== undefined) return running;
    const started = ask().finally(() => this.#running.delete(key));
    this.#running.set(key, started);
    return started;
  }

  #drop(key: string, kept: Kept): void {
    this.#kept.delete(key);
    this.#sizeBytes -= key.length + kept.result.length;
  }
}
