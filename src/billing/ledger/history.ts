/**
 * Reads of the past for people: transactions of an account, receipts, and usage by day. Overviews
 * read the day rollups, never the raw rows.
 */
import type { Queryable } from '../../db/db.ts';

export interface TransactionRow {
  readonly id: string;
  readonly part: bigint;
  readonly amount_nano: bigint;
  readonly balance_after_nano: bigint;
  readonly kind: string;
  readonly debit_account: string;
  readonly credit_account: string;
  readonly request_id: string | null;
  readonly model_id: string | null;
  readonly note: string | null;
  readonly created_ms: bigint;
}

/** Newest first, without what an account came to owe: that moves nothing of its own. `limit` and `offset` are checked by the caller. */
export function transactionsOf(
  store: Queryable,
  accountId: string,
  page: { readonly limit: number; readonly offset: number },
): Promise<readonly TransactionRow[]> {
  return store.query<TransactionRow>(
    `SELECT id, part, amount_nano, balance_after_nano, kind, debit_account, credit_account, request_id,
     model_id, note, created_ms FROM ledger_transfer WHERE account_id = $1 AND debit_account <> 'house:bad-debt'
     ORDER BY created_ms DESC, id DESC, part DESC LIMIT $2 OFFSET $3`,
    [accountId, page.limit, page.offset],
  );
}

export async function countTransactions(store: Queryable, accountId: string): Promise<number> {
  const [row] = await store.query<{ total: bigint }>(
    `SELECT count(*) AS total FROM ledger_transfer
     WHERE account_id = $1 AND debit_account <> 'house:bad-debt'`,
    [accountId],
  );
  return Number(row?.total ?? 0n);
}

export interface UsageRow {
  readonly request_id: string;
  readonly created_ms: bigint;
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
  /** A JSON object of texts: what the caller tagged the request with. */
  readonly metadata: string | null;
}

/** What is read of a receipt. */
export const RECEIPT_COLUMNS = `request_id, created_ms, key_id, kind, model_id, replica, attempts,
  prompt_tokens, completion_tokens, cached_tokens, cache_write_tokens, reasoning_tokens, counted_by,
  price_version, usd_nano, diem_nano, latency_ms, first_token_ms, status, extras, metadata,
  reserved_nano`;

/** The receipt of one request, for its owner only. */
export async function receiptOf(
  store: Queryable,
  accountId: string,
  requestId: string,
): Promise<UsageRow | undefined> {
  const [row] = await store.query<UsageRow>(
    `SELECT ${RECEIPT_COLUMNS} FROM ledger_usage WHERE request_id = $1 AND account_id = $2`,
    [requestId, accountId],
  );
  return row;
}

export interface UsageSums {
  readonly requests: bigint;
  /** Of the requests, those that failed or were given up. */
  readonly errors: bigint;
  readonly prompt_tokens: bigint;
  readonly completion_tokens: bigint;
  readonly usd_nano: bigint;
  readonly diem_nano: bigint;
}

export interface UsageDayRow extends UsageSums {
  readonly day: bigint;
  readonly key_id: string;
  readonly model_id: string;
  /** Of the tag that the filter names; null when it names none. */
  readonly tag_value: string | null;
}

/** Which rollups: days `fromDay` to `toDay`, both included; a missing key or model is all. */
export interface UsageFilter {
  readonly accountId: string;
  readonly fromDay: number;
  readonly toDay: number;
  readonly keyId?: string | undefined;
  readonly modelId?: string | undefined;
  /** Only requests with this tag, and with this value of it when one is given. */
  readonly tag?: string | undefined;
  readonly tagValue?: string | undefined;
}

/** The same of one account, or of all. */
export type AnyUsageFilter = Omit<UsageFilter, 'accountId'> & {
  readonly accountId?: string | undefined;
};

interface UsagePage {
  readonly limit: number;
  readonly offset: number;
}

const SUMS = ['requests', 'errors', 'prompt_tokens', 'completion_tokens', 'usd_nano', 'diem_nano'];
/** Every sum, added up over a group. */
export const ADDED_UP = SUMS.map(
  (column) => `CAST(COALESCE(sum(${column}), 0) AS BIGINT) AS ${column}`,
).join(', ');

/**
 * `FROM … WHERE …` of the rollups that match: those by tag when a tag is named, those of every account
 * when none is.
 */
export function matching(filter: AnyUsageFilter, isByTag = filter.tag !== undefined) {
  const { accountId, fromDay, toDay, keyId, modelId, tag, tagValue } = filter;
  const parameters: (string | number)[] = [fromDay, toDay];
  let from = `FROM ledger_usage_${isByTag ? 'tag' : 'day'} WHERE day >= $1 AND day <= $2`;
  const asked = [
    ['account_id', accountId],
    ['key_id', keyId],
    ['model_id', modelId],
    ['name', tag],
    ['value', tagValue],
  ] as const;
  for (const [column, wanted] of asked) {
    if (wanted !== undefined) from += ` AND ${column} = $${parameters.push(wanted)}`;
  }
  return { from, parameters };
}

/** Rollups by day, model and key, newest day first; with a tag also by its value. */
export function usageDays(
  store: Queryable,
  filter: UsageFilter,
  page: UsagePage,
): Promise<readonly UsageDayRow[]> {
  const { from, parameters } = matching(filter);
  const value = filter.tag === undefined ? 'NULL' : 'value';
  const after = filter.tag === undefined ? '' : ', value';
  return store.query<UsageDayRow>(
    `SELECT day, key_id, model_id, ${value} AS tag_value, ${SUMS.join(', ')} ${from}
     ORDER BY day DESC, model_id, key_id${after} ${pageOf(page, parameters)}`,
    parameters,
  );
}

function pageOf({ limit, offset }: UsagePage, parameters: (string | number)[]): string {
  return `LIMIT $${parameters.push(limit)} OFFSET $${parameters.push(offset)}`;
}

export interface UsageTotals extends UsageSums {
  /** Rollup rows that match. */
  readonly rows: bigint;
}

/** The sums of all rollups that match. */
export async function usageTotals(store: Queryable, filter: AnyUsageFilter): Promise<UsageTotals> {
  const { from, parameters } = matching(filter);
  const [row] = await store.query<UsageTotals>(
    `SELECT count(*) AS rows, ${ADDED_UP} ${from}`,
    parameters,
  );
  if (row === undefined) throw new Error('A sum has one row');
  return row;
}

export interface UsageTagRow extends UsageSums {
  readonly name: string;
  readonly value: string;
}

/** The sums of each value of each tag that matches, by name, the dearest value first. */
export function usageTags(
  store: Queryable,
  filter: AnyUsageFilter,
  page: UsagePage,
): Promise<readonly UsageTagRow[]> {
  const { from, parameters } = matching(filter, true);
  return store.query<UsageTagRow>(
    `SELECT name, value, ${ADDED_UP} ${from} GROUP BY name, value
     ORDER BY name, sum(usd_nano + diem_nano) DESC, value ${pageOf(page, parameters)}`,
    parameters,
  );
}

/** How many rows `usageTags` has on all pages. */
export async function countUsageTags(store: Queryable, filter: UsageFilter): Promise<number> {
  const { from, parameters } = matching(filter, true);
  const [row] = await store.query<{ total: bigint }>(
    `SELECT count(*) AS total FROM (SELECT DISTINCT name, value ${from}) tags`,
    parameters,
  );
  return Number(row?.total ?? 0n);
}
