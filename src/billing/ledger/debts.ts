/**
 * Reverses credits whose money is gone, and tracks the resulting debts. A balance never goes below
 * zero: the part that it does not cover is a debt, posted from `house:bad-debt`. An account with a
 * debt spends nothing (`rules.ts`) until a credit, or a released hold, has paid it.
 */
import { assert } from '../../core/assert.ts';
import type { Ids } from '../../core/ids.ts';
import { type Nano, ZERO, larger, nano, smaller } from '../../core/money.ts';
import type { Queryable, Store } from '../../db/db.ts';
import type { HouseAccount } from './records.ts';
import { insertTransfer } from './states.ts';

export interface ReversalRequest {
  readonly accountId: string;
  readonly amountNano: Nano;
  readonly to: HouseAccount;
  readonly id: string;
  readonly note?: string;
}

/** Amount of a reversal, and the rest, which is the new debt of the account. */
export interface Reversal {
  readonly takenNano: Nano;
  readonly missingNano: Nano;
}

export interface PostingContext {
  readonly nowMs: number;
  readonly heldOf: (accountId: string) => bigint;
}

interface LockedAccount {
  readonly free: bigint;
  readonly debt_nano: bigint;
}

/** Locks an account until the transaction ends; returns what a debit could take. */
export async function availableIn(
  tx: Queryable,
  accountId: string,
  context: Pick<PostingContext, 'heldOf'>,
): Promise<Nano> {
  return nano((await lockAccount(tx, accountId, context)).free);
}

/** Takes the free balance, down to zero, and records the rest as a debt of the account. */
export async function reverseCredit(
  tx: Queryable,
  reversal: ReversalRequest,
  context: PostingContext,
): Promise<Reversal> {
  const { free } = await lockAccount(tx, reversal.accountId, context);
  const takenNano = smaller(larger(ZERO, nano(free)), reversal.amountNano);
  const missingNano = nano(reversal.amountNano - takenNano);
  const [after] = await tx.query<{ balance_nano: bigint }>(
    `UPDATE ledger_account SET balance_nano = balance_nano - $2, debt_nano = debt_nano + $3
     WHERE id = $1 RETURNING balance_nano`,
    [reversal.accountId, takenNano, missingNano],
  );
  const posting = {
    ...reversal,
    kind: 'REVERSAL',
    creditAccount: reversal.to,
    balanceAfterNano: nano(after?.balance_nano ?? 0n),
    nowMs: context.nowMs,
  } as const;
  if (takenNano > 0n) {
    const taken = { part: 0, debitAccount: reversal.accountId, amountNano: takenNano };
    await insertTransfer(tx, { ...posting, ...taken });
  }
  if (missingNano > 0n) {
    const missing = { part: 1, debitAccount: 'house:bad-debt', amountNano: missingNano };
    await insertTransfer(tx, { ...posting, ...missing });
  }
  return { takenNano, missingNano };
}

/** Pays a debt from free balance; returns the new balance, or `undefined` if nothing was paid. */
export async function payDebt(
  tx: Queryable,
  accountId: string,
  id: string,
  context: PostingContext,
): Promise<Nano | undefined> {
  const { free, debt_nano: debt } = await lockAccount(tx, accountId, context);
  const amountNano = smaller(nano(free), nano(debt));
  if (amountNano <= 0n) return undefined;
  const [after] = await tx.query<{ balance_nano: bigint }>(
    `UPDATE ledger_account SET balance_nano = balance_nano - $2, debt_nano = debt_nano - $2
     WHERE id = $1 RETURNING balance_nano`,
    [accountId, amountNano],
  );
  const balanceAfterNano = nano(after?.balance_nano ?? 0n);
  await insertTransfer(tx, {
    id,
    // A credit that pays a debt has part 0 of the same id.
    part: 1,
    accountId,
    debitAccount: accountId,
    creditAccount: 'house:bad-debt',
    amountNano,
    balanceAfterNano,
    kind: 'DEBT',
    nowMs: context.nowMs,
  });
  return balanceAfterNano;
}

/** Locks the row by an update without changes: other holds and settles of the account wait. */
async function lockAccount(
  tx: Queryable,
  accountId: string,
  { heldOf }: Pick<PostingContext, 'heldOf'>,
): Promise<LockedAccount> {
  const [row] = await tx.query<LockedAccount>(
    `UPDATE ledger_account SET debt_nano = debt_nano WHERE id = $1
     RETURNING balance_nano - held_nano - $2 AS free, debt_nano`,
    [accountId, heldOf(accountId)],
  );
  assert(row !== undefined, 'a posting needs an account');
  return row;
}

/** Debts are rare; the next run collects the rest. */
const MAX_DEBTS = 128;

/** Pays debts from balances that were held when the debt was recorded. */
export async function collectDebts(store: Store, ids: Ids, context: PostingContext): Promise<void> {
  const accounts = await store.query<{ id: string }>(
    `SELECT id FROM ledger_account WHERE debt_nano > 0 AND balance_nano > held_nano
     ORDER BY debt_nano DESC, id LIMIT ${MAX_DEBTS}`,
  );
  for (const { id } of accounts) {
    await store.transaction((tx) => payDebt(tx, id, `debt-${ids.uuid()}`, context));
  }
}

/** Returns what a house account took in minus what it paid out, dropped postings included. */
export async function receivedFrom(store: Queryable, house: HouseAccount): Promise<Nano> {
  const [row] = await store.query<{ total: bigint }>(
    `SELECT (SELECT COALESCE(sum(amount_nano), 0) FROM ledger_transfer WHERE debit_account = $1)
      - (SELECT COALESCE(sum(amount_nano), 0) FROM ledger_transfer WHERE credit_account = $1)
      + (SELECT COALESCE(sum(debited_nano - credited_nano), 0) FROM ledger_carry WHERE account_id = $1)
      AS total`,
    [house],
  );
  return nano(row?.total ?? 0n);
}
