/**
 * Grants parts of rate windows: what a process has left of its lease comes back, its takes are
 * counted one by one, and of what is left then it gets its part anew.
 *
 * Worked out from what the row was when this process last saw it (nothing, when a minute begins) and
 * written if it still is that, in one statement for all buckets; where another process was there in
 * between, from what it left; and where many are, under the lock of the rows.
 */
import { assert } from '../../core/assert.ts';
import type { Due, DueGroup } from '../../core/due-queue.ts';
import { type Queryable, type SharedStore, flushedIf } from '../../db/db.ts';
import {
  type Counters,
  type WindowResult,
  type WindowTake,
  addTake,
  countTake,
  tokensOf,
} from './process-limits.ts';

/** A lease of fewer requests is not worth it. */
const LEAST_REQUESTS = 4;
/** Statements that try to find rows as they were, before they are locked. */
const TRIES = 2;

export interface AskingTake {
  readonly take: WindowTake;
  readonly minute: number;
  readonly resolve: (answer: WindowResult) => void;
  readonly reject: (error: unknown) => void;
  /** Until when it waits for what others have leased; 0 before they are asked. */
  waitsUntilMs: number;
}

/** A bucket as this process knows it; `counters` has what others leased as used. */
export interface Bucket extends Due, DueGroup {
  readonly name: string;
  counters: Counters;
  requestLimit: number;
  tokenLimit: number;
  /** Counted in the row and not used yet; tokens can be owed. */
  requestsLeft: number;
  tokensLeft: number;
  /** What the row has as leased by this process. */
  requestsLeased: number;
  tokensLeased: number;
  /** Nothing is leased in this minute any more: others need it. */
  contestedMinute: number;
  /** All requests of this minute have passed. */
  fullMinute: number;
  /** It was called back. */
  mustFree: boolean;
  /** Its lease has ended, and nobody has heard so. */
  isUntold: boolean;
  /** How often others were heard to have given back what they had leased. */
  freed: number;
  asking: AskingTake[];
  /** As this process has last seen or written it. */
  row: WindowRow;
  /** Change of the tokens, for the row. */
  correction: number;
  correctionMinute: number;
}

export interface AskedBucket {
  readonly bucket: Bucket;
  readonly entries: readonly AskingTake[];
  /** As it was when it was asked for. */
  readonly requestsLeft: number;
  readonly tokensLeft: number;
  readonly correction: number;
  /** It was called back before: with the answer, nothing is leased any more. */
  readonly isFreeing: boolean;
  readonly freed: number;
}

export interface GrantedWindow {
  readonly counters: Counters;
  /** What it is in the database from now on. */
  readonly row: WindowRow;
  readonly answers: readonly WindowResult[];
  readonly requestsLeased: number;
  readonly tokensLeased: number;
  readonly isLeasedElsewhere: boolean;
}

interface GrantContext {
  readonly minute: number;
  /**
   * The latest minute that this process has seen. A row above `minute` and up to it was written before
   * the clock was set back, and goes on as the window of `minute`; a row above it is of a process
   * whose clock is ahead, which the others follow.
   */
  readonly latestMinute: number;
  readonly isHeard: boolean;
  readonly processes: number;
}

/** A row of `limits_window`: what is counted, and what of that is leased and maybe not used. */
export interface WindowRow {
  readonly minute: number;
  readonly requests: number;
  readonly tokens: number;
  readonly leasedMinute: number;
  readonly leasedRequests: number;
  readonly leasedTokens: number;
}

/** Of a bucket that was not seen yet: in a minute that begins, all that was before is nothing. */
export const UNSEEN: WindowRow = {
  minute: 0,
  requests: 0,
  tokens: 0,
  leasedMinute: 0,
  leasedRequests: 0,
  leasedTokens: 0,
};

interface StoredRow {
  readonly bucket: string;
  readonly minute: bigint;
  readonly requests: bigint;
  readonly tokens: bigint;
  readonly leased_minute: bigint;
  readonly leased_requests: bigint;
  readonly leased_tokens: bigint;
}

/** Locks rows in order of bucket, as everything here does. */
function lockOf(names: string): string {
  return `SELECT bucket, minute, requests, tokens, leased_minute, leased_requests, leased_tokens
    FROM limits_window WHERE bucket IN (${names}) ORDER BY bucket FOR UPDATE`;
}

const LOCK = lockOf('SELECT json_array_elements_text($1::json)');
const ADD_MISSING = `INSERT INTO limits_window (bucket, minute, requests, tokens, request_limit, token_limit)
  SELECT b, 0, 0, 0, 0, 0 FROM json_array_elements_text($1::json) AS b ORDER BY b
  ON CONFLICT (bucket) DO NOTHING`;
