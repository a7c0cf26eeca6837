/**
 * Grants parts of rate windows, under the lock of their rows: what a process has left of its lease
 * comes back, its takes are counted one by one, and of what is left then it gets its part anew.
 */
import { assert } from '../../core/assert.ts';
import type { Due, DueGroup } from '../../core/due-queue.ts';
import type { Queryable } from '../../db/db.ts';
import {
  type Counters,
  type WindowAnswer,
  type WindowTake,
  countTake,
  tokensOf,
} from './in-memory.ts';

/** A lease of fewer requests is not worth it. */
const LEAST_REQUESTS = 4;
export interface AskingTake {
  readonly take: WindowTake;
  readonly minute: number;
  readonly resolve: (answer: WindowAnswer) => void;
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
  asking: AskingTake[];
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
}

export interface GrantedWindow {
  readonly row: Counters;
  readonly answers: readonly WindowAnswer[];
  readonly requestsLeased: number;
  readonly tokensLeased: number;
  readonly isLeasedElsewhere: boolean;
}

interface GrantContext {
  readonly minute: number;
  readonly isHeard: boolean;
  readonly processes: number;
}

interface WindowRow {
  readonly bucket: string;
  readonly minute: bigint;
  readonly requests: bigint;
  readonly tokens: bigint;
  readonly leased_minute: bigint;
  readonly leased_requests: bigint;
  readonly leased_tokens: bigint;
}

const LOCK = `SELECT bucket, minute, requests, tokens, leased_minute, leased_requests, leased_tokens
  FROM limits_window WHERE bucket IN (SELECT json_array_elements_text($1::json))
  ORDER BY bucket FOR UPDATE`;
const ADD_MISSING = `INSERT INTO limits_window (bucket, minute, requests, tokens, request_limit, token_limit)
  SELECT b, 0, 0, 0, 0, 0 FROM json_array_elements_text($1::json) AS b ORDER BY b
  ON CONFLICT (bucket) DO NOTHING`;
const SAVE = `UPDATE limits_window w SET minute = t.minute, requests = t.requests, tokens = t.tokens,
    request_limit = t.request_limit, token_limit = t.token_limit, leased_minute = t.minute,
    leased_requests = t.leased_requests, leased_tokens = t.leased_tokens
  FROM json_to_recordset($1::json) AS t(bucket text, minute bigint, requests bigint, tokens bigint,
    request_limit bigint, token_limit bigint, leased_requests bigint, leased_tokens bigint)
  WHERE w.bucket = t.bucket`;

export async function grantWindows(
  tx: Queryable,
  context: GrantContext,
  asked: readonly AskedBucket[],
): Promise<readonly GrantedWindow[]> {
  const names = JSON.stringify(asked.map(({ bucket }) => bucket.name));
  let rows = await tx.query<WindowRow>(LOCK, [names]);
  if (rows.length < asked.length) {
    await tx.query(ADD_MISSING, [names]);
    rows = await tx.query<WindowRow>(LOCK, [names]);
  }
  const byName = new Map(rows.map((row) => [row.bucket, row]));
  const saved: unknown[] = [];
  const granted = asked.map((one) => {
    const row = byName.get(one.bucket.name);
    assert(row !== undefined, 'each bucket has its row');
    return grantOne(context, one, row, saved);
  });
  await tx.query(SAVE, [JSON.stringify(saved)]);
  return granted;
}

function grantOne(
  context: GrantContext,
  { bucket, entries, requestsLeft, tokensLeft, correction }: AskedBucket,
  row: WindowRow,
  saved: unknown[],
): GrantedWindow {
  const minute = Math.max(Number(row.minute), context.minute);
  const isRunning = Number(row.minute) === minute;
  const counters: Counters = {
    minute,
    requests: isRunning ? Number(row.requests) : 0,
    tokens: isRunning ? Number(row.tokens) : 0,
  };
  // What others have leased, and what is left of the own lease.
  const isLeased = isRunning && Number(row.leased_minute) === minute;
  let requestsElsewhere = isLeased ? Number(row.leased_requests) : 0;
  let tokensElsewhere = isLeased ? Number(row.leased_tokens) : 0;
  if (bucket.counters.minute === minute) {
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
  saved.push({
    bucket: bucket.name,
    ...counters,
    request_limit: last?.requestLimit ?? bucket.requestLimit,
    token_limit: last?.tokenLimit ?? bucket.tokenLimit,
    leased_requests: requestsElsewhere + leased.requests,
    leased_tokens: tokensElsewhere + leased.tokens,
  });
  return {
    row: counters,
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

export function countHere(bucket: Bucket, take: WindowTake): WindowAnswer {
  if (take.requestLimit > 0) bucket.requestsLeft -= 1;
  if (take.tokenLimit > 0) bucket.tokensLeft -= tokensOf(take);
  return countTake(take, bucket.counters);
}
