/**
 * Reads receipts: one receipt, the list of an account page by page, and the prices that were
 * applied.
 *
 * A read touches a bounded number of rows: the rollups show which days have receipts, and rows that
 * a filter excludes are skipped in slices.
 */
import { dayOf, dayStartMs } from '../../core/clock.ts';
import type { Parameter, Queryable } from '../../db/db.ts';
import { type AnyUsageFilter, matching, total } from './usage-sums.ts';

export interface UsageRow {
  readonly request_id: string;
  readonly created_ms: bigint;
  readonly account_id: string;
  readonly key_id: string;
  readonly kind: string;
  readonly model_id: string;
  readonly replica: string | null;
  readonly attempts: bigint;
  readonly prompt_tokens: bigint;
  readonly completion_tokens: bigint;
  readonly cached_tokens: bigint;
  readonly cache_write_tokens: bigint;
  readonly reasoning_tokens: bigint;
  readonly counted_by: string;
  readonly price_version: string;
  readonly usd_nano: bigint;
  readonly diem_nano: bigint;
  readonly latency_ms: bigint;
  readonly first_token_ms: bigint | null;
  readonly status: string;
  readonly extras: string | null;
  readonly reserved_nano: bigint | null;
  readonly metadata: string | null;
  /** Cost at the prices of the supplier, and its lines as JSON; only for operators. */
  readonly cost_nano: bigint | null;
  readonly cost_lines: string | null;
}

export const RECEIPT_COLUMNS = `request_id, created_ms, account_id, key_id, kind, model_id, replica, attempts,
  prompt_tokens, completion_tokens, cached_tokens, cache_write_tokens, reasoning_tokens, counted_by,
  price_version, usd_nano, diem_nano, latency_ms, first_token_ms, status, extras, metadata,
  reserved_nano, cost_nano, cost_lines`;

/** The receipt of a request, of one account or of any. */
export async function receiptOf(
  store: Queryable,
  accountId: string | undefined,
  requestId: string,
): Promise<UsageRow | undefined> {
  const sql = `SELECT ${RECEIPT_COLUMNS} FROM ledger_usage WHERE request_id = $1`;
  const [row] =
    accountId === undefined
      ? await store.query<UsageRow>(sql, [requestId])
      : await store.query<UsageRow>(`${sql} AND account_id = $2`, [requestId, accountId]);
  return row;
}

/** Rows that one statement reads: some milliseconds, during which SQLite serves no one else. */
const SLICE_ROWS = 5_000;
const MAX_SLICES = 40;

/** Conditions on single receipts; missing members match all. */
export interface ReceiptConditions {
  readonly keyId?: string | undefined;
  readonly modelId?: string | undefined;
  readonly kind?: string | undefined;
  readonly status?: string | undefined;
  readonly engine?: string | undefined;
  /** Least cost, in USD and daily credit together. */
  readonly minNano?: bigint | undefined;
  /** Name and value of a tag. */
  readonly tagPair?: readonly [name: string, value: string] | undefined;
}

export interface ReceiptFilter extends ReceiptConditions {
  readonly accountId: string;
  readonly fromDay: number;
  readonly toDay: number;
}

export interface ReceiptPlace {
  readonly createdMs: number;
  readonly requestId: string;
}

export interface ReceiptPage {
  readonly rows: readonly UsageRow[];
  /** Cursor of the next page; `undefined` at the end. A page before the end can be short or empty. */
  readonly next: ReceiptPlace | undefined;
}

export interface ReceiptPageOptions {
  readonly limit: number;
  readonly after?: ReceiptPlace | undefined;
  readonly sliceRows?: number;
}

export async function receiptsOf(
  store: Queryable,
  filter: ReceiptFilter,
  { limit, after, sliceRows = SLICE_ROWS }: ReceiptPageOptions,
): Promise<ReceiptPage> {
  let place = after ?? { createdMs: dayStartMs(filter.toDay + 1), requestId: '' };
  const days = await daysWithReceipts(store, filter, dayOf(place.createdMs));
  const rows: UsageRow[] = [];
  let slices = 0;
  for (const range of rangesOf(days, limit)) {
    for (;;) {
      if (slices >= MAX_SLICES) return { rows, next: place };
      slices += 1;
      const sinceMs = await sliceStart(store, filter, range, place, sliceRows);
      const found = await receiptsWithin(
        store,
        filter,
        { sinceMs, place },
        limit + 1 - rows.length,
      );
      rows.push(...found);
      const last = rows[limit - 1];
      if (rows.length > limit && last !== undefined) {
        return { rows: rows.slice(0, limit), next: placeOf(last) };
      }
      if (sinceMs <= dayStartMs(range.fromDay)) break;
      place = { createdMs: sinceMs, requestId: '' };
    }
    place = { createdMs: dayStartMs(range.fromDay), requestId: '' };
  }
  return { rows, next: undefined };
}

export function placeOf(row: Pick<UsageRow, 'created_ms' | 'request_id'>): ReceiptPlace {
  return { createdMs: Number(row.created_ms), requestId: row.request_id };
}

interface DayCount {
  readonly day: bigint;
  readonly requests: bigint;
}

interface DayRange {
  readonly fromDay: number;
  readonly toDay: number;
}

function daysWithReceipts(
  store: Queryable,
  filter: ReceiptFilter,
  lastDay: number,
): Promise<readonly DayCount[]> {
  const toDay = Math.min(filter.toDay, lastDay);
  const { from, parameters } = matching({ ...filter, toDay });
  const isFailure = filter.status === 'failed' || filter.status === 'expired';
  const having = isFailure ? 'HAVING sum(errors) > 0' : '';
  return store.query<DayCount>(
    `SELECT day, CAST(sum(requests) AS BIGINT) AS requests ${from}
     GROUP BY day ${having} ORDER BY day DESC`,
    parameters,
  );
}

