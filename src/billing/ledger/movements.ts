/** Reads the money movements of an account: every posting, or those that are not charges. */
import { dayStartMs } from '../../core/clock.ts';
import type { Parameter, Queryable } from '../../db/db.ts';

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

/** Returns postings newest first, without debts. The caller validates `limit` and `offset`. */
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

export interface MovementRow {
  readonly id: string;
  readonly part: bigint;
  readonly kind: string;
  readonly amount_nano: bigint;
  readonly balance_after_nano: bigint;
  readonly debit_account: string;
  readonly credit_account: string;
  readonly note: string | null;
  readonly created_ms: bigint;
}

/** A position in the list; without an id it is before every movement of that time. */
export interface MovementPlace {
  readonly createdMs: number;
  readonly id?: string | undefined;
  readonly part?: number | undefined;
}

export function movementsOf(
  store: Queryable,
  accountId: string,
  sinceMs: number,
  { limit, after }: { readonly limit: number; readonly after: MovementPlace },
): Promise<readonly MovementRow[]> {
  const { createdMs, id, part = 0 } = after;
  const parameters: Parameter[] = [accountId, sinceMs, createdMs, limit];
  const place =
    id === undefined
      ? ''
      : `AND (created_ms < $3 OR id < $${parameters.push(id)}
         OR (id = $${parameters.length} AND part < $${parameters.push(part)}))`;
  return store.query<MovementRow>(
    `SELECT id, part, kind, amount_nano, balance_after_nano, debit_account, credit_account, note,
     created_ms FROM ledger_transfer WHERE account_id = $1 AND kind <> 'CHARGE'
     AND debit_account <> 'house:bad-debt' AND created_ms >= $2 AND created_ms <= $3 ${place}
     ORDER BY created_ms DESC, id DESC, part DESC LIMIT $4`,
    parameters,
  );
}

export interface PeriodBalances {
  /** USD before the first day, and at the end of the last one; `undefined` if older postings were deleted. */
  readonly openingNano: bigint | undefined;
  readonly closingNano: bigint | undefined;
}

/**
 * Balances of an account at the bounds of a range of days, from its present balance and the later entries of
 * its statement: what `movementsOf` and `chargedDays` return.
 */
export async function periodBalances(
  store: Queryable,
  accountId: string,
  { fromDay, toDay }: { readonly fromDay: number; readonly toDay: number },
): Promise<PeriodBalances> {
  const [row] = await store.query<{
    present: bigint;
    since_first: bigint;
    after_last: bigint;
    kept_from: bigint;
  }>(
    `WITH changes AS (
       SELECT CASE WHEN created_ms >= $5 THEN 1 ELSE 0 END AS is_after,
         CASE WHEN credit_account = $1 THEN amount_nano WHEN debit_account = $1 THEN -amount_nano
           ELSE 0 END AS change
       FROM ledger_transfer WHERE account_id = $1 AND kind <> 'CHARGE' AND created_ms >= $4
       UNION ALL
       SELECT CASE WHEN day > $3 THEN 1 ELSE 0 END, -usd_nano
       FROM ledger_usage_day WHERE account_id = $1 AND day >= $2)
     SELECT COALESCE((SELECT balance_nano FROM ledger_account WHERE id = $1), 0) AS present,
       CAST(COALESCE(sum(change), 0) AS BIGINT) AS since_first,
       CAST(COALESCE(sum(change * is_after), 0) AS BIGINT) AS after_last,
       COALESCE((SELECT day FROM ledger_kept_from WHERE rows_of = 'postings'), 0) AS kept_from
     FROM changes`,
    [accountId, fromDay, toDay, dayStartMs(fromDay), dayStartMs(toDay + 1)],
  );
  if (row === undefined) return { openingNano: undefined, closingNano: undefined };
  const { present, since_first, after_last, kept_from } = row;
  const isKept = (day: number): boolean => BigInt(day) >= kept_from;
  return {
    openingNano: isKept(fromDay) ? present - since_first : undefined,
    closingNano: isKept(toDay + 1) ? present - after_last : undefined,
  };
}
