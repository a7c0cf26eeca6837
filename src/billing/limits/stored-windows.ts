/**
 * Rate windows that several processes share, on PostgreSQL: the takes of a tick are one conditional
 * upsert that grants a bucket all of them or nothing. What is not granted is counted one by one
 * under the lock of the bucket's row, so exactly the allowed number pass.
 *
 * Buckets are locked in order of name. Nothing here waits for the disk: a window that a crash
 * forgets costs nobody money.
 */
import { MINUTE_MS } from '../../core/clock.ts';
import {
  Batcher,
  type ComposedRow,
  type Queryable,
  type StatementPart,
  type Store,
  runTogether,
} from '../../db/db.ts';
import {
  type Counters,
  type Reservation,
  type WindowAnswer,
  type WindowTake,
  type Windows,
  correctedMinute,
  countTake,
  tokensOf,
} from './in-memory.ts';

interface TimedTake {
  readonly take: WindowTake;
  readonly minute: number;
}

/** What is to be added to a bucket in a minute. */
interface Correction {
  readonly bucket: string;
  readonly minute: number;
  readonly change: number;
}

interface BucketGroup {
  readonly first: TimedTake;
  /** Places in the batch whose limits and minute are those of the first. */
  readonly indexes: number[];
  tokens: number;
}

/** Takes of one tick as a part of a statement. */
export interface TakeTogether {
  /** Its relation `window_granted(key)` has the key of every take that is granted. */
  readonly part: StatementPart;
  /** In order; a take that has to be counted under a lock has none. */
  readonly keys: readonly (string | undefined)[];
  /** In order; `undefined` for a take that has to be counted under a lock. */
  readonly read: (rows: readonly ComposedRow[]) => (WindowAnswer | undefined)[];
}

const MAX_BATCH = 256;

/** Adds a bucket's takes when all of them fit; a bucket that is not returned is looked at under its lock. */
const TAKE = `window_take AS (
  SELECT * FROM json_to_recordset($::json) AS t(bucket text, minute bigint, requests bigint,
    tokens bigint, request_limit bigint, token_limit bigint)
), window_taken AS (
  INSERT INTO limits_window (bucket, minute, requests, tokens, request_limit, token_limit)
  SELECT bucket, minute, requests, tokens, request_limit, token_limit FROM window_take
  WHERE (request_limit = 0 OR requests <= request_limit) AND (token_limit = 0 OR tokens <= token_limit)
  ORDER BY bucket
  ON CONFLICT (bucket) DO UPDATE SET minute = excluded.minute,
    request_limit = excluded.request_limit, token_limit = excluded.token_limit,
    requests = CASE WHEN limits_window.minute = excluded.minute THEN limits_window.requests ELSE 0 END + excluded.requests,
    tokens = CASE WHEN limits_window.minute = excluded.minute THEN limits_window.tokens ELSE 0 END + excluded.tokens
  WHERE limits_window.minute <= excluded.minute
    AND (excluded.request_limit = 0 OR excluded.request_limit >= excluded.requests
      + CASE WHEN limits_window.minute = excluded.minute THEN limits_window.requests ELSE 0 END)
    AND (excluded.token_limit = 0 OR excluded.token_limit >= excluded.tokens
      + CASE WHEN limits_window.minute = excluded.minute THEN limits_window.tokens ELSE 0 END)
  RETURNING bucket, minute, requests, tokens
), window_granted AS (SELECT bucket AS key FROM window_taken)`;
const TAKEN_ROWS = `SELECT 'window' AS part, bucket AS id, minute AS a, requests AS b, tokens AS c
  FROM window_taken`;

const CORRECT = `window_change AS (
  SELECT * FROM json_to_recordset($::json) AS t(bucket text, minute bigint, change bigint)
), window_locked AS (
  SELECT w.bucket FROM limits_window w WHERE w.bucket IN (SELECT bucket FROM window_change)
  ORDER BY w.bucket FOR UPDATE
), window_corrected AS (
  UPDATE limits_window w SET minute = t.minute,
    requests = CASE WHEN w.minute = t.minute THEN w.requests ELSE 0 END,
    tokens = greatest(0, CASE WHEN w.minute = t.minute THEN w.tokens ELSE 0 END + t.change)
  FROM window_change t JOIN window_locked l ON l.bucket = t.bucket
  WHERE w.bucket = t.bucket AND (w.minute = t.minute OR (w.minute < t.minute AND t.change > 0))
  RETURNING w.bucket, w.minute, w.requests, w.tokens
)`;
const CORRECTED_ROWS = `SELECT 'corrected' AS part, bucket AS id, minute AS a, requests AS b,
  tokens AS c FROM window_corrected`;

