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
}

/** The receipt of one request, for its owner only. */
export async function receiptOf(
  store: Queryable,
  accountId: string,
  requestId: string,
): Promise<UsageRow | undefined> {
  const [row] = await store.query<UsageRow>(
    `SELECT request_id, created_ms, key_id, kind, model_id, replica, attempts, prompt_tokens,
     completion_tokens, cached_tokens, cache_write_tokens, reasoning_tokens, counted_by,
     price_version, usd_nano, diem_nano, latency_ms, first_token_ms, status, extras
     FROM ledger_usage WHERE request_id = $1 AND account_id = $2`,
    [requestId, accountId],
  );
  return row;
}

export interface UsageDayRow {
  readonly day: bigint;
  readonly key_id: string;
  readonly model_id: string;
  readonly requests: bigint;
  readonly prompt_tokens: bigint;
  readonly completion_tokens: bigint;
  readonly usd_nano: bigint;
  readonly diem_nano: bigint;
}

/** Which rollups: days `fromDay` to `toDay`, both included; a missing key or model is all. */
export interface UsageFilter {
  readonly accountId: string;
  readonly fromDay: number;
  readonly toDay: number;
  readonly keyId?: string | undefined;
  readonly modelId?: string | undefined;
}

const MATCHES = `account_id = $1 AND day >= $2 AND day <= $3
  AND ($4 = '*' OR key_id = $5) AND ($6 = '*' OR model_id = $7)`;

function matching(filter: UsageFilter): (string | number)[] {
  const { keyId, modelId } = filter;
  return [
    filter.accountId,
    filter.fromDay,
    filter.toDay,
    keyId === undefined ? '*' : '=',
    keyId ?? '',
    modelId === undefined ? '*' : '=',
    modelId ?? '',
  ];
}

/** Rollups by day, model and key, newest day first; a page of them when one is given. */
export function usageDays(
  store: Queryable,
  filter: UsageFilter,
  page: { readonly limit: number; readonly offset: number },
): Promise<readonly UsageDayRow[]> {
  return store.query<UsageDayRow>(
    `SELECT day, key_id, model_id, requests, prompt_tokens, completion_tokens, usd_nano, diem_nano
     FROM ledger_usage_day WHERE ${MATCHES}
     ORDER BY day DESC, model_id, key_id LIMIT $8 OFFSET $9`,
    [...matching(filter), page.limit, page.offset],
  );
}

export interface UsageTotals {
  /** Rollup rows that match. */
  readonly rows: bigint;
  readonly requests: bigint;
  readonly prompt_tokens: bigint;
  readonly completion_tokens: bigint;
  readonly usd_nano: bigint;
  readonly diem_nano: bigint;
}

/** The sums of all rollups that match. */
export async function usageTotals(store: Queryable, filter: UsageFilter): Promise<UsageTotals> {
  const sum = (column: string): string =>
    `CAST(COALESCE(sum(${column}), 0) AS BIGINT) AS ${column}`;
  const [row] = await store.query<UsageTotals>(
    `SELECT count(*) AS rows, ${['requests', 'prompt_tokens', 'completion_tokens', 'usd_nano', 'diem_nano'].map(sum).join(', ')}
     FROM ledger_usage_day WHERE ${MATCHES}`,
    matching(filter),
  );
  if (row === undefined) throw new Error('A sum has one row');
  return row;
}
