/** Reads the money movements of an account: every posting, or those that are not charges. */
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
