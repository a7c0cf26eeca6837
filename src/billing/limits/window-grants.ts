/**
 * Grants parts of rate windows: the unused rest of a process's lease is returned, its takes are
 * counted one by one, and a new part of the remaining capacity is leased.
 *
 * Rows are locked in order of name. Transactions are not durable: a window lost in a crash costs no
 * money.
 */
import * as z from 'zod';
import { assert } from '../../core/assert.ts';
import { MINUTE_MS } from '../../core/clock.ts';
import {
  type Part,
  type PartCall,
  type Queryable,
  type SharedStore,
  Whole,
  rowShape,
  shareDivisor,
} from '../../db/db.ts';
import {
  type Counters,
  type WindowResult,
  type WindowTake,
  addTake,
  countTake,
} from './process-limits.ts';

/** A lease of fewer requests is not worth its cost. */
const LEAST_REQUESTS = 4;

/** A bucket as this process knows it; `counters` includes leases of others as used. */
export interface Bucket extends Part<Bucket, WindowTake, WindowResult> {
  counters: Counters;
  requestLimit: number;
  tokenLimit: number;
  /** Leased and not used yet; tokens can be negative. */
  requestsLeft: number;
  tokensLeft: number;
  requestsLeased: number;
  tokensLeased: number;
  fullMinute: number;
  /** It has had a lease since its last reply to a recall. */
  mustReply: boolean;
  correction: number;
  correctionMinute: number;
}

export interface BucketCall extends PartCall<Bucket, WindowTake, WindowResult> {
  readonly requestsLeft: number;
  readonly tokensLeft: number;
  readonly correction: number;
  /** Other processes need the capacity: the grant leases nothing. */
  readonly isContested: boolean;
}

export interface GrantedWindow {
  readonly counters: Counters;
  readonly row: WindowRow;
  readonly results: readonly WindowResult[];
  readonly requestsLeased: number;
  readonly tokensLeased: number;
  readonly isLeasedElsewhere: boolean;
}

interface GrantContext {
  readonly minute: number;
  /**
   * The latest minute that this process has seen. A row later than `minute` but not later than this
   * was written before the clock was set back, and continues as the window of `minute`. A row later
   * than this was written by a process whose clock is ahead, which the others follow.
   */
  readonly latestMinute: number;
  /** Other processes can recall a lease of this one. */
  readonly mayLease: boolean;
  readonly processes: number;
}

/** A row of `limits_window`: the counts, and the leased part of them, which may be unused. */
const Row = rowShape({
  bucket: z.string(),
  minute: Whole,
  requests: Whole,
  tokens: Whole,
  leasedMinute: Whole,
  leasedRequests: Whole,
  leasedTokens: Whole,
});
export type WindowRow = Omit<ReturnType<typeof Row.parse>, 'bucket'>;

const LOCK = `SELECT ${Row.columns} FROM limits_window
  WHERE bucket IN (SELECT json_array_elements_text($1::json)) ORDER BY bucket FOR UPDATE`;
const ADD_MISSING = `INSERT INTO limits_window (bucket, minute, requests, tokens, request_limit, token_limit)
  SELECT b, 0, 0, 0, 0, 0 FROM json_array_elements_text($1::json) AS b ORDER BY b
  ON CONFLICT (bucket) DO NOTHING`;
const SAVE = `UPDATE limits_window SET minute = $1, requests = $2, tokens = $3, request_limit = $4,
  token_limit = $5, leased_minute = $6, leased_requests = $7, leased_tokens = $8 WHERE bucket = $9`;

export function grantWindows(
  store: SharedStore,
  context: GrantContext,
  calls: readonly BucketCall[],
): Promise<readonly GrantedWindow[]> {
  return store.transaction(
    async (tx) => {
      const rows = await lockRows(tx, calls);
      const granted = calls.map((call) => {
        const row = rows.get(call.part.counter.name);
        assert(row !== undefined, 'each bucket has its row');
        return { call, grant: grantOne(context, call, row) };
      });
      await tx.run(granted.map(({ call, grant }) => saveOf(call, grant)));
      return granted.map(({ grant }) => grant);
    },
    { durable: false },
  );
}

function saveOf({ part: bucket, waiting }: BucketCall, { row }: GrantedWindow) {
  const { requestLimit, tokenLimit } = waiting.at(-1)?.request ?? bucket;
  const counted = [row.minute, row.requests, row.tokens, requestLimit, tokenLimit];
  const leased = [row.leasedMinute, row.leasedRequests, row.leasedTokens];
  return { sql: SAVE, parameters: [...counted, ...leased, bucket.counter.name] };
}

async function lockRows(
  tx: Queryable,
  calls: readonly BucketCall[],
): Promise<ReadonlyMap<string, WindowRow>> {
  const names = [JSON.stringify(calls.map(({ part }) => part.counter.name))];
  let rows = await tx.query(LOCK, names);
  if (rows.length < calls.length) {
    await tx.query(ADD_MISSING, names);
    rows = await tx.query(LOCK, names);
  }
  return new Map(rows.map(Row.parse).map((row) => [row.bucket, row]));
}

function grantOne(
  context: GrantContext,
  { part: bucket, waiting, requestsLeft, tokensLeft, correction, isContested }: BucketCall,
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
  // Leases of others, and the rest of the own lease.
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
  const results = waiting.map(({ request }) => {
    const result = countTake(request, counters);
    if (!isAhead) return result;
    // A window lasts a minute, also by the clock that is ahead.
    const state = { ...result.state, resetsAtMs: (context.minute + 1) * MINUTE_MS };
    return { ...result, state };
  });
  const last = waiting.at(-1)?.request;
  const mayLease = context.mayLease && !isContested && results.every(({ ok }) => ok);
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
    results,
    requestsLeased: leased.requests,
    tokensLeased: leased.tokens,
    isLeasedElsewhere: requestsElsewhere > 0 || tokensElsewhere > 0,
  };
}

const NONE = { requests: 0, tokens: 0 };

function leaseOf(
  take: WindowTake,
  counters: Readonly<Counters>,
  processes: number,
): { readonly requests: number; readonly tokens: number } {
  const { requestLimit, tokenLimit } = take;
  const part = (limit: number, used: number): number =>
    Math.floor(Math.max(0, limit - used) / shareDivisor(processes));
  const requests = part(requestLimit, counters.requests);
  const tokens = part(tokenLimit, counters.tokens);
  if (requestLimit > 0 && requests < LEAST_REQUESTS) return NONE;
  if (tokenLimit > 0 && tokens < LEAST_REQUESTS * take.tokens) return NONE;
  return { requests, tokens };
}

export function hasCapacity(bucket: Bucket, take: WindowTake): boolean {
  if (take.requestLimit > 0 && bucket.requestsLeft < 1) return false;
  return take.tokenLimit === 0 || bucket.tokensLeft >= take.tokens;
}

export function countHere(bucket: Bucket, take: WindowTake): WindowResult {
  if (take.requestLimit > 0) bucket.requestsLeft -= 1;
  if (take.tokenLimit > 0) bucket.tokensLeft -= take.tokens;
  // The lease has capacity, whatever others have used meanwhile.
  return addTake(take, bucket.counters);
}