const SET = `SET minute = t.minute, requests = t.requests, tokens = t.tokens,
    request_limit = t.request_limit, token_limit = t.token_limit, leased_minute = t.minute,
    leased_requests = t.leased_requests, leased_tokens = t.leased_tokens`;
const ASKED = `json_to_recordset($1::json) AS t(bucket text, minute bigint, requests bigint,
    tokens bigint, request_limit bigint, token_limit bigint, leased_requests bigint,
    leased_tokens bigint, was json)`;
const SAVE = `UPDATE limits_window w ${SET} FROM ${ASKED} WHERE w.bucket = t.bucket`;
const AS_IT_WAS = `(l.minute = (t.was->>'minute')::bigint
    AND l.requests = (t.was->>'requests')::bigint AND l.tokens = (t.was->>'tokens')::bigint
    AND l.leased_minute = (t.was->>'leasedMinute')::bigint
    AND l.leased_requests = (t.was->>'leasedRequests')::bigint
    AND l.leased_tokens = (t.was->>'leasedTokens')::bigint)`;
/** What is not saved comes back as it is. */
const SAVE_IF = `WITH t AS MATERIALIZED (SELECT * FROM ${ASKED}), locked AS MATERIALIZED (
  ${lockOf('SELECT bucket FROM t')}
), saved AS (
  UPDATE limits_window w ${SET} FROM t JOIN locked l ON l.bucket = t.bucket
  WHERE w.bucket = t.bucket AND (l.minute < t.minute OR ${AS_IT_WAS}) RETURNING w.bucket
), added AS (
  INSERT INTO limits_window (bucket, minute, requests, tokens, request_limit, token_limit,
    leased_minute, leased_requests, leased_tokens)
  SELECT bucket, minute, requests, tokens, request_limit, token_limit, minute, leased_requests,
    leased_tokens FROM t WHERE bucket NOT IN (SELECT bucket FROM locked) ORDER BY bucket
  ON CONFLICT (bucket) DO NOTHING RETURNING bucket
)
SELECT t.bucket, l.minute, l.requests, l.tokens, l.leased_minute, l.leased_requests, l.leased_tokens,
  s.bucket IS NOT NULL OR a.bucket IS NOT NULL AS is_saved
FROM t LEFT JOIN locked l ON l.bucket = t.bucket LEFT JOIN saved s ON s.bucket = t.bucket
  LEFT JOIN added a ON a.bucket = t.bucket CROSS JOIN (SELECT ${flushedIf('false')}) AS quick`;

type TriedRow = { readonly [column in keyof StoredRow]: StoredRow[column] | null } & {
  readonly bucket: string;
  readonly is_saved: boolean;
};

export async function grantWindows(
  store: SharedStore,
  context: GrantContext,
  asked: readonly AskedBucket[],
): Promise<readonly GrantedWindow[]> {
  const granted = new Map<string, GrantedWindow>();
  let left = asked.map((one) => ({ one, row: one.bucket.row }));
  for (let attempt = 0; attempt < TRIES && left.length > 0; attempt += 1) {
    const plans = new Map(
      left.map(({ one, row }) => [
        one.bucket.name,
        { one, plan: grantOne(context, one, row), row },
      ]),
    );
    const items = [...plans.values()].map(({ one, plan, row }) => ({
      ...itemOf(one, plan),
      was: row,
    }));
    left = [];
    for (const row of await store.query<TriedRow>(SAVE_IF, [JSON.stringify(items)])) {
      const planned = plans.get(row.bucket);
      assert(planned !== undefined, 'only what was asked for comes back');
      if (row.is_saved) granted.set(row.bucket, planned.plan);
      else left.push({ one: planned.one, row: rowOf(row) });
    }
  }
  const rest = left.map(({ one }) => one);
  for (const [name, plan] of rest.length > 0 ? await grantLocked(store, context, rest) : []) {
    granted.set(name, plan);
  }
  return asked.map(({ bucket }) => {
    const one = granted.get(bucket.name);
    assert(one !== undefined, 'each bucket has its answer');
    return one;
  });
}

/** Under the lock of their rows, whoever else asks for them. */
function grantLocked(
  store: SharedStore,
  context: GrantContext,
  asked: readonly AskedBucket[],
): Promise<ReadonlyMap<string, GrantedWindow>> {
  const names = JSON.stringify(asked.map(({ bucket }) => bucket.name));
  return store.transaction(
    async (tx) => {
      const byName = new Map(
        (await lockRows(tx, names, asked.length)).map((row) => [row.bucket, row]),
      );
      const granted = new Map<string, GrantedWindow>();
      const items = asked.map((one) => {
        const row = byName.get(one.bucket.name);
        assert(row !== undefined, 'each bucket has its row');
        const plan = grantOne(context, one, rowOf(row));
        granted.set(one.bucket.name, plan);
        return itemOf(one, plan);
      });
      await tx.query(SAVE, [JSON.stringify(items)]);
      return granted;
    },
    { durable: false },
  );
}

