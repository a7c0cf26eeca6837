/**
 * Grants in one statement what needs no plan: an account that pays with USD alone, for a request
 * without a cap, which gets all that it can use. The rules are those of `grant-leases.ts`, which
 * grants the rest under a lock: what of the lease is unused comes back, the requests get theirs, and
 * of what is left the process leases its part where that is worth it.
 *
 * Rows are locked in one order everywhere: epoch, accounts, leases, each in order of id.
 */
import { dayOf } from '../../../core/clock.ts';
import { type Nano, ZERO } from '../../../core/money.ts';
import { type Queryable, flushedIf } from '../../../db/db.ts';
import { roomForAll } from '../hold-plan.ts';
import { type PlannedHold, capIdsOf } from '../place-holds.ts';
import type { HoldRequest } from '../records.ts';
import {
  type GrantContext,
  type LeaseAnswer,
  type LeaseWant,
  sliceBounds,
} from './grant-leases.ts';

/**
 * `account` are those that need no plan and `lease` the rows that give something back, under their
 * locks; `plan` is what is granted, `leased` in it what the process gets beyond its requests.
 */
const GRANT = `WITH item AS MATERIALIZED (
  SELECT * FROM json_to_recordset($1::json) AS i(seq bigint, account_id text, lease_id text,
    new_id text, freed bigint, asked bigint, needed bigint, posted bigint, least bigint,
    most bigint, may_lease boolean)
), epoch AS MATERIALIZED (
  SELECT e.id FROM ledger_epoch e
  WHERE e.id = $3 AND EXISTS (SELECT 1 FROM item WHERE may_lease) FOR KEY SHARE
), account AS MATERIALIZED (
  SELECT a.id, a.balance_nano, a.balance_nano - a.held_nano AS free_nano FROM ledger_account a
  WHERE a.id IN (SELECT account_id FROM item) AND (SELECT count(*) FROM epoch) >= 0
    AND a.debt_nano = 0 AND a.daily_day = $4
    AND (coalesce(a.daily_allocation_day, $4) <> $4 OR a.daily_allocation_nano <= a.daily_spent_nano)
  ORDER BY a.id FOR UPDATE
), lease AS MATERIALIZED (
  SELECT h.request_id AS id, h.account_id FROM ledger_hold h
  WHERE h.request_id IN (SELECT lease_id FROM item WHERE lease_id IS NOT NULL) AND h.daily_day = $4
    AND (SELECT count(*) FROM account) >= 0
  ORDER BY h.request_id FOR UPDATE
), plan AS MATERIALIZED (
  SELECT p.*, CASE WHEN p.may_lease AND p.slice >= p.least THEN least(p.slice, p.most) END AS leased
  FROM (SELECT i.*, a.balance_nano, (a.free_nano + i.freed - i.asked)
      / (2 * greatest(1, (SELECT count(*) FROM ledger_epoch))) AS slice
    FROM item i JOIN account a ON a.id = i.account_id
      LEFT JOIN lease l ON l.id = i.lease_id AND l.account_id = i.account_id
    WHERE (i.lease_id IS NULL OR l.id IS NOT NULL) AND (NOT i.may_lease OR EXISTS (SELECT 1 FROM epoch))
      AND a.balance_nano >= i.posted AND a.free_nano + i.freed >= i.needed) p
), changed AS (
  UPDATE ledger_hold h SET usd_nano = h.usd_nano - p.freed
    + CASE WHEN p.leased IS NULL THEN 0 ELSE p.asked + p.leased END
  FROM plan p WHERE h.request_id = p.lease_id
), begun AS (
  INSERT INTO ledger_hold (request_id, account_id, allowance_id, allowance_start_ms, usd_nano,
    daily_nano, daily_day, epoch_id, created_ms)
  SELECT new_id, account_id, NULL, 0, asked + leased, 0, $4, $3, $5 FROM plan
  WHERE leased IS NOT NULL AND lease_id IS NULL
), single AS (
  INSERT INTO ledger_hold (request_id, account_id, allowance_id, allowance_start_ms, usd_nano,
    daily_nano, daily_day, epoch_id, created_ms)
  SELECT r.request_id, p.account_id, NULL, 0, r.usd, 0, $4, $3, $5
  FROM json_to_recordset($2::json) AS r(seq bigint, request_id text, usd bigint)
    JOIN plan p ON p.seq = r.seq WHERE p.leased IS NULL
), aside AS (
  UPDATE ledger_account a SET held_nano = a.held_nano + p.asked + coalesce(p.leased, 0) - p.freed
  FROM plan p WHERE a.id = p.account_id
)
SELECT p.seq, p.balance_nano, p.leased FROM plan p CROSS JOIN (
  SELECT ${flushedIf('EXISTS (SELECT 1 FROM plan WHERE leased IS NOT NULL)')}) AS flush`;

