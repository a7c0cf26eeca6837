/**
 * Accounts and what changes them besides charges: top-ups, operator credit, refunds, payouts and
 * the daily allocation.
 */
import { dayOf } from '../../core/clock.ts';
import { type Nano, nano } from '../../core/money.ts';
import type { Queryable } from '../../db/db.ts';
import { type PostingContext, payDebt } from './debts.ts';
import type { HouseAccount, TransferKind } from './records.ts';
import { insertTransfer } from './states.ts';

/** Makes the account with nothing on it; an existing one stays as it is. */
export async function openAccount(tx: Queryable, id: string, nowMs: number): Promise<void> {
  await tx.query(
    `INSERT INTO ledger_account (id, balance_nano, held_nano, daily_allocation_nano, daily_day,
     daily_spent_nano, daily_held_nano, created_ms) VALUES ($1, 0, 0, 0, $2, 0, 0, $3)
     ON CONFLICT (id) DO NOTHING`,
    [id, dayOf(nowMs), nowMs],
  );
}

export interface CreditRequest {
  readonly accountId: string;
  readonly amountNano: Nano;
  readonly from: HouseAccount;
  readonly kind: TransferKind;
  /** Unique: the caller of this function makes sure that one id is credited once. */
  readonly id: string;
  readonly note?: string;
  readonly requestId?: string;
}

/** Adds to an account in the caller's transaction, its debt first; returns the new balance. */
export async function creditAccount(
  tx: Queryable,
  credit: CreditRequest,
  context: PostingContext,
): Promise<Nano> {
  const { nowMs } = context;
  await openAccount(tx, credit.accountId, nowMs);
  const [row] = await tx.query<{ balance_nano: bigint; debt_nano: bigint }>(
    `UPDATE ledger_account SET balance_nano = balance_nano + $2 WHERE id = $1
     RETURNING balance_nano, debt_nano`,
    [credit.accountId, credit.amountNano],
  );
  const balanceAfterNano = nano(row?.balance_nano ?? 0n);
  await insertTransfer(tx, {
    ...credit,
    part: 0,
    debitAccount: credit.from,
    creditAccount: credit.accountId,
    balanceAfterNano,
    nowMs,
  });
  if (row === undefined || row.debt_nano === 0n) return balanceAfterNano;
  return (await payDebt(tx, credit.accountId, credit.id, context)) ?? balanceAfterNano;
}

export interface DebitRequest {
  readonly accountId: string;
  readonly amountNano: Nano;
  readonly to: HouseAccount;
  readonly kind: TransferKind;
  readonly id: string;
  readonly note?: string;
}

/** Takes from what is not held; `undefined` when that is less than the amount, or a debt is open. */
export async function debitAccount(
  tx: Queryable,
  debit: DebitRequest,
  { nowMs, heldOf }: PostingContext,
): Promise<Nano | undefined> {
  const [row] = await tx.query<{ balance_nano: bigint }>(
    `UPDATE ledger_account SET balance_nano = balance_nano - $2
     WHERE id = $1 AND debt_nano = 0 AND balance_nano - held_nano - $3 >= $2 RETURNING balance_nano`,
    [debit.accountId, debit.amountNano, heldOf(debit.accountId)],
  );
  if (row === undefined) return undefined;
  await insertTransfer(tx, {
    ...debit,
    part: 0,
    debitAccount: debit.accountId,
    creditAccount: debit.to,
    balanceAfterNano: nano(row.balance_nano),
    nowMs,
  });
  return nano(row.balance_nano);
}

/**
 * Sets the daily credit of an account, for one day or, without `day`, for every day; what was spent
 * today stays spent.
 */
export async function setDailyAllocation(
  tx: Queryable,
  accountId: string,
  { allocationNano, day }: { readonly allocationNano: Nano; readonly day: number | undefined },
  nowMs: number,
): Promise<void> {
  await openAccount(tx, accountId, nowMs);
  await tx.query(
    `UPDATE ledger_account SET daily_allocation_nano = $2, daily_allocation_day = $3 WHERE id = $1`,
    [accountId, allocationNano, day ?? null],
  );
}
