/**
 * Rate windows that several processes share through PostgreSQL. A process leases part of a bucket's
 * remaining capacity for a minute, counts from it in memory, and leases again when it is used up.
 * Leased capacity is added to the bucket's row at once, so exactly the allowed number of requests
 * pass. If a part would be too small, each take is counted under the lock of the row. Before a take
 * is rejected, capacity that others lease is recalled. A lease ends with its minute.
 *
 * The remaining capacity in headers counts capacity leased by others as used. A process that takes
 * from a shared bucket notifies the others within `TELL_AFTER_MS`.
 *
 * Buckets are locked in order of name. Transactions are not durable: a window lost in a crash costs
 * no money.
 */
import { assert } from '../../core/assert.ts';
import { type Clock, MINUTE_MS } from '../../core/clock.ts';
import { DueQueue } from '../../core/due-queue.ts';
import type { Notices, SharedStore } from '../../db/db.ts';
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
  type AskedBucket,
  type AskingTake,
  type Bucket,
  type GrantedWindow,
  countHere,
  grantWindows,
  hasRoom,
} from './window-grants.ts';

const ASKS_IN_FLIGHT = 2;
const BUCKETS_OF_ASK = 128;
const TAKES_OF_BUCKET = 512;
const RECALL_MS = 100;

/** How long grants are collected before the others are notified. */
const TELL_AFTER_MS = 20;
/** Buckets per notification of at most 8,000 bytes; others are read on demand. */
const BUCKETS_OF_WORD = 32;

const RECALL = 'window-recall';
const FREED = 'window-freed';
const COUNTED = 'window-counted';

export interface LeasedWindowsParts {
  readonly store: SharedStore;
  readonly clock: Clock;
  readonly processes: () => number;
  readonly holder: string;
}

