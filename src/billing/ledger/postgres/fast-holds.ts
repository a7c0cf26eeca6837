/**
 * Holds of one tick in one statement, for the common case: an account without daily credit, a key
 * without a cap, and room for everything that this tick asks. What is not granted here is looked
 * at again under a lock (`place-holds.ts`), so a refusal is never decided by this statement.
 */
import { dayOf } from '../../../core/clock.ts';
import { ZERO, nano } from '../../../core/money.ts';
import { SHARE_PARTS } from '../hold-plan.ts';
import type { ComposedRow, StatementPart } from '../../../db/db.ts';
import type { HoldAnswer, HoldRequest } from '../records.ts';
import { DURABLE_EPOCH } from '../place-holds.ts';

/** Holds of one tick as a part of a statement. */
export interface HoldTogether {
  readonly part: StatementPart;
  /** In order; `undefined` for a request that has to be looked at under a lock. */
  readonly read: (rows: readonly ComposedRow[]) => (HoldAnswer | undefined)[];
}

/** A hold that is only placed when the relation of the statement has its key. */
export interface HoldGate {
  /** A relation of an earlier part, with the one column `key`. */
  readonly relation: string;
  /** In the order of the requests; without a key the gate stays shut. */
  readonly keys: readonly (string | undefined)[];
}

const MAX_BIGINT = 9_223_372_036_854_775_807n;

/** Accounts are locked in order of id, so that two processes never wait for each other. */
function expressions(gate: string | undefined): string {
  const passed = gate === undefined ? '' : ` WHERE i.gate IN (SELECT key FROM ${gate})`;
  return `hold_item AS (
  SELECT * FROM json_to_recordset($::json)
    AS i(request_id text, account_id text, amount bigint, spare bigint, floor bigint, epoch_id text, day bigint,
      now_ms bigint, gate text)${passed}
), hold_need AS (
  SELECT account_id, sum(amount) AS total, max(spare) AS spare, max(floor) AS floor
  FROM hold_item GROUP BY account_id
), hold_locked AS (
  SELECT a.id FROM ledger_account a WHERE a.id IN (SELECT account_id FROM hold_need)
  ORDER BY a.id FOR UPDATE
), hold_granted AS (
  UPDATE ledger_account a SET held_nano = a.held_nano + n.total
  FROM hold_need n JOIN hold_locked l ON l.id = n.account_id
  WHERE a.id = n.account_id AND a.daily_allocation_nano = 0 AND a.debt_nano = 0
    AND a.balance_nano >= n.floor AND a.balance_nano - a.held_nano >= n.total + n.spare
  RETURNING a.id, a.balance_nano
), hold_placed AS (
  INSERT INTO ledger_hold (request_id, account_id, allowance_id, allowance_start_ms, usd_nano,
    daily_nano, daily_day, epoch_id, created_ms)
  SELECT i.request_id, i.account_id, NULL, 0, i.amount, 0, i.day, i.epoch_id, i.now_ms
  FROM hold_item i JOIN hold_granted g ON g.id = i.account_id
  RETURNING request_id
)`;
}

/** A request whose gate was shut is missing here, though its account may be granted to others. */
const ROWS = `SELECT 'hold' AS part, i.request_id AS id, g.balance_nano AS a, 0::bigint AS b,
  0::bigint AS c FROM hold_item i JOIN hold_granted g ON g.id = i.account_id`;

/** The holds as a part of a statement, in which each may wait for what another part grants. */
export function holdTogether(
  requests: readonly HoldRequest[],
  context: { readonly epochId: string; readonly nowMs: number },
  gate?: HoldGate,
): HoldTogether {
  const items: unknown[] = [];
  for (const [index, request] of requests.entries()) {
    if (request.allowanceId !== undefined) continue;
    items.push({
      request_id: request.requestId,
      account_id: request.accountId,
      amount: String(request.maxNano),
      spare: String(spareOf(request)),
      floor: String(request.floorNano),
      epoch_id: request.lifetime === 'durable' ? DURABLE_EPOCH : context.epochId,
      day: dayOf(context.nowMs),
      now_ms: context.nowMs,
      gate: gate?.keys[index],
    });
  }
  return {
    part: {
      expressions: expressions(gate?.relation),
      rows: ROWS,
      parameter: JSON.stringify(items),
    },
    read: (rows) => {
      const balances = new Map<string, bigint>();
      for (const row of rows) if (row.part === 'hold') balances.set(row.id, row.a);
      return requests.map((request) => granted(request, balances.get(request.requestId)));
    },
  };
}

/** What must stay free beside a hold, so that all of `maxNano` is within its share. */
function spareOf({ minNano, usefulNano = minNano, maxNano, maxIsNamed }: HoldRequest): bigint {
  if (maxIsNamed === true || usefulNano >= maxNano) return 0n;
  const spare = (SHARE_PARTS - 1n) * (maxNano - usefulNano);
  return spare < MAX_BIGINT ? spare : MAX_BIGINT;
}

function granted(request: HoldRequest, balance: bigint | undefined): HoldAnswer | undefined {
  if (balance === undefined) return undefined;
  return {
    ok: true,
    hold: {
      requestId: request.requestId,
      accountId: request.accountId,
      grantedNano: request.maxNano,
      dailyNano: ZERO,
      reachNano: nano(balance),
      before: { usdNano: nano(balance), diemNano: ZERO },
    },
  };
}
