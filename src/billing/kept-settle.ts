/**
 * How a sale settles whose response is kept: it is charged in the transaction that keeps its response,
 * or spends its idempotency key, and in no other one.
 */
import { type Nano, ZERO, nano } from '../core/money.ts';
import type { Queryable } from '../db/db.ts';
import type { Settlement, WhileAway } from './ledger/ledger.ts';
import { type ResponseKeeper, type Outcome, type SoldFor, undelivered } from './sale-request.ts';

/** Work of the transaction that settles a sale. */
export type Together = (tx: Queryable, settlement: Settlement) => Promise<void>;

interface KeptSettle {
  readonly outcome: Outcome;
  readonly together: Together | undefined;
  readonly whileAway: WhileAway;
}

/** What is settled, with which work; without `together` there is no complete response to keep. */
export function keptSettle(
  { charged: key }: ResponseKeeper,
  outcome: Outcome,
  together: Together | undefined,
): KeptSettle {
  if (together !== undefined) {
    return { outcome, together, whileAway: key === undefined ? 'fail' : 'wait' };
  }
  if (key === undefined) {
    // Nobody gets what was produced until then.
    return { outcome: undelivered(outcome), together, whileAway: 'fail' };
  }
  if (outcome.costNano === ZERO) return { outcome, together, whileAway: 'fail' };
  // The response broke off after text that is paid for: a retry is not charged again.
  const spend: Together = (tx, settled) => key.spend(tx, chargedBy(settled));
  return { outcome, together: spend, whileAway: key.fence };
}

/** What was charged for a response, in USD and daily credit together. */
export function paidFor({ settled }: SoldFor): Nano {
  return chargedBy(settled);
}

function chargedBy({ usdNano, diemNano }: Settlement): Nano {
  return nano(usdNano + diemNano);
}
