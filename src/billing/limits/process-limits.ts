/**
 * Counters that one process keeps for a caller. Rate limits per bucket (caller and model) use fixed
 * windows of one UTC minute: token capacity is reserved by an estimate at admission and corrected
 * at settle. Usage above the estimate still counts after its minute has ended, in the current
 * minute. Processes that share a database count there, with the same interface
 * (`leased-windows.ts`).
 *
 * Also counts requests in flight; `shared-slots.ts` does so for several processes.
 */
import { MINUTE_MS } from '../../core/clock.ts';
import type { Caller } from '../../identity/identity.ts';

export interface WindowTake {
  readonly bucket: string;
  /** At most the limit: a request larger than the limit may run when its window is empty. */
  readonly tokens: number;
  readonly requestLimit: number;
  readonly tokenLimit: number;
}

export interface WindowState {
  readonly requestLimit: number;
  readonly requestsLeft: number;
  readonly tokenLimit: number;
  readonly tokensLeft: number;
  readonly resetsAtMs: number;
}

export type WindowResult =
  | { readonly ok: true; readonly state: WindowState; readonly reserved: Reservation }
  | { readonly ok: false; readonly reason: 'requests' | 'tokens'; readonly state: WindowState };

/** Token capacity reserved for a request; `correct` replaces it with the actual usage. */
export interface Reservation {
  readonly bucket: string;
  readonly minute: number;
  readonly tokens: number;
}

export interface Windows {
  take(take: WindowTake, nowMs: number): WindowResult | Promise<WindowResult>;
  /** Replaces the reserved tokens by the used ones; returns the new counts where they are known. */
  correct(
    reservation: Reservation,
    usedTokens: number,
    nowMs: number,
  ): Readonly<Counters> | undefined | Promise<Readonly<Counters> | undefined>;
  /** Reads the counts without counting anything; buckets without a current window are missing. */
  counted(
    buckets: readonly string[],
    nowMs: number,
  ): ReadonlyMap<string, Readonly<Counters>> | Promise<ReadonlyMap<string, Readonly<Counters>>>;
  prune(nowMs: number): Promise<void>;
}

export interface RateRule {
  readonly requestsPerMinute: number;
  readonly tokensPerMinute: number;
  /** The owner of the limit, for `x-ratelimit-type`. */
  readonly type: 'user' | 'api_key' | 'global';
}

export interface Counters {
  minute: number;
  requests: number;
  tokens: number;
}

/** Returns the bucket of a caller: its account, or the key whose limits apply. */
export function bucketOf(
  caller: Pick<Caller, 'accountId' | 'keyId' | 'limitKeyId'>,
  rate: Pick<RateRule, 'type'>,
  name: string,
): string {
  const { accountId, keyId, limitKeyId = keyId } = caller;
  return `${rate.type === 'api_key' ? limitKeyId : accountId}|${name}`;
}

interface Taking {
  readonly caller: Parameters<typeof bucketOf>[0];
  readonly modelId: string;
  readonly rate: RateRule;
  readonly ownLimit?: { readonly bucket: string };
  readonly tokensEstimate: number;
}

export function takeOf({ caller, modelId, rate, ownLimit, tokensEstimate }: Taking): WindowTake {
  const { requestsPerMinute: requestLimit, tokensPerMinute: tokenLimit } = rate;
  const bucket = bucketOf(caller, rate, ownLimit?.bucket ?? modelId);
  const tokens = tokenLimit === 0 ? tokensEstimate : Math.min(tokensEstimate, tokenLimit);
  return { bucket, tokens, requestLimit, tokenLimit };
}

export function stateNow(
  rate: RateRule,
  counters: Readonly<Counters> | undefined,
  nowMs: number,
): WindowState {
  const { requestsPerMinute: requestLimit, tokensPerMinute: tokenLimit } = rate;
  const minute = Math.floor(nowMs / MINUTE_MS);
  return stateOf({ requestLimit, tokenLimit }, counters ?? { minute, requests: 0, tokens: 0 });
}

export function stateOf(
  limits: { readonly requestLimit: number; readonly tokenLimit: number },
  counters: Readonly<Counters>,
): WindowState {
  return {
    requestLimit: limits.requestLimit,
    requestsLeft: Math.max(0, limits.requestLimit - counters.requests),
    tokenLimit: limits.tokenLimit,
    tokensLeft: Math.max(0, limits.tokenLimit - counters.tokens),
    resetsAtMs: (counters.minute + 1) * MINUTE_MS,
  };
}

/**
 * Returns the window that a correction counts in: its own, or the current one for usage above the
 * estimate. A window of a future minute continues as the current one.
 */
export function correctedMinute(reservation: Reservation, usedTokens: number, nowMs: number) {
  const minute = Math.floor(nowMs / MINUTE_MS);
  return usedTokens > reservation.tokens ? minute : Math.min(minute, reservation.minute);
}

export function countTake(take: WindowTake, counters: Counters): WindowResult {
  if (take.requestLimit > 0 && counters.requests + 1 > take.requestLimit) {
    return { ok: false, reason: 'requests', state: stateOf(take, counters) };
  }
  if (take.tokenLimit > 0 && counters.tokens + take.tokens > take.tokenLimit) {
    return { ok: false, reason: 'tokens', state: stateOf(take, counters) };
  }
  return addTake(take, counters);
}

