/**
 * Credits and debits by operators. A reference makes a movement safe to repeat, forever: the same
 * movement returns its first result, and a different movement with the same reference is rejected.
 */
import { nano, type Nano } from '../../core/money.ts';
import type { Queryable } from '../../db/db.ts';

export interface OperatorMove {
  readonly direction: 'credit' | 'debit';
  readonly accountId: string;
  readonly amountNano: Nano;
  /** The operator's own name of the movement; credits and debits have separate namespaces. */
  readonly reference: string;
  readonly note?: string | undefined;
}

export type OperatorMoveResult =
  | { readonly state: 'done' | 'repeated'; readonly balanceNano: Nano; readonly createdMs: number }
  | {
      readonly state: 'reused';
      readonly was: { readonly accountId: string; readonly amountNano: Nano };
    }
  | { readonly state: 'insufficient' };

interface ReferenceRow {
  readonly account_id: string;
  readonly amount_nano: bigint;
  readonly balance_after_nano: bigint;
  readonly created_ms: bigint;
}

/**
 * Posts a movement once, inside the caller's transaction. `post` receives the posting id and
 * returns the new balance, or `undefined` if a debit finds too little.
 */
export async function moveOnce(
  tx: Queryable,
  { direction, accountId, amountNano, reference }: OperatorMove,
  nowMs: number,
  post: (id: string) => Promise<Nano | undefined>,
): Promise<OperatorMoveResult> {
  const id = `${direction}-${reference}`;
  const taken = await tx.query(
    `INSERT INTO ledger_reference (id, account_id, amount_nano, balance_after_nano, created_ms)
     VALUES ($1, $2, $3, 0, $4) ON CONFLICT (id) DO NOTHING RETURNING id`,
    [id, accountId, amountNano, nowMs],
  );
  if (taken.length === 0) return earlier(tx, id, accountId, amountNano);
  const balanceNano = await post(id);
  if (balanceNano === undefined) {
    await tx.query('DELETE FROM ledger_reference WHERE id = $1', [id]);
    return { state: 'insufficient' };
  }
  await tx.query('UPDATE ledger_reference SET balance_after_nano = $2 WHERE id = $1', [
    id,
    balanceNano,
  ]);
  return { state: 'done', balanceNano, createdMs: nowMs };
}

async function earlier(
  tx: Queryable,
  id: string,
  accountId: string,
  amountNano: Nano,
): Promise<OperatorMoveResult> {
  const [row] = await tx.query<ReferenceRow>('SELECT * FROM ledger_reference WHERE id = $1', [id]);
  if (row === undefined) throw new Error('A reference that is taken has a row');
  if (row.account_id !== accountId || row.amount_nano !== amountNano) {
    const was = { accountId: row.account_id, amountNano: nano(row.amount_nano) };
    return { state: 'reused', was };
  }
  return {
    state: 'repeated',
    balanceNano: nano(row.balance_after_nano),
    createdMs: Number(row.created_ms),
  };
}