export class StoredWindows implements Windows {
  readonly #store: Store;
  readonly #takes: Batcher<TimedTake, WindowAnswer>;
  readonly #locked: Batcher<TimedTake, WindowAnswer>;
  readonly #corrections: Batcher<Correction, Counters | undefined>;

  constructor(store: Store) {
    this.#store = store;
    const options = { maxInFlight: 2, maxItems: MAX_BATCH };
    this.#takes = new Batcher((takes) => this.#takeBatch(takes), options);
    this.#locked = new Batcher((takes) => this.#countLocked(takes), options);
    this.#corrections = new Batcher((items) => this.#correctBatch(items), {
      ...options,
      maxInFlight: 1,
    });
  }

  take(take: WindowTake, nowMs: number): Promise<WindowAnswer> {
    return this.#takes.add(timed(take, nowMs));
  }

  /** Counts under the lock of the bucket, where `takeTogether` had no answer. */
  takeLocked(take: WindowTake, nowMs: number): Promise<WindowAnswer> {
    return this.#locked.add(timed(take, nowMs));
  }

  /** The takes as a part of a statement that others share. */
  takeTogether(takes: readonly WindowTake[], nowMs: number): TakeTogether {
    return together(takes.map((take) => timed(take, nowMs)));
  }

  async correct(
    reservation: Reservation,
    usedTokens: number,
    nowMs: number,
  ): Promise<Counters | undefined> {
    const { bucket, tokens } = reservation;
    if (tokens === usedTokens) return undefined;
    const minute = correctedMinute(reservation, usedTokens, nowMs);
    return this.#corrections.add({ bucket, minute, change: usedTokens - tokens });
  }

  async prune(nowMs: number): Promise<void> {
    await this.#store.query('DELETE FROM limits_window WHERE minute < $1', [
      Math.floor(nowMs / MINUTE_MS) - 1,
    ]);
  }

  /** What needs a lock is counted apart, so that the others do not wait for it. */
  async #takeBatch(takes: readonly TimedTake[]) {
    const { part, read } = together(takes);
    const answers = read(await runTogether(this.#store, [part], { durable: false }));
    return takes.map((take, index) => answers[index] ?? this.#locked.add(take));
  }

  #countLocked(takes: readonly TimedTake[]): Promise<WindowAnswer[]> {
    return this.#store.transaction(
      async (tx) => {
        const answers: WindowAnswer[] = [];
        const buckets = Map.groupBy(takes.keys(), (index) => takes[index]?.take.bucket ?? '');
        for (const bucket of [...buckets.keys()].toSorted()) {
          const indexes = buckets.get(bucket) ?? [];
          const wanted = indexes.flatMap((index) => takes[index] ?? []);
          const counted = await countBucket(tx, wanted);
          for (const [place, index] of indexes.entries()) {
            const answer = counted[place];
            if (answer !== undefined) answers[index] = answer;
          }
        }
        return answers;
      },
      { durable: false },
    );
  }

  async #correctBatch(items: readonly Correction[]): Promise<readonly (Counters | undefined)[]> {
    const sums = new Map<string, { bucket: string; minute: number; change: number }>();
    for (const { bucket, minute, change } of items) {
      // Of one bucket only the newest window can still run.
      const sum = sums.get(bucket);
      if (sum === undefined || sum.minute < minute) sums.set(bucket, { bucket, minute, change });
      else if (sum.minute === minute) sum.change += change;
    }
    const parameter = JSON.stringify([...sums.values()]);
    const part = { expressions: CORRECT, rows: CORRECTED_ROWS, parameter };
    const rows = await runTogether(this.#store, [part], { durable: false });
    const counted = new Map<string, Counters>();
    for (const { id, a, b, c } of rows) {
      counted.set(id, { minute: Number(a), requests: Number(b), tokens: Number(c) });
    }
    return items.map(({ bucket }) => counted.get(bucket));
  }
}

