/** The error for a reference of the operator that already belongs to another transaction. */
import { Fault } from '../core/faults.ts';
import { type Nano, decimalUsd } from '../core/money.ts';

interface Transaction {
  readonly kind: 'credit' | 'debit' | 'refund';
  readonly amountNano: Nano;
  readonly accountId: string;
}

export function referenceReused(reference: string, was: Transaction): Fault {
  const { kind, amountNano, accountId } = was;
  return new Fault('REFERENCE_REUSED', {
    message: `The reference "${reference}" belongs to a ${kind} of ${decimalUsd(amountNano)} USD on the account ${accountId}; nothing was changed. Use a new reference for this transaction`,
  });
}
