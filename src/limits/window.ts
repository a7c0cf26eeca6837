/**
 * Rate limits per bucket (caller and model) in fixed windows of one UTC minute. Room for tokens is
 * reserved at admission and corrected at settle, so a burst cannot slip through.
 *
 * Two keepers with one contract: in memory for one process, in the database for several.
 */
import { MINUTE_MS } from '../kernel/clock.ts';
import { Batcher, type Store } from '../store/store.ts';

/** What one request wants of its bucket. A limit of 0 is no limit. */
export interface WindowTake {
  readonly bucket: string;
  readonly tokens: number;
  readonly requestLimit: number;
  readonly tokenLimit: number;
}

/** The state of a bucket after a take, as the rate-limit headers show it. */
export interface WindowState {
  readonly requestLimit: number;
  readonly requestsLeft: number;
  readonly tokenLimit: number;
  readonly tokensLeft: number;
  /** When the window ends. */
  readonly resetsAtMs: number;
}

export type WindowAnswer =
  | { readonly ok: true; readonly state: WindowState; readonly reserved: Reservation }
  | { readonly ok: false; readonly reason: 'requests' | 'tokens'; readonly state: WindowState };

/** Room for tokens that a request holds; `correct` gives back what it did not use. */
export interface Reservation {
  readonly bucket: string;
  readonly minute: number;
  readonly tokens: number;
}

export interface Windows {
  take(take: WindowTake, nowMs: number): Promise<WindowAnswer>;
  /** Replaces the reserved tokens by the used ones, if the window still runs. */
  correct(reservation: Reservation, usedTokens: number, nowMs: number): Promise<void>;
  /** Forgets windows that have ended. */
  prune(nowMs: number): Promise<void>;
}

interface Counters {
  minute: number;
  requests: number;
  tokens: number;
}

/** A request larger than the whole limit may run when its window is empty. */
function tokensOf(take: WindowTake): number {
  return take.tokenLimit === 0 ? take.tokens : Math.min(take.tokens, take.tokenLimit);
}

function stateOf(take: WindowTake, counters: Counters): WindowState {
  return {
    requestLimit: take.requestLimit,
    requestsLeft: Math.max(0, take.requestLimit - counters.requests),
    tokenLimit: take.tokenLimit,
    tokensLeft: Math.max(0, take.tokenLimit - counters.tokens),
    resetsAtMs: (counters.minute + 1) * MINUTE_MS,
  };
}

/** Counts one take, or says which limit stands in its way; pure but for `counters`. */
function countTake(take: WindowTake, counters: Counters): WindowAnswer {
  const tokens = tokensOf(take);
  if (take.requestLimit > 0 && counters.requests + 1 > take.requestLimit) {
    return { ok: false, reason: 'requests', state: stateOf(take, counters) };
  }
  if (take.tokenLimit > 0 && counters.tokens + tokens > take.tokenLimit) {
    return { ok: false, reason: 'tokens', state: stateOf(take, counters) };
  }
  counters.requests += 1;
  counters.tokens += tokens;
  const reserved = { bucket: take.bucket, minute: counters.minute, tokens };
  return { ok: true, state: stateOf(take, counters), reserved };
}

/** Windows of one process: no other process counts against the same limits. */
export class MemoryWindows implements Windows {
  readonly #counters = new Map<string, Counters>();

  async take(take: WindowTake, nowMs: number): Promise<WindowAnswer> {
    const minute = Math.floor(nowMs / MINUTE_MS);
    let counters = this.#counters.get(take.bucket);
    if (counters === undefined || counters.minute !== minute) {
      counters = { minute, requests: 0, tokens: 0 };
      this.#counters.set(take.bucket, counters);
    }
    return countTake(take, counters);
  }

  async correct(reservation: Reservation, usedTokens: number): Promise<void> {
    const counters = this.#counters.get(reservation.bucket);
    if (counters === undefined || counters.minute !== reservation.minute) return;
    counters.tokens = Math.max(0, counters.tokens + usedTokens - reservation.tokens);
  }