async function lockRows(
  tx: Queryable,
  names: string,
  count: number,
): Promise<readonly StoredRow[]> {
  const rows = await tx.query<StoredRow>(LOCK, [names]);
  if (rows.length === count) return rows;
  await tx.query(ADD_MISSING, [names]);
  return tx.query<StoredRow>(LOCK, [names]);
}

function rowOf(row: Partial<TriedRow>): WindowRow {
  return {
    minute: Number(row.minute ?? 0n),
    requests: Number(row.requests ?? 0n),
    tokens: Number(row.tokens ?? 0n),
    leasedMinute: Number(row.leased_minute ?? 0n),
    leasedRequests: Number(row.leased_requests ?? 0n),
    leasedTokens: Number(row.leased_tokens ?? 0n),
  };
}

function itemOf({ bucket, entries }: AskedBucket, { row }: GrantedWindow) {
  const last = entries.at(-1)?.take;
  return {
    bucket: bucket.name,
    minute: row.minute,
    requests: row.requests,
    tokens: row.tokens,
    request_limit: last?.requestLimit ?? bucket.requestLimit,
    token_limit: last?.tokenLimit ?? bucket.tokenLimit,
    leased_requests: row.leasedRequests,
    leased_tokens: row.leasedTokens,
  };
}

function grantOne(
  context: GrantContext,
  { bucket, entries, requestsLeft, tokensLeft, correction }: AskedBucket,
  row: WindowRow,
): GrantedWindow {
  const isAhead = row.minute > context.latestMinute;
  const minute = isAhead ? row.minute : context.minute;
  const isRunning = row.minute >= minute;
  const counters: Counters = {
    minute,
    requests: isRunning ? row.requests : 0,
    tokens: isRunning ? row.tokens : 0,
  };
  // What others have leased, and what is left of the own lease.
  const isLeased = isRunning && row.leasedMinute === row.minute;
  let requestsElsewhere = isLeased ? row.leasedRequests : 0;
  let tokensElsewhere = isLeased ? row.leasedTokens : 0;
  if (isRunning && bucket.counters.minute === row.minute) {
    requestsElsewhere = Math.max(0, requestsElsewhere - bucket.requestsLeased);
    tokensElsewhere = Math.max(0, tokensElsewhere - bucket.tokensLeased);
    counters.requests = Math.max(0, counters.requests - requestsLeft);
    counters.tokens = Math.max(0, counters.tokens - tokensLeft);
  }
  if (bucket.correctionMinute === minute) counters.tokens += correction;
  const answers = entries.map(({ take }) => countTake(take, counters));
  const last = entries.at(-1)?.take;
  const mayLease =
    context.isHeard && bucket.contestedMinute !== minute && answers.every(({ ok }) => ok);
  const leased = last !== undefined && mayLease ? leaseOf(last, counters, context.processes) : NONE;
  counters.requests += leased.requests;
  counters.tokens += leased.tokens;
  return {
    counters,
    row: {
      ...counters,
      leasedMinute: minute,
      leasedRequests: requestsElsewhere + leased.requests,
      leasedTokens: tokensElsewhere + leased.tokens,
    },
    answers,
    requestsLeased: leased.requests,
    tokensLeased: leased.tokens,
    isLeasedElsewhere: requestsElsewhere > 0 || tokensElsewhere > 0,
  };
}

const NONE = { requests: 0, tokens: 0 };

/** A part of what is left, for one of all processes. */
function leaseOf(
  take: WindowTake,
  counters: Readonly<Counters>,
  processes: number,
): { readonly requests: number; readonly tokens: number } {
  const { requestLimit, tokenLimit } = take;
  const part = (limit: number, used: number): number =>
    Math.floor(Math.max(0, limit - used) / (2 * processes));
  const requests = part(requestLimit, counters.requests);
  const tokens = part(tokenLimit, counters.tokens);
  if (requestLimit > 0 && requests < LEAST_REQUESTS) return NONE;
  if (tokenLimit > 0 && tokens < LEAST_REQUESTS * tokensOf(take)) return NONE;
  return { requests, tokens };
}

export function hasRoom(bucket: Bucket, take: WindowTake): boolean {
  if (take.requestLimit > 0 && bucket.requestsLeft < 1) return false;
  return take.tokenLimit === 0 || bucket.tokensLeft >= tokensOf(take);
}

export function countHere(bucket: Bucket, take: WindowTake): WindowResult {
  if (take.requestLimit > 0) bucket.requestsLeft -= 1;
  if (take.tokenLimit > 0) bucket.tokensLeft -= tokensOf(take);
  // The lease has room, whatever others have used meanwhile.
  return addTake(take, bucket.counters);
}