/** Groups days until they should fill a page, so that quiet days do not cost a query each. */
function rangesOf(days: readonly DayCount[], limit: number): DayRange[] {
  const ranges: DayRange[] = [];
  let open: { fromDay: number; toDay: number; requests: number } | undefined;
  for (const { day, requests } of days) {
    open ??= { fromDay: Number(day), toDay: Number(day), requests: 0 };
    open.fromDay = Number(day);
    open.requests += Number(requests);
    if (open.requests <= limit) continue;
    ranges.push(open);
    open = undefined;
  }
  return open === undefined ? ranges : [...ranges, open];
}

const OWN = 'account_id = $1 AND day >= $2 AND day <= $3 AND created_ms >= $4 AND created_ms <= $5';

/** Returns the time down to which one slice of rows reaches, matching or not. */
async function sliceStart(
  store: Queryable,
  filter: ReceiptFilter,
  { fromDay, toDay }: DayRange,
  place: ReceiptPlace,
  sliceRows: number,
): Promise<number> {
  const startMs = dayStartMs(fromDay);
  const { sql, rest } = rareOf(filter);
  // Without a filter every row matches, so the page limit is enough.
  if (rest === '') return startMs;
  const parameters = [filter.accountId, fromDay, toDay, startMs, place.createdMs, sliceRows];
  const status = sql === '' ? '' : conditionsOf({ status: filter.status }, parameters);
  const [row] = await store.query<{ created_ms: bigint }>(
    `SELECT created_ms FROM ledger_usage WHERE ${OWN}${sql}${status}
     ORDER BY created_ms DESC LIMIT 1 OFFSET $6`,
    parameters,
  );
  if (row === undefined) return startMs;
  // Always advances, even if a millisecond has more rows than a slice.
  return Math.min(Number(row.created_ms), place.createdMs - 1);
}

function receiptsWithin(
  store: Queryable,
  filter: ReceiptFilter,
  { sinceMs, place }: { readonly sinceMs: number; readonly place: ReceiptPlace },
  limit: number,
): Promise<readonly UsageRow[]> {
  const { createdMs, requestId } = place;
  const days = [dayOf(sinceMs), Math.min(filter.toDay, dayOf(createdMs))];
  const parameters: Parameter[] = [filter.accountId, ...days, sinceMs, createdMs, requestId];
  const wanted = conditionsOf(filter, parameters);
  return store.query<UsageRow>(
    `SELECT ${RECEIPT_COLUMNS} FROM ledger_usage
     WHERE ${OWN}${rareOf(filter).sql} AND (created_ms < $5 OR request_id < $6)${wanted}
     ORDER BY created_ms DESC, request_id DESC LIMIT $${parameters.push(limit)}`,
    parameters,
  );
}

/** Returns ` AND …` for the conditions, and adds their values to the parameters. */
export function conditionsOf(
  { keyId, modelId, kind, status, engine, minNano, tagPair }: ReceiptConditions,
  parameters: Parameter[],
): string {
  let wanted = '';
  const equal = [
    ['key_id', keyId],
    ['model_id', modelId],
    ['kind', kind],
    ['status', status],
    ['replica', engine],
  ] as const;
  for (const [column, value] of equal) {
    if (value !== undefined) wanted += ` AND ${column} = $${parameters.push(value)}`;
  }
  if (minNano !== undefined) wanted += ` AND usd_nano + diem_nano >= $${parameters.push(minNano)}`;
  if (tagPair !== undefined) {
    // Quotes within a name or a value are escaped, so the text of the pair is unique.
    const pair = tagPair.map((text) => JSON.stringify(text)).join(':');
    const pattern = `%${pair.replaceAll(/[\\%_]/g, String.raw`\$&`)}%`;
    wanted += ` AND metadata LIKE $${parameters.push(pattern)} ESCAPE '\\'`;
  }
  return wanted;
}

/** Partial indexes contain the few receipts with another status, which needs no filter then. */
export function rareOf(filter: ReceiptConditions): { readonly sql: string; readonly rest: string } {
  const isRare = filter.status !== undefined && filter.status !== 'completed';
  return {
    sql: isRare ? " AND status <> 'completed'" : '',
    rest: conditionsOf({ ...filter, status: isRare ? undefined : filter.status }, []),
  };
}

/** Counts receipts by the rollups, which do not record kind and status. */
export async function countReceipts(store: Queryable, filter: AnyUsageFilter): Promise<number> {
  const { from, parameters } = matching(filter);
  const [row] = await store.query<{ total: bigint }>(
    `SELECT ${total('requests')} AS total ${from}`,
    parameters,
  );
  return Number(row?.total ?? 0n);
}

export async function rememberPrices(
  store: Queryable,
  prices: ReadonlyMap<string, string>,
): Promise<void> {
  const sql = 'INSERT INTO ledger_price (version, prices) VALUES ($1, $2) ON CONFLICT DO NOTHING';
  const statements = [...prices].map(([version, row]) => ({ sql, parameters: [version, row] }));
  await store.run(statements);
}

export async function pricesOf(store: Queryable, version: string): Promise<string | undefined> {
  const sql = 'SELECT prices FROM ledger_price WHERE version = $1';
  const [row] = await store.query<{ prices: string }>(sql, [version]);
  return row?.prices;
}
