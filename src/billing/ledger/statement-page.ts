/**
 * Reads a page of the statement of an account: its postings, of which the charges of a day are one entry,
 * and the balances before and after the range. One SQL statement reads all of them, so that they belong
 * together while requests are charged.
 */
import { assert } from '../../core/assert.ts';
import { dayStartMs } from '../../core/clock.ts';
import type { Parameter, Queryable } from '../../db/db.ts';
import type { TransactionRow } from './movements.ts';

export type MovementRow = Omit<TransactionRow, 'request_id' | 'model_id'>;

/** The charges of a day; amounts before refunds. */
export interface ChargedDay {
  readonly day: bigint;
  readonly requests: bigint;
  readonly usd_nano: bigint;
  readonly diem_nano: bigint;
}

/** A position in the list; without an id it is before every movement of that time. */
export interface MovementPlace {
  readonly createdMs: number;
  readonly id?: string | undefined;
  readonly part?: number | undefined;
}

export interface StatementRange {
  readonly fromDay: number;
  readonly toDay: number;
  /** The beginning of the page: movements after this place, and charges until this day. */
  readonly after: MovementPlace;
  readonly lastDay: number;
  /** Maximum number of movements, and of days. */
  readonly limit: number;
}

export interface StatementPage {
  /** Without charges and debts, newest first. */
  readonly movements: readonly MovementRow[];
  /** Newest first. */
  readonly days: readonly ChargedDay[];
  /** USD before the first day, and at the end of the last one; `undefined` if older postings were deleted. */
  readonly openingNano: bigint | undefined;
  readonly closingNano: bigint | undefined;
}

interface BalancesRow {
  readonly opening_nano: bigint;
  readonly closing_nano: bigint;
  readonly kept_from: bigint;
}

/** The rows differ in their columns, of which the others are `null`. */
type PageRow =
  | (MovementRow & { readonly day: null; readonly kept_from: null })
  | (ChargedDay & { readonly kept_from: null })
  | BalancesRow;

/** The balances are computed from the present one and the later entries. */
export async function statementPage(
  store: Queryable,
  accountId: string,
  { fromDay, toDay, after, lastDay, limit }: StatementRange,
): Promise<StatementPage> {
  const { createdMs, id, part = 0 } = after;
  const bounds = [dayStartMs(fromDay), dayStartMs(toDay + 1)];
  const parameters: Parameter[] = [accountId, fromDay, toDay, ...bounds, createdMs, lastDay, limit];
  const place =
    id === undefined
      ? ''
      : `AND (created_ms < $6 OR id < $${parameters.push(id)}
         OR (id = $${parameters.length} AND part < $${parameters.push(part)}))`;
  const rows = await store.query<PageRow>(
    `WITH movements AS (
       SELECT id, part, kind, amount_nano, balance_after_nano, debit_account, credit_account, note,
         created_ms FROM ledger_transfer WHERE account_id = $1 AND kind <> 'CHARGE'
       AND debit_account <> 'house:bad-debt' AND created_ms >= $4 AND created_ms <= $6 ${place}
       ORDER BY created_ms DESC, id DESC, part DESC LIMIT $8),
     days AS (
       SELECT day, CAST(sum(requests) AS BIGINT) AS requests, CAST(sum(usd_nano) AS BIGINT) AS usd_nano,
         CAST(sum(diem_nano) AS BIGINT) AS diem_nano FROM ledger_usage_day
       WHERE account_id = $1 AND day >= $2 AND day <= $7 GROUP BY day
       HAVING sum(usd_nano + diem_nano) > 0 ORDER BY day DESC LIMIT $8),
     changes AS (
       SELECT CASE WHEN created_ms >= $5 THEN 1 ELSE 0 END AS is_after,
         CASE WHEN credit_account = $1 THEN amount_nano WHEN debit_account = $1 THEN -amount_nano
           ELSE 0 END AS change
       FROM ledger_transfer WHERE account_id = $1 AND kind <> 'CHARGE' AND created_ms >= $4
       UNION ALL
       SELECT CASE WHEN day > $3 THEN 1 ELSE 0 END, -usd_nano
       FROM ledger_usage_day WHERE account_id = $1 AND day >= $2),
     sums AS (
       SELECT COALESCE((SELECT balance_nano FROM ledger_account WHERE id = $1), 0) AS present,
         CAST(COALESCE(sum(change), 0) AS BIGINT) AS since_first,
         CAST(COALESCE(sum(change * is_after), 0) AS BIGINT) AS after_last
       FROM changes)
     SELECT id, part, kind, amount_nano, balance_after_nano, debit_account, credit_account, note,
       created_ms, NULL AS day, NULL AS requests, NULL AS usd_nano, NULL AS diem_nano,
       CAST(NULL AS BIGINT) AS opening_nano, CAST(NULL AS BIGINT) AS closing_nano,
       CAST(NULL AS BIGINT) AS kept_from FROM movements
     UNION ALL
     SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, day, requests, usd_nano, diem_nano,
       NULL, NULL, NULL FROM days
     UNION ALL
     SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       present - since_first, present - after_last,
       COALESCE((SELECT day FROM ledger_kept_from WHERE rows_of = 'postings' AND EXISTS (
         SELECT 1 FROM ledger_carry WHERE account_id = $1 AND transfers > 0)), 0) FROM sums
     ORDER BY created_ms DESC, id DESC, part DESC, day DESC`,
    parameters,
  );
  const movements: MovementRow[] = [];
  const days: ChargedDay[] = [];
  let balances: BalancesRow | undefined;
  for (const row of rows) {
    if (row.kept_from !== null) balances = row;
    else if (row.day !== null) days.push(row);
    else movements.push(row);
  }
  assert(balances !== undefined, 'a statement has one row of balances');
  const { opening_nano, closing_nano, kept_from } = balances;
  return {
    movements,
    days,
    openingNano: BigInt(fromDay) >= kept_from ? opening_nano : undefined,
    closingNano: BigInt(toDay + 1) >= kept_from ? closing_nano : undefined,
  };
}