export class LeasedWindows implements Windows {
  readonly #parts: LeasedWindowsParts;
  readonly #buckets = new Map<string, Bucket>();
  readonly #recalls = new Map<string, { readonly done: Promise<void>; readonly end: () => void }>();
  /** The latest minute seen; later than the current one if the clock was set back. */
  #latestMinute = 0;
  #forgotIn = 0;
  /** Counters in the rows of buckets that the other processes are not notified of yet. */
  readonly #untold = new Map<string, Readonly<Counters>>();
  #notices: Notices | undefined;
  readonly #due = new DueQueue<Bucket, Bucket>({
    maxInFlight: ASKS_IN_FLIGHT,
    maxGroups: BUCKETS_OF_ASK,
    groupOf: (bucket) => bucket,
    run: (buckets) => this.#askFor(buckets),
  });

  constructor(parts: LeasedWindowsParts) {
    this.#parts = parts;
    void parts.store
      .listen((word) => this.#heard(word))
      .then((notices) => {
        this.#notices = notices;
      });
  }

  take(take: WindowTake, nowMs: number): WindowResult | Promise<WindowResult> {
    const minute = Math.floor(nowMs / MINUTE_MS);
    if (take.requestLimit === 0 && take.tokenLimit === 0) {
      return countTake(take, { minute, requests: 0, tokens: 0 });
    }
    const bucket = this.#buckets.get(take.bucket);
    if (bucket !== undefined && !bucket.isBusy && bucket.counters.minute === minute) {
      const isSame =
        bucket.requestLimit === take.requestLimit && bucket.tokenLimit === take.tokenLimit;
      if (isSame && hasRoom(bucket, take)) return countHere(bucket, take);
      if (isSame && bucket.fullMinute === minute) {
        return { ok: false, reason: 'requests', state: stateOf(take, bucket.counters) };
      }
    }
    return this.#ask(bucket ?? this.#open(take, minute), take, minute);
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
      if (bucket.tokensLeased === 0) this.#due.add(bucket);
      return bucket.counters;
    }
    // Its minute has ended: usage above the estimate counts in the current one.
    if (change > 0) {
      const { bucket: name } = reservation;
      const take = { bucket: name, tokens: 0, requestLimit: 0, tokenLimit: 0 };
      const late = bucket ?? this.#open(take, 0);
      late.correction = late.correctionMinute === minute ? late.correction + change : change;
      late.correctionMinute = minute;
      this.#due.add(late);
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
      if (bucket?.counters.minute === minute && this.#isTold(bucket, minute)) {
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

  async prune(nowMs: number): Promise<void> {
    await this.#parts.store.query('DELETE FROM limits_window WHERE minute < $1', [
      Math.floor(nowMs / MINUTE_MS) - 1,
    ]);
  }

  #open({ bucket: name, requestLimit, tokenLimit }: WindowTake, minute: number): Bucket {
    if (minute !== this.#forgotIn) this.#forgetOthers(minute);
    const bucket: Bucket = {
      name,
      counters: { minute: 0, requests: 0, tokens: 0 },
      requestLimit,
      tokenLimit,
      requestsLeft: 0,
      tokensLeft: 0,
      requestsLeased: 0,
      tokensLeased: 0,
      contestedMinute: 0,
      fullMinute: 0,
      isBusy: false,
      isDue: false,
      mustFree: false,
      isUntold: false,
      freed: 0,
      asking: [],
      correction: 0,
      correctionMinute: 0,
    };
    this.#buckets.set(name, bucket);
    return bucket;
  }

  #forgetOthers(minute: number): void {
    this.#forgotIn = minute;
    for (const [name, { counters, isBusy, isDue }] of this.#buckets) {
      const isNear = counters.minute === minute || counters.minute === minute - 1;
      if (!isNear && !isBusy && !isDue) this.#buckets.delete(name);
    }
  }

  /** Whether this process knows the current count of a bucket in this minute. */
  #isTold(bucket: Bucket, minute: number): boolean {
    if (bucket.fullMinute === minute) return true;
    return isLeasing(bucket) && this.#notices?.arrive === true;
  }

  #ask(bucket: Bucket, take: WindowTake, minute: number): Promise<WindowResult> {
    const { promise, resolve, reject } = Promise.withResolvers<WindowResult>();
    bucket.asking.push({ take, minute, resolve, reject, waitsUntilMs: 0 });
    this.#due.add(bucket);
    return promise;
  }

  async #askFor(buckets: readonly Bucket[]): Promise<() => void> {
    const asked = buckets.map((bucket) => {
      const entries = bucket.asking.splice(0, TAKES_OF_BUCKET);
      if (bucket.asking.length > 0) this.#due.add(bucket);
      const { tokensLeft, requestsLeft, correction, mustFree: isFreeing, freed } = bucket;
      bucket.mustFree = false;
      return { bucket, entries, tokensLeft, requestsLeft, correction, isFreeing, freed };
    });
    const isHeard = this.#notices?.arrive === true;
    const minute = Math.floor(this.#parts.clock.nowMs() / MINUTE_MS);
    this.#latestMinute = Math.max(this.#latestMinute, minute);
    const latestMinute = this.#latestMinute;
    const context = { minute, latestMinute, isHeard, processes: this.#parts.processes() };
    try {
      const answers = await grantWindows(this.#parts.store, context, asked);
      const answered = asked.map((one, index) => {
        const answer = answers[index];
        assert(answer !== undefined, 'each bucket has its answer');
        return { one, answer };
      });
      return () => {
        for (const { one, answer } of answered) this.#answer(one, answer);
      };
    } catch (error) {
      // It is unknown whether the takes were counted; the count is right again in the next minute.
      return () => {
        for (const { bucket, entries } of asked) {
          bucket.counters = { minute: 0, requests: 0, tokens: 0 };
          for (const { reject } of entries) reject(error);
        }
      };
    }
  }

  #answer(asked: AskedBucket, granted: GrantedWindow): void {
    const { bucket, entries, tokensLeft, correction } = asked;
    const { counters, answers, requestsLeased, tokensLeased, isLeasedElsewhere } = granted;
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
    bucket.isUntold = !isLeasing(granted) && (isLeasing(bucket) || bucket.isUntold);
    bucket.requestsLeased = requestsLeased;
    bucket.tokensLeased = tokensLeased;
    const last = entries.at(-1)?.take;
    if (last !== undefined) {
      bucket.requestLimit = last.requestLimit;
      bucket.tokenLimit = last.tokenLimit;
    }
    if (asked.isFreeing) this.#tellFreed(bucket);
    if (isLeasedElsewhere) this.#tellCounted(bucket.name, granted.row);
    for (const [index, entry] of entries.entries()) {
      const answer = answers[index];
      assert(answer !== undefined, 'each take has its answer');
      if (!answer.ok && isLeasedElsewhere && this.#mayWait(entry)) {
        void this.#askAgain(bucket, entry, asked.freed);
      } else entry.resolve(answer);
      const isFull = !answer.ok && answer.reason === 'requests' && !isLeasedElsewhere;
      if (isFull) bucket.fullMinute = minute;
    }
  }

  #mayWait(entry: AskingTake): boolean {
    const nowMs = this.#parts.clock.monotonicMs();
    if (entry.waitsUntilMs === 0) entry.waitsUntilMs = nowMs + RECALL_MS;
    return nowMs < entry.waitsUntilMs;
  }

  async #askAgain(bucket: Bucket, entry: AskingTake, freed: number): Promise<void> {
    bucket.contestedMinute = entry.minute;
    // A process that returned its lease after the request was sent does not notify again.
    if (bucket.freed === freed) await this.#callBack(bucket);
    bucket.asking.push(entry);
    this.#due.add(bucket);
  }

  #callBack(bucket: Bucket): Promise<void> {
    const { clock, holder } = this.#parts;
    let recall = this.#recalls.get(bucket.name);
    if (recall === undefined) {
      const { promise: done, resolve: end } = Promise.withResolvers<void>();
      recall = { done, end };
      this.#recalls.set(bucket.name, recall);
      const cancel = clock.after(RECALL_MS, end);
      // A notification that cannot be sent gets no reply; the time limit ends the wait.
      this.#notices?.say(`${RECALL} ${holder} ${bucket.name}`).catch(() => undefined);
      void done.then(() => {
        cancel();
        this.#recalls.delete(bucket.name);
      });
    }
    return recall.done;
  }

  #heard(word: string): void {
    const [what, from, ...name] = word.split(' ');
    if (from === this.#parts.holder) return;
    if (what === COUNTED) return this.#heardCounted(name.join(' '));
    if (what !== RECALL && what !== FREED) return;
    const bucket = this.#buckets.get(name.join(' '));
    if (bucket === undefined) return;
    if (what === RECALL) return this.#comply(bucket);
    bucket.freed += 1;
    this.#recalls.get(bucket.name)?.end();
  }

  #comply(bucket: Bucket): void {
    bucket.contestedMinute = Math.floor(this.#parts.clock.nowMs() / MINUTE_MS);
    if (isLeasing(bucket) || bucket.isBusy) {
      bucket.mustFree = true;
      this.#due.add(bucket);
    } else if (bucket.isUntold) this.#tellFreed(bucket);
  }

  #tellCounted(name: string, { minute, requests, tokens }: Readonly<Counters>): void {
    if (this.#untold.size === 0) this.#parts.clock.after(TELL_AFTER_MS, () => this.#tellAll());
    if (this.#untold.size >= BUCKETS_OF_WORD && !this.#untold.has(name)) return;
    this.#untold.set(name, { minute, requests, tokens });
  }

  #tellAll(): void {
    const counted = JSON.stringify([...this.#untold]);
    this.#untold.clear();
    // A process that misses it shows older counts until its next request.
    this.#notices?.say(`${COUNTED} ${this.#parts.holder} ${counted}`).catch(() => undefined);
  }

  #heardCounted(text: string): void {
    const all = JSON.parse(text) as readonly (readonly [string, Readonly<Counters>])[]; // own JSON
    for (const [name, { minute, requests, tokens }] of all) {
      const bucket = this.#buckets.get(name);
      if (bucket === undefined || bucket.isBusy || bucket.counters.minute !== minute) continue;
      bucket.counters.requests = Math.max(0, requests - bucket.requestsLeft);
      bucket.counters.tokens = Math.max(0, tokens - bucket.tokensLeft);
    }
  }

  #tellFreed(bucket: Bucket): void {
    bucket.isUntold = false;
    // The recalling process waits only for its time limit.
    this.#notices?.say(`${FREED} ${this.#parts.holder} ${bucket.name}`).catch(() => undefined);
  }
}

function isLeasing({ requestsLeased, tokensLeased }: Bucket | GrantedWindow): boolean {
  return requestsLeased > 0 || tokensLeased > 0;
}
