/**
 * Holds of one tick in one statement, for the common case: an account without daily credit, a key
 * without a cap, and room for everything that this tick asks. What is not granted here is looked
 * at again under a lock (`place-holds.ts`), so a refusal is never decided by this statement.
 */
import { dayOf } from '../../kernel/clock.ts';
import { nano } from '../../kernel/money.ts';
import type { Queryable } from '../../store/store.ts';
import type { HoldAnswer, HoldRequest } from '../records.ts';
import { DURABLE_EPOCH } from '../place-holds.ts';

/** Accounts are locked in order of id, so that two processes never wait for each other. */
const PLACE = `WITH item AS (
  SELECT * FROM json_to_recordset($1::json)
    AS i(request_id text, account_id text, amount bigint, floor bigint, epoch_id text)
), need AS (
  SELECT account_id, sum(amount) AS total, max(floor) AS floor FROM item GROUP BY account_id
), locked AS (
  SELECT a.id FROM ledger_account a WHERE a.id IN (SELECT account_id FROM need) ORDER BY a.id FOR UPDATE
), granted AS (
  UPDATE ledger_account a SET held_nano = a.held_nano + n.total
  FROM need n JOIN locked l ON l.id = n.account_id
  WHERE a.id = n.account_id AND a.daily_allocation_nano = 0
    AND a.balance_nano >= n.floor AND a.balance_nano - a.held_nano >= n.total
  RETURNING a.id, a.balance_nano
), placed AS (
  INSERT INTO ledger_hold (request_id, account_id, allowance_id, allowance_start_ms, usd_nano,
    daily_nano, daily_day, epoch_id, created_ms)
  SELECT i.request_id, i.account_id, NULL, 0, i.amount, 0, $2, i.epoch_id, $3
  FROM item i JOIN granted g ON g.id = i.account_id
)
SELECT id, balance_nano FROM granted`;

/** Answers in order; `undefined` for a request that has to be looked at under a lock. */
export async function placeFast(
  store: Queryable,
  requests: readonly HoldRequest[],
  context: { readonly epochId: string; readonly nowMs: number },
): Promise<(HoldAnswer | undefined)[]> {
  const items = requests
    .filter((request) => request.allowanceId === undefined)
    .map((request) => ({
      request_id: request.requestId,
      account_id: request.accountId,
      amount: String(request.maxNano),
      floor: String(request.floorNano),
      epoch_id: request.lifetime === 'durable' ? DURABLE_EPOCH : context.epochId,
    }));
  if (items.length === 0) return requests.map(() => undefined);
  const rows = await store.query<{ id: string; balance_nano: bigint }>(PLACE, [
    JSON.stringify(items),
    dayOf(context.nowMs),
    context.nowMs,
  ]);
  const balances = new Map(rows.map((row) => [row.id, row.balance_nano]));
  return requests.map((request) => {
    const balance = balances.get(request.accountId);
    if (request.allowanceId !== undefined || balance === undefined) return undefined;
    return {
      ok: true,
      hold: {
        requestId: request.requestId,
        accountId: request.accountId,
        grantedNano: request.maxNano,
        before: { usdNano: nano(balance), diemNano: nano(0n) },
      },
    };
  });
}