  async prune(nowMs: number): Promise<void> {
    const minute = Math.floor(nowMs / MINUTE_MS);
    for (const [bucket, counters] of this.#counters) {
      if (counters.minute < minute) this.#counters.delete(bucket);
    }
  }
}

interface WindowRow {
  readonly minute: bigint;
  readonly requests: bigint;
  readonly tokens: bigint;
}

interface TimedTake {
  readonly take: WindowTake;
  readonly minute: number;
}

interface BucketGroup {
  readonly first: TimedTake;
  readonly indexes: number[];
  tokens: number;
}

const MAX_BATCH = 256;

/** Adds a whole bucket's takes when all of them fit; a bucket that is not returned is tight. */
const TAKE_GROUP = `INSERT INTO limits_window (bucket, minute, requests, tokens, request_limit, token_limit)
  VALUES ($1, $2, $3, $4, $5, $6)
  ON CONFLICT (bucket) DO UPDATE SET minute = excluded.minute,
  request_limit = excluded.request_limit, token_limit = excluded.token_limit,
  requests = CASE WHEN limits_window.minute = excluded.minute THEN limits_window.requests ELSE 0 END + excluded.requests,
  tokens = CASE WHEN limits_window.minute = excluded.minute THEN limits_window.tokens ELSE 0 END + excluded.tokens
  WHERE limits_window.minute <= excluded.minute
  AND (excluded.request_limit = 0 OR excluded.request_limit >= excluded.requests
    + CASE WHEN limits_window.minute = excluded.minute THEN limits_window.requests ELSE 0 END)
  AND (excluded.token_limit = 0 OR excluded.token_limit >= excluded.tokens
    + CASE WHEN limits_window.minute = excluded.minute THEN limits_window.tokens ELSE 0 END)
  RETURNING minute, requests, tokens`;

/** Windows that several processes share: conditional upserts, one statement a bucket and tick. */
export class StoredWindows implements Windows {
  readonly #store: Store;
  readonly #takes: Batcher<TimedTake, WindowAnswer>;
  readonly #corrections: Batcher<{ reservation: Reservation; usedTokens: number }, undefined>;

  constructor(store: Store) {
    this.#store = store;
    const options = { maxInFlight: 2, maxItems: MAX_BATCH };
    this.#takes = new Batcher((takes) => this.#takeBatch(takes), options);
    this.#corrections = new Batcher((items) => this.#correctBatch(items), options);
  }

  take(take: WindowTake, nowMs: number): Promise<WindowAnswer> {
    return this.#takes.add({ take, minute: Math.floor(nowMs / MINUTE_MS) });
  }

  async correct(reservation: Reservation, usedTokens: number): Promise<void> {
    if (reservation.tokens !== usedTokens) await this.#corrections.add({ reservation, usedTokens });
  }