export function addTake(
  take: WindowTake,
  counters: Counters,
): WindowResult & { readonly ok: true } {
  const { bucket, tokens } = take;
  counters.requests += 1;
  counters.tokens += tokens;
  const reserved = { bucket, minute: counters.minute, tokens };
  return { ok: true, state: stateOf(take, counters), reserved };
}

/**
 * Windows of one process that shares its limits with no other. A window of a future minute was
 * opened before the system clock was set back. It continues as the window of the current minute, so
 * that no minute is counted from 0 twice.
 */
export class MemoryWindows implements Windows {
  readonly #counters = new Map<string, Counters>();

  take(take: WindowTake, nowMs: number): WindowResult {
    const minute = Math.floor(nowMs / MINUTE_MS);
    let counters = this.#known(take.bucket, minute);
    if (counters?.minute !== minute) {
      counters = { minute, requests: 0, tokens: 0 };
      this.#counters.set(take.bucket, counters);
    }
    return countTake(take, counters);
  }

  correct(reservation: Reservation, usedTokens: number, nowMs: number): Counters | undefined {
    const change = usedTokens - reservation.tokens;
    const minute = correctedMinute(reservation, usedTokens, nowMs);
    let counters = this.#known(reservation.bucket, Math.floor(nowMs / MINUTE_MS));
    if (change > 0 && (counters === undefined || counters.minute < minute)) {
      counters = { minute, requests: 0, tokens: 0 };
      this.#counters.set(reservation.bucket, counters);
    }
    if (counters?.minute === minute) counters.tokens = Math.max(0, counters.tokens + change);
    return counters;
  }

  counted(buckets: readonly string[], nowMs: number): ReadonlyMap<string, Counters> {
    const minute = Math.floor(nowMs / MINUTE_MS);
    const counted = new Map<string, Counters>();
    for (const bucket of buckets) {
      const counters = this.#known(bucket, minute);
      if (counters?.minute === minute) counted.set(bucket, counters);
    }
    return counted;
  }

  async prune(nowMs: number): Promise<void> {
    const minute = Math.floor(nowMs / MINUTE_MS);
    for (const bucket of this.#counters.keys()) {
      const counters = this.#known(bucket, minute);
      if (counters?.minute !== minute) this.#counters.delete(bucket);
    }
  }

  #known(bucket: string, minute: number): Counters | undefined {
    const counters = this.#counters.get(bucket);
    if (counters !== undefined && counters.minute > minute) counters.minute = minute;
    return counters;
  }
}

export function addRateHeaders(
  headers: Record<string, string>,
  state: WindowState,
  rate: RateRule,
  nowMs: number,
): void {
  if (state.requestLimit > 0) {
    headers['x-ratelimit-limit-requests'] = String(state.requestLimit);
    headers['x-ratelimit-remaining-requests'] = String(state.requestsLeft);
    headers['x-ratelimit-reset-requests'] = String(Math.ceil(state.resetsAtMs / 1_000));
  }
  if (state.tokenLimit > 0) {
    headers['x-ratelimit-limit-tokens'] = String(state.tokenLimit);
    headers['x-ratelimit-remaining-tokens'] = String(state.tokensLeft);
    headers['x-ratelimit-reset-tokens'] = String(
      Math.max(0, Math.ceil((state.resetsAtMs - nowMs) / 1_000)),
    );
  }
  if (state.requestLimit > 0 || state.tokenLimit > 0) headers['x-ratelimit-type'] = rate.type;
}

export function rateHeaders(
  state: WindowState,
  rate: RateRule,
  nowMs: number,
): Record<string, string> {
  const headers: Record<string, string> = {};
  addRateHeaders(headers, state, rate, nowMs);
  return headers;
}

/** Above this number, callers with nothing in flight are dropped. */
const MAX_CALLERS = 10_000;

interface InFlightOfCaller {
  count: number;
  readonly leave: () => void;
}

export interface Slots {
  enter(
    caller: string,
    limit: number,
  ): (() => void) | undefined | Promise<(() => void) | undefined>;
  processEnded(processId: string): void | Promise<void>;
  close(): void | Promise<void>;
}

export class Concurrency implements Slots {
  /** Entries are kept, so that a request changes a number and not the map. */
  readonly #callers = new Map<string, InFlightOfCaller>();

  enter(caller: string, limit: number): (() => void) | undefined {
    const running = this.#callers.get(caller) ?? this.#add(caller);
    if (running.count >= limit) return undefined;
    running.count += 1;
    return running.leave;
  }

  processEnded(): void {
    // No other process counts here.
  }

  close(): void {
    // No other process counts here.
  }

  #add(caller: string): InFlightOfCaller {
    if (this.#callers.size >= MAX_CALLERS) {
      for (const [id, { count }] of this.#callers) if (count === 0) this.#callers.delete(id);
    }
    const added: InFlightOfCaller = { count: 0, leave: () => void (added.count -= 1) };
    this.#callers.set(caller, added);
    return added;
  }
}
