/** Fees that the operator pays for payments. They move no balance of a customer. */
import { type Nano, nano } from '../../core/money.ts';
import type { Queryable } from '../../db/db.ts';
import { insertTransfer } from './states.ts';

export interface CardFee {
  readonly provider: 'stripe' | 'shop';
  /** Negative if the provider has returned a fee. */
  readonly amountNano: bigint;
  /** Unique. */
  readonly id: string;
  readonly note: string;
}

/** The account of the costs; the other side is the money that the provider has kept. */
export function cardFees({ provider }: Pick<CardFee, 'provider'>) {
  return `house:card-fees:${provider}` as const;
}

export async function postCardFee(tx: Queryable, fee: CardFee, nowMs: number): Promise<void> {
  const { provider, amountNano, id, note } = fee;
  const [cost, kept] = [cardFees(fee), `house:fees-paid:${provider}` as const];
  const isBack = amountNano < 0n;
  await insertTransfer(tx, {
    id,
    part: 0,
    accountId: cost,
    debitAccount: isBack ? kept : cost,
    creditAccount: isBack ? cost : kept,
    amountNano: nano(isBack ? -amountNano : amountNano) satisfies Nano,
    balanceAfterNano: 0n,
    kind: 'FEE',
    note,
    nowMs,
  });
}
