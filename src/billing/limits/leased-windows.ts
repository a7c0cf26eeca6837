/**
 * Rate windows that several processes share through PostgreSQL. A process leases a share of a
 * bucket's remaining capacity for a minute, counts from it in memory, and leases again when it is
 * used up. Leased capacity is added to the bucket's row at once, so exactly the allowed number of
 * requests pass. If the share would be too small, each take is counted under the lock of the row. A
 * lease ends with its minute.
 *
 * The remaining capacity in headers counts capacity leased by others as used. A process that takes
 * from a shared bucket notifies the others within `NOTIFY_AFTER_MS`.
 */
import { type Clock, MINUTE_MS } from '../../core/clock.ts';
import { LeasedParts, type PartResult, type SharedStore } from '../../db/db.ts';
import {
  type Counters,
  type Reservation,
  type WindowResult,
  type WindowTake,
  type Windows,
  correctedMinute,
  countTake,
  stateOf,
} from './process-limits.ts';
import {
  type Bucket,
  type BucketCall,
  type GrantedWindow,
  countHere,
  grantWindows,
  hasCapacity,
} from './window-grants.ts';

/** How long counts are collected before the others are notified. */
const NOTIFY_AFTER_MS = 20;
/** Buckets per notification of at most 8,000 bytes; others are read when they are needed. */
const BUCKETS_OF_MESSAGE = 32;
const COUNTED = 'counted';
/** Windows of a process whose clock is ahead by more are opened again each minute. */
const MOST_MINUTES_AHEAD = 10;
const PRUNE = `DELETE FROM limits_window
  WHERE minute < least($1, now_ms($2) / ${MINUTE_MS}) - 1
     OR minute > greatest($1, now_ms($2) / ${MINUTE_MS}) + ${MOST_MINUTES_AHEAD}`;

export interface LeasedWindowsParts {
  readonly store: SharedStore;
  readonly clock: Clock;
  readonly processes: () => number;
  readonly holder: string;
}

export class LeasedWindows implements Windows {
  readonly #parts: LeasedWindowsParts;
  readonly #leases: LeasedParts<Bucket, WindowTake, WindowResult, BucketCall, GrantedWindow>;
  readonly #buckets = new Map<string, Bucket>();
  /** The latest minute seen; later than the current one if the clock was set back. */
  #latestMinute = 0;
  #forgotIn = 0;
  /** Counters in the rows of buckets that the other processes are not notified of yet. */
  readonly #toNotify = new Map<string, Readonly<Counters>>();