  async prune(nowMs: number): Promise<void> {
    await this.#store.query('DELETE FROM limits_window WHERE minute < $1', [
      Math.floor(nowMs / MINUTE_MS) - 1,
    ]);
  }

  async #takeBatch(takes: readonly TimedTake[]): Promise<readonly (WindowAnswer | Error)[]> {
    const groups = new Map<string, BucketGroup>();
    for (const [index, timed] of takes.entries()) {
      const group = groups.get(timed.take.bucket);
      if (group === undefined) {
        groups.set(timed.take.bucket, {
          first: timed,
          indexes: [index],
          tokens: tokensOf(timed.take),
        });
      } else {
        group.indexes.push(index);
        group.tokens += tokensOf(timed.take);
      }
    }
    const answers: (WindowAnswer | Error)[] = [];
    await Promise.all(
      [...groups.values()].map(async (group) => {
        const one = await this.#takeGroup(group, takes);
        for (const [place, index] of group.indexes.entries()) {
          const answer = one[place];
          if (answer !== undefined) answers[index] = answer;
        }
      }),
    );
    return answers;
  }

  async #takeGroup(group: BucketGroup, takes: readonly TimedTake[]): Promise<WindowAnswer[]> {
    const { take, minute } = group.first;
    const fits =
      (take.requestLimit === 0 || group.indexes.length <= take.requestLimit) &&
      (take.tokenLimit === 0 || group.tokens <= take.tokenLimit);
    const row = fits
      ? await this.#add(take, minute, group.indexes.length, group.tokens)
      : undefined;
    const wanted = group.indexes.flatMap((index) => takes[index] ?? []);
    if (row === undefined) return this.#takeTight(wanted);
    const counters = {
      minute: Number(row.minute),
      requests: Number(row.requests) - group.indexes.length,
      tokens: Number(row.tokens) - group.tokens,
    };
    return wanted.map((timed) => countTake(timed.take, counters));
  }

  async #add(
    take: WindowTake,
    minute: number,
    requests: number,
    tokens: number,
  ): Promise<WindowRow | undefined> {
    const parameters = [take.bucket, minute, requests, tokens, take.requestLimit, take.tokenLimit];
    const [row] = await this.#store.transaction(
      (tx) => tx.query<WindowRow>(TAKE_GROUP, parameters),
      { durable: false },
    );
    return row;
  }

  /** Near the limit: one at a time under the lock of the row, so exactly the allowed number pass. */
  #takeTight(wanted: readonly TimedTake[]): Promise<WindowAnswer[]> {
    return this.#store.transaction(
      async (tx) => {
        const answers: WindowAnswer[] = [];
        for (const { take, minute } of wanted) {
          const lock = this.#store.dialect === 'postgres' ? ' FOR UPDATE' : '';
          await tx.query(
            `INSERT INTO limits_window (bucket, minute, requests, tokens, request_limit, token_limit)
             VALUES ($1, $2, 0, 0, $3, $4) ON CONFLICT (bucket) DO NOTHING`,
            [take.bucket, minute, take.requestLimit, take.tokenLimit],
          );
          const [row] = await tx.query<WindowRow>(
            `SELECT minute, requests, tokens FROM limits_window WHERE bucket = $1${lock}`,
            [take.bucket],
          );
          const runs = row !== undefined && Number(row.minute) >= minute;
          const counters = {
            minute: runs ? Number(row.minute) : minute,
            requests: runs ? Number(row.requests) : 0,
            tokens: runs ? Number(row.tokens) : 0,
          };
          const answer = countTake(take, counters);
          answers.push(answer);
          if (!answer.ok) continue;
          await tx.query(
            'UPDATE limits_window SET minute = $2, requests = $3, tokens = $4 WHERE bucket = $1',
            [take.bucket, counters.minute, counters.requests, counters.tokens],
          );
        }
        return answers;
      },
      { durable: false },
    );
  }

  async #correctBatch(
    items: readonly { reservation: Reservation; usedTokens: number }[],
  ): Promise<readonly undefined[]> {
    const sums = new Map<string, { bucket: string; minute: number; change: number }>();
    for (const { reservation, usedTokens } of items) {
      const key = `${reservation.bucket}\n${reservation.minute}`;
      const sum = sums.get(key) ?? { ...reservation, change: 0 };
      sum.change += usedTokens - reservation.tokens;
      sums.set(key, sum);
    }
    await this.#store.transaction(
      async (tx) => {
        for (const key of [...sums.keys()].sort()) {
          const sum = sums.get(key);
          if (sum === undefined) continue;
          await tx.query(
            `UPDATE limits_window SET tokens = CASE WHEN tokens + $3 < 0 THEN 0 ELSE tokens + $3 END
             WHERE bucket = $1 AND minute = $2`,
            [sum.bucket, sum.minute, sum.change],
          );
        }
      },
      { durable: false },
    );
    return items.map(() => undefined);
  }
}