interface GrantedRow {
  readonly seq: bigint;
  readonly balance_nano: bigint;
  readonly leased: bigint | null;
}

/** In the order of the wants; `undefined` for one that has to be planned. */
export async function grantPlain(
  store: Queryable,
  { epochId, hasEpoch, nowMs }: GrantContext,
  wants: readonly LeaseWant[],
): Promise<readonly (LeaseAnswer | undefined)[]> {
  const items: unknown[] = [];
  const singles: unknown[] = [];
  for (const [seq, want] of wants.entries()) {
    if (!want.isPlain || capIdsOf(want).length > 0 || want.lease?.kind === 'daily') continue;
    items.push(itemOf(want, seq, hasEpoch));
    for (const { requestId, maxNano } of want.requests) {
      singles.push({ seq, request_id: requestId, usd: String(maxNano) });
    }
  }
  const answers: (LeaseAnswer | undefined)[] = wants.map(() => undefined);
  if (items.length === 0) return answers;
  const parameters = [JSON.stringify(items), JSON.stringify(singles), epochId, dayOf(nowMs), nowMs];
  for (const row of await store.query<GrantedRow>(GRANT, parameters)) {
    const want = wants[Number(row.seq)];
    if (want !== undefined) answers[Number(row.seq)] = answerOf(want, row, nowMs);
  }
  return answers;
}

function itemOf(want: LeaseWant, seq: number, hasEpoch: boolean) {
  const { accountId, lease, requests, mayLease, newId } = want;
  let [asked, needed, posted] = [0n, 0n, 0n];
  for (const request of requests) {
    // What stands before a request in the same tick is not free for it.
    const room = asked + roomForAll(request);
    if (room > needed) needed = room;
    for (const least of [request.floorNano, request.minNano]) if (least > posted) posted = least;
    asked += request.maxNano;
  }
  const { leastNano, mostNano } = sliceBounds(requests);
  return {
    seq,
    account_id: accountId,
    lease_id: lease?.id ?? null,
    new_id: newId,
    freed: String(lease?.freeNano ?? 0n),
    asked: String(asked),
    needed: String(needed),
    posted: String(posted),
    least: String(leastNano),
    most: String(mostNano),
    may_lease: mayLease && hasEpoch,
  };
}

function answerOf(want: LeaseWant, row: GrantedRow, nowMs: number): LeaseAnswer {
  const { requests, lease, newId } = want;
  let total = row.leased ?? 0n;
  const answers = requests.map((request) => {
    total += request.maxNano;
    return plannedFor(request, row.balance_nano as Nano, nowMs); // posted
  });
  const id = lease?.id ?? newId;
  const addedNano = total - (lease?.freeNano ?? 0n);
  const grant = row.leased === null ? undefined : { id, kind: 'usd' as const, addedNano };
  return { answers, grant, isLost: false, isPlain: true, holders: [] };
}

function plannedFor({ maxNano }: HoldRequest, postedNano: Nano, nowMs: number): PlannedHold {
  return {
    ok: true,
    usdNano: maxNano,
    dailyNano: ZERO,
    reachNano: postedNano,
    before: { usdNano: postedNano, diemNano: ZERO },
    dailyDay: dayOf(nowMs),
    allowanceStartMs: undefined,
    createdMs: nowMs,
  };
}