  constructor(parts: LeasedWindowsParts) {
    this.#parts = parts;
    this.#leases = new LeasedParts({
      ...parts,
      holder: () => parts.holder,
      prefix: 'window-',
      maxCalls: 2,
      maxCounters: 128,
      maxRequests: 512,
      callOf: (part, waiting) => {
        const { tokensLeft, requestsLeft, correction } = part;
        const isContested = this.#leases.isContested(part.counter);
        return { part, waiting, tokensLeft, requestsLeft, correction, isContested };
      },
      grant: (calls) => this.#grant(calls),
      granted: (call, grant) => this.#granted(call, grant),
      // It is unknown whether the takes were counted; the count is right again in the next minute.
      failed: ({ part }) => void (part.counters = { minute: 0, requests: 0, tokens: 0 }),
      hasUnused: isLeasing,
      repliesFor: (counter) => {
        const [bucket] = counter?.parts ?? [];
        const mustReply = bucket?.mustReply === true;
        if (mustReply) bucket.mustReply = false;
        return mustReply;
      },
      received: (kind, text) => {
        if (kind === COUNTED) this.#receiveCounted(text);
      },
    });
    void this.#leases.recalls.listen();
  }

  take(take: WindowTake, nowMs: number): WindowResult | Promise<WindowResult> {
    const minute = Math.floor(nowMs / MINUTE_MS);
    if (take.requestLimit === 0 && take.tokenLimit === 0) {
      return countTake(take, { minute, requests: 0, tokens: 0 });
    }
    const bucket = this.#buckets.get(take.bucket);
    if (bucket !== undefined && !bucket.counter.isBusy && bucket.counters.minute === minute) {
      const isSame =
        bucket.requestLimit === take.requestLimit && bucket.tokenLimit === take.tokenLimit;
      if (isSame && hasCapacity(bucket, take)) return countHere(bucket, take);
      if (isSame && bucket.fullMinute === minute) {
        return { ok: false, reason: 'requests', state: stateOf(take, bucket.counters) };
      }
    }
    return this.#leases.request(bucket ?? this.#open(take, minute), take);
  }

  correct(reservation: Reservation, usedTokens: number, nowMs: number): Counters | undefined {
    const change = usedTokens - reservation.tokens;
    if (change === 0) return undefined;
    const minute = correctedMinute(reservation, usedTokens, nowMs);
    const bucket = this.#buckets.get(reservation.bucket);
    if (bucket?.counters.minute === minute) {
      bucket.counters.tokens = Math.max(0, bucket.counters.tokens + change);
      bucket.tokensLeft -= change;
      // Without a lease the correction goes to the row at once, where other processes count.
      if (bucket.tokensLeased === 0) this.#leases.add(bucket);
      return bucket.counters;
    }
    // The minute has ended: usage above the estimate counts in the current one.
    if (change > 0) {
      const { bucket: name } = reservation;
      const take = { bucket: name, tokens: 0, requestLimit: 0, tokenLimit: 0 };
      const late = bucket ?? this.#open(take, 0);
      late.correction = late.correctionMinute === minute ? late.correction + change : change;
      late.correctionMinute = minute;
      this.#leases.add(late);
    }
    return undefined;
  }

  /** Capacity leased by others counts as used. */
  async counted(
    buckets: readonly string[],
    nowMs: number,
  ): Promise<ReadonlyMap<string, Readonly<Counters>>> {
    const minute = Math.floor(nowMs / MINUTE_MS);
    const counted = new Map<string, Readonly<Counters>>();
    const elsewhere: string[] = [];
    for (const name of buckets) {
      const bucket = this.#buckets.get(name);
      if (bucket?.counters.minute === minute && this.#isCurrent(bucket, minute)) {
        counted.set(name, bucket.counters);
      } else elsewhere.push(name);
    }
    if (elsewhere.length === 0) return counted;
    const rows = await this.#parts.store.query<{
      readonly bucket: string;
      readonly requests: bigint;
      readonly tokens: bigint;
    }>(
      `SELECT bucket, requests, tokens FROM limits_window
       WHERE bucket IN (SELECT json_array_elements_text($1::json)) AND minute >= $2`,
      [JSON.stringify(elsewhere), minute],
    );
    for (const { bucket, requests, tokens } of rows) {
      counted.set(bucket, { minute, requests: Number(requests), tokens: Number(tokens) });
    }
    return counted;
  }

  /**
   * Deletes old windows, and those of a process that may have ended since its clock was ahead: by this
   * clock and that of the database, because one of them can be wrong.
   */
  async prune(nowMs: number): Promise<void> {
    await this.#parts.store.query(PRUNE, [Math.floor(nowMs / MINUTE_MS), nowMs]);
  }

  #open({ bucket: name, requestLimit, tokenLimit }: WindowTake, minute: number): Bucket {
    if (minute !== this.#forgotIn) this.#forgetOthers(minute);
    const bucket = this.#leases.open(name, {
      counters: { minute: 0, requests: 0, tokens: 0 },
      requestLimit,
      tokenLimit,
      requestsLeft: 0,
      tokensLeft: 0,
      requestsLeased: 0,
      tokensLeased: 0,
      fullMinute: 0,
      mustReply: false,
      correction: 0,
      correctionMinute: 0,
    });
    this.#buckets.set(name, bucket);
    return bucket;
  }

  #forgetOthers(minute: number): void {
    this.#forgotIn = minute;
    for (const [name, bucket] of this.#buckets) {
      const { counters } = bucket;
      const isNear = counters.minute === minute || counters.minute === minute - 1;
      if (!isNear && this.#leases.close(bucket)) this.#buckets.delete(name);
    }
  }

  /** Whether this process knows the current count of a bucket in this minute. */
  #isCurrent(bucket: Bucket, minute: number): boolean {
    if (bucket.fullMinute === minute) return true;
    return isLeasing(bucket) && this.#leases.recalls.areDelivered;
  }

  #grant(calls: readonly BucketCall[]): Promise<readonly GrantedWindow[]> {
    const { store, clock, processes } = this.#parts;
    const minute = Math.floor(clock.nowMs() / MINUTE_MS);
    this.#latestMinute = Math.max(this.#latestMinute, minute);
    const mayLease = this.#leases.recalls.areDelivered;
    const latestMinute = this.#latestMinute;
    return grantWindows(store, { minute, latestMinute, mayLease, processes: processes() }, calls);
  }

  #granted(call: BucketCall, granted: GrantedWindow): readonly PartResult<WindowResult>[] {
    const { part: bucket, waiting, tokensLeft, correction } = call;
    const { counters, results, requestsLeased, tokensLeased, isLeasedElsewhere } = granted;
    const { minute } = counters;
    // Corrections made meanwhile are still to be written.
    const changed = bucket.counters.minute === minute ? bucket.tokensLeft - tokensLeft : 0;
    bucket.correction -= correction;
    bucket.counters = {
      minute,
      requests: counters.requests - requestsLeased,
      tokens: Math.max(0, counters.tokens - tokensLeased - changed),
    };
    bucket.requestsLeft = requestsLeased;
    bucket.tokensLeft = tokensLeased + changed;
    bucket.requestsLeased = requestsLeased;
    bucket.tokensLeased = tokensLeased;
    if (isLeasing(bucket)) bucket.mustReply = true;
    const last = waiting.at(-1)?.request;
    if (last !== undefined) {
      bucket.requestLimit = last.requestLimit;
      bucket.tokenLimit = last.tokenLimit;
    }
    if (isLeasedElsewhere) this.#notifyCounted(bucket.counter.name, granted.row);
    return results.map((result) => {
      if (!result.ok && isLeasedElsewhere) return { result, heldBy: 'unknown' };
      if (!result.ok && result.reason === 'requests') bucket.fullMinute = minute;
      return { result };
    });
  }

  #notifyCounted(name: string, { minute, requests, tokens }: Readonly<Counters>): void {
    const { clock } = this.#parts;
    if (this.#toNotify.size === 0) clock.after(NOTIFY_AFTER_MS, () => this.#notifyAll());
    if (this.#toNotify.size >= BUCKETS_OF_MESSAGE && !this.#toNotify.has(name)) return;
    this.#toNotify.set(name, { minute, requests, tokens });
  }

  /** A process that misses the notification shows older counts until its next request. */
  #notifyAll(): void {
    this.#leases.recalls.notify(COUNTED, JSON.stringify([...this.#toNotify]));
    this.#toNotify.clear();
  }

  #receiveCounted(text: string): void {
    const all = JSON.parse(text) as readonly (readonly [string, Readonly<Counters>])[]; // own JSON
    for (const [name, { minute, requests, tokens }] of all) {
      const bucket = this.#buckets.get(name);
      if (bucket === undefined || bucket.counter.isBusy || bucket.counters.minute !== minute) {
        continue;
      }
      bucket.counters.requests = Math.max(0, requests - bucket.requestsLeft);
      bucket.counters.tokens = Math.max(0, tokens - bucket.tokensLeft);
    }
  }
}

function isLeasing({ requestsLeased, tokensLeased }: Bucket): boolean {
  return requestsLeased > 0 || tokensLeased > 0;
}
