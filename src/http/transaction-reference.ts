/** The reference that an operator gives a credit, a debit or a refund, so that a retry moves no money. */
import * as z from 'zod';
import { Fault } from '../core/faults.ts';
import { type Nano, decimalUsd } from '../core/money.ts';

export const TransactionReference = z
  .string()
  .regex(
    /^[A-Za-z0-9._:-]{1,100}$/,
    'Must be 1 to 100 letters, digits, dots, colons, dashes or underscores',
  );

interface Transaction {
  readonly kind: 'credit' | 'debit' | 'refund';
  readonly amountNano: Nano;
  readonly accountId: string;
}

/** The error for a reference that already belongs to another transaction. */
export function referenceReused(reference: string, was: Transaction): Fault {
  const { kind, amountNano, accountId } = was;
  return new Fault('REFERENCE_REUSED', {
    message: `The reference "${reference}" belongs to a ${kind} of ${decimalUsd(amountNano)} USD on the account ${accountId}; nothing was changed. Use a new reference for this transaction`,
  });
}