function timed(take: WindowTake, nowMs: number): TimedTake {
  return { take, minute: Math.floor(nowMs / MINUTE_MS) };
}

function together(takes: readonly TimedTake[]): TakeTogether {
  const groups = groupsOf(takes);
  const rows = [...groups.values()].map(({ first, indexes, tokens }) => ({
    bucket: first.take.bucket,
    minute: first.minute,
    requests: indexes.length,
    tokens,
    request_limit: first.take.requestLimit,
    token_limit: first.take.tokenLimit,
  }));
  const keys: (string | undefined)[] = takes.map(() => undefined);
  for (const [bucket, { indexes }] of groups) for (const index of indexes) keys[index] = bucket;
  return {
    part: { expressions: TAKE, rows: TAKEN_ROWS, parameter: JSON.stringify(rows) },
    keys,
    read: (answered) => {
      const answers: (WindowAnswer | undefined)[] = takes.map(() => undefined);
      for (const row of answered) {
        const group = row.part === 'window' ? groups.get(row.id) : undefined;
        if (group !== undefined) countGranted(group, row, takes, answers);
      }
      return answers;
    },
  };
}

/** A take whose limits or minute differ from the first of its bucket waits for the lock. */
function groupsOf(takes: readonly TimedTake[]): Map<string, BucketGroup> {
  const groups = new Map<string, BucketGroup>();
  for (const [index, one] of takes.entries()) {
    const { take, minute } = one;
    const group = groups.get(take.bucket);
    if (group === undefined) {
      groups.set(take.bucket, { first: one, indexes: [index], tokens: tokensOf(take) });
      continue;
    }
    const { first } = group;
    const isAlike =
      first.minute === minute &&
      first.take.requestLimit === take.requestLimit &&
      first.take.tokenLimit === take.tokenLimit;
    if (!isAlike) continue;
    group.indexes.push(index);
    group.tokens += tokensOf(take);
  }
  return groups;
}

/** The states between: each take sees what was counted before it. */
function countGranted(
  group: BucketGroup,
  row: ComposedRow,
  takes: readonly TimedTake[],
  answers: (WindowAnswer | undefined)[],
): void {
  const counters = {
    minute: Number(row.a),
    requests: Number(row.b) - group.indexes.length,
    tokens: Number(row.c) - group.tokens,
  };
  for (const index of group.indexes) {
    const one = takes[index];
    if (one !== undefined) answers[index] = countTake(one.take, counters);
  }
}

async function countBucket(tx: Queryable, takes: readonly TimedTake[]): Promise<WindowAnswer[]> {
  const [first] = takes;
  if (first === undefined) return [];
  const { bucket, requestLimit, tokenLimit } = first.take;
  await tx.query(
    `INSERT INTO limits_window (bucket, minute, requests, tokens, request_limit, token_limit)
     VALUES ($1, $2, 0, 0, $3, $4) ON CONFLICT (bucket) DO NOTHING`,
    [bucket, first.minute, requestLimit, tokenLimit],
  );
  const [row] = await tx.query<{ minute: bigint; requests: bigint; tokens: bigint }>(
    'SELECT minute, requests, tokens FROM limits_window WHERE bucket = $1 FOR UPDATE',
    [bucket],
  );
  let counters: Counters = {
    minute: Number(row?.minute ?? 0n),
    requests: Number(row?.requests ?? 0n),
    tokens: Number(row?.tokens ?? 0n),
  };
  const answers = takes.map(({ take, minute }) => {
    if (counters.minute < minute) counters = { minute, requests: 0, tokens: 0 };
    return countTake(take, counters);
  });
  if (answers.some((answer) => answer.ok)) {
    await tx.query(
      'UPDATE limits_window SET minute = $2, requests = $3, tokens = $4 WHERE bucket = $1',
      [bucket, counters.minute, counters.requests, counters.tokens],
    );
  }
  return answers;
}
