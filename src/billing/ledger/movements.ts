/** Reads the postings of an account. */
import { ZERO, nano } from '../../core/money.ts';
import type { Queryable } from '../../db/db.ts';
import type { Balances, HouseAccount } from './records.ts';

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

const DAILY_CREDIT: HouseAccount = 'house:daily-credit';

/** The change of the USD balance, or of the daily credit, by a posting of an account. */
export function balanceChange(
  {
    amount_nano: amount,
    debit_account: from,
    credit_account: to,
  }: Pick<TransactionRow, 'amount_nano' | 'debit_account' | 'credit_account'>,
  accountId: string,
): Balances {
  if (from === DAILY_CREDIT) return { usdNano: ZERO, diemNano: nano(-amount) };
  if (to === DAILY_CREDIT) return { usdNano: ZERO, diemNano: nano(amount) };
  return { usdNano: nano(to === accountId ? amount : -amount), diemNano: ZERO };
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
