/** The whole books: the postings of the ledger, and the gas that the keys of payments have paid. */
import { type Books, readBooks } from '../../billing/ledger/ledger.ts';
import type { Store } from '../../db/db.ts';
import { type Gas, readGas } from '../../payments/payments.ts';

/** Gas is in the coins of chains and changes no amount in USD. */
export interface WholeBooks extends Books {
  readonly gas: Gas;
}

/** A journal is made in memory. */
const MAX_GAS_PAYMENTS = 500_000;

/** Throws an error with a message for the operator if the range has too many entries. */
export async function readWholeBooks(
  store: Store,
  fromDay: number,
  toDay: number,
): Promise<WholeBooks> {
  const books = await readBooks(store, fromDay, toDay);
  const gas = await store.transaction((tx) => readGas(tx, fromDay, toDay, MAX_GAS_PAYMENTS + 1), {
    isSnapshot: true,
  });
  if (gas.payments.length > MAX_GAS_PAYMENTS) {
    throw new Error(
      `The range has more than ${MAX_GAS_PAYMENTS} payments of gas; read fewer days at once`,
    );
  }
  return { ...books, gas };
}
