/**
 * Grants in one statement what needs no plan: an account that pays with USD alone, for requests that
 * get all that they can use, also under the caps of this period that they count against. The rules are
 * those of `grant-leases.ts`, which grants the rest under a lock: what of the lease is unused comes
 * back, the requests get theirs, and of what is left the process leases its part where that is worth
 * it. A statement has one want of an account at most.
 *
 * Rows are locked in one order everywhere: epoch, accounts, caps, leases, each in order of id.
 */
import { dayOf } from '../../../core/clock.ts';
import { type Nano, ZERO } from '../../../core/money.ts';
import { type Queryable, flushedIf } from '../../../db/db.ts';
import { periodStartMs, freeForAll } from '../hold-plan.ts';
import { type PlannedHold, capIdsOf } from '../place-holds.ts';
import type { HoldRequest } from '../records.ts';
import {
  type GrantContext,
  type LeaseResult,
  type LeaseWant,
  sliceBounds,
} from './grant-leases.ts';

/**
 * `counts` are the caps of each item, and `cap` all of them as one: without a limit there is none.
 * $6, $7 and $8 are when the day, the week and the month began.
 */
const CAPS = `, counts AS MATERIALIZED (
  SELECT i.seq, i.allowance_id AS id, TRUE AS is_own FROM item i WHERE i.allowance_id IS NOT NULL
  UNION ALL
  SELECT i.seq, b.id, FALSE
  FROM item i CROSS JOIN LATERAL json_array_elements_text(i.budget_ids::json) AS b (id)
  WHERE i.budget_ids IS NOT NULL
), locked AS MATERIALIZED (
  SELECT w.id, w.period_start_ms, w.usd_limit_nano - w.usd_spent_nano AS unspent_nano,
    w.usd_limit_nano - w.usd_spent_nano - w.usd_held_nano AS free_nano, w.period_start_ms >=
      CASE w.period WHEN 'EPOCH' THEN $6::bigint WHEN 'WEEK' THEN $7::bigint
        WHEN 'MONTH' THEN $8::bigint ELSE 0 END AS is_current
  FROM ledger_allowance w
  WHERE w.id IN (SELECT id FROM counts) AND (SELECT count(*) FROM account) >= 0
  ORDER BY w.id FOR UPDATE
), cap AS MATERIALIZED (
  SELECT c.seq, min(k.unspent_nano) AS unspent_nano, min(k.free_nano) AS free_nano,
    bool_and(k.is_current) AS is_current,
    max(k.period_start_ms) FILTER (WHERE c.is_own) AS own_ms,
    max(k.period_start_ms) FILTER (WHERE NOT c.is_own) AS budgets_ms
  FROM counts c JOIN locked k ON k.id = c.id GROUP BY c.seq
)`;

/** Of a lease that gives something back to its caps: it was granted in the periods that run. */
const IS_OF_PERIODS = `coalesce(c.is_current, TRUE) AND (i.lease_id IS NULL
        OR l.allowance_id IS NOT DISTINCT FROM CASE WHEN c.own_ms IS NOT NULL THEN i.allowance_id END
        AND l.allowance_start_ms >= coalesce(c.own_ms, 0) AND l.created_ms >= coalesce(c.budgets_ms, 0))`;

const COUNT = `, counted AS (
  UPDATE ledger_allowance w
  SET usd_held_nano = w.usd_held_nano + p.asked + coalesce(p.leased, 0) - p.freed
  FROM plan p JOIN counts c ON c.seq = p.seq WHERE w.id = c.id
)`;

/**
 * `account` are those that need no plan and `lease` the rows that give something back, under their
 * locks; `plan` is what is granted, `leased` in it what the process gets beyond its requests.
 */
const grantSql = (isCapped: boolean): string => `WITH item AS MATERIALIZED (
  SELECT * FROM json_to_recordset($1::json) AS i(seq bigint, account_id text, allowance_id text,
    budget_ids text, lease_id text, new_id text, freed bigint, asked bigint, needed bigint,
    posted bigint, least bigint, most bigint, may_lease boolean)
), epoch AS MATERIALIZED (
  SELECT e.id FROM ledger_epoch e
  WHERE e.id = $3 AND EXISTS (SELECT 1 FROM item WHERE may_lease) FOR KEY SHARE
), account AS MATERIALIZED (
  SELECT a.id, a.balance_nano, a.balance_nano - a.held_nano AS free_nano FROM ledger_account a
  WHERE a.id IN (SELECT account_id FROM item) AND (SELECT count(*) FROM epoch) >= 0
    AND a.debt_nano = 0 AND a.daily_day = $4
    AND (coalesce(a.daily_allocation_day, $4) <> $4 OR a.daily_allocation_nano <= a.daily_spent_nano)
  ORDER BY a.id FOR UPDATE
)${isCapped ? CAPS : ''}, lease AS MATERIALIZED (
  SELECT h.request_id AS id, h.account_id, h.allowance_id, h.allowance_start_ms, h.created_ms
  FROM ledger_hold h
  WHERE h.request_id IN (SELECT lease_id FROM item WHERE lease_id IS NOT NULL) AND h.daily_day = $4
    AND (SELECT count(*) FROM ${isCapped ? 'cap' : 'account'}) >= 0
  ORDER BY h.request_id FOR UPDATE
), plan AS MATERIALIZED (
  SELECT p.*, CASE WHEN p.may_lease AND p.slice >= p.least THEN least(p.slice, p.most) END AS leased
  FROM (SELECT i.*, a.balance_nano, ${
    isCapped
      ? `greatest(0, least(a.balance_nano, c.unspent_nano)) AS spendable_nano, c.own_ms,
      greatest($5, c.budgets_ms) AS since_ms, (least(a.free_nano, c.free_nano)`
      : 'a.balance_nano AS spendable_nano, NULL::bigint AS own_ms, $5::bigint AS since_ms, (a.free_nano'
  } + i.freed - i.asked)
      / (2 * greatest(1, (SELECT count(*) FROM ledger_epoch))) AS slice
    FROM item i JOIN account a ON a.id = i.account_id
      LEFT JOIN lease l ON l.id = i.lease_id AND l.account_id = i.account_id
      ${isCapped ? 'LEFT JOIN cap c ON c.seq = i.seq' : ''}
    WHERE (i.lease_id IS NULL OR l.id IS NOT NULL) AND (NOT i.may_lease OR EXISTS (SELECT 1 FROM epoch))
      AND a.balance_nano >= i.posted
      AND ${isCapped ? 'least(a.free_nano, c.free_nano)' : 'a.free_nano'} + i.freed >= i.needed
      ${isCapped ? `AND ${IS_OF_PERIODS}` : ''}) p
), changed AS (
  UPDATE ledger_hold h SET usd_nano = h.usd_nano - p.freed
    + CASE WHEN p.leased IS NULL THEN 0 ELSE p.asked + p.leased END
  FROM plan p WHERE h.request_id = p.lease_id
), begun AS (
  INSERT INTO ledger_hold (request_id, account_id, allowance_id, allowance_start_ms, usd_nano,
    daily_nano, daily_day, epoch_id, created_ms, budget_ids)
  SELECT new_id, account_id, CASE WHEN own_ms IS NOT NULL THEN allowance_id END, coalesce(own_ms, 0),
    asked + leased, 0, $4, $3, since_ms, budget_ids FROM plan
  WHERE leased IS NOT NULL AND lease_id IS NULL
), single AS (
  INSERT INTO ledger_hold (request_id, account_id, allowance_id, allowance_start_ms, usd_nano,
    daily_nano, daily_day, epoch_id, created_ms, budget_ids)
  SELECT r.request_id, p.account_id, CASE WHEN p.own_ms IS NOT NULL THEN p.allowance_id END,
    coalesce(p.own_ms, 0), r.usd, 0, $4, $3, p.since_ms, p.budget_ids
  FROM json_to_recordset($2::json) AS r(seq bigint, request_id text, usd bigint)
    JOIN plan p ON p.seq = r.seq WHERE p.leased IS NULL
), aside AS (
  UPDATE ledger_account a SET held_nano = a.held_nano + p.asked + coalesce(p.leased, 0) - p.freed
  FROM plan p WHERE a.id = p.account_id
)${isCapped ? COUNT : ''}
SELECT p.seq, p.balance_nano, p.leased, p.spendable_nano, p.own_ms, p.since_ms FROM plan p CROSS JOIN (
  SELECT ${flushedIf('EXISTS (SELECT 1 FROM plan WHERE leased IS NOT NULL)')}) AS flush`;

const GRANT = grantSql(false);
const GRANT_CAPPED = grantSql(true);

interface GrantedRow {
  readonly seq: bigint;
  readonly balance_nano: bigint;
  readonly leased: bigint | null;
  readonly spendable_nano: bigint;
  readonly own_ms: bigint | null;
  readonly since_ms: bigint;
}

const PERIODS = ['EPOCH', 'WEEK', 'MONTH'] as const;

/** In the order of the wants; `undefined` for one that has to be planned. */
export async function grantPlain(
  store: Queryable,
  { epochId, hasEpoch, nowMs }: GrantContext,
  wants: readonly LeaseWant[],
): Promise<readonly (LeaseResult | undefined)[]> {
  const items: unknown[] = [];
  const singles: unknown[] = [];
  let hasCaps = false;
  const perAccount = Map.groupBy(wants, ({ accountId }) => accountId);
  for (const [seq, want] of wants.entries()) {
    if (!want.isPlain || want.lease?.kind === 'daily') continue;
    if (perAccount.get(want.accountId)?.length !== 1) continue;
    hasCaps ||= capIdsOf(want).length > 0;
    items.push(itemOf(want, seq, hasEpoch));
    for (const { requestId, maxNano } of want.requests) {
      singles.push({ seq, request_id: requestId, usd: String(maxNano) });
    }
  }
  const answers: (LeaseResult | undefined)[] = wants.map(() => undefined);
  if (items.length === 0) return answers;
  const parameters = [JSON.stringify(items), JSON.stringify(singles), epochId, dayOf(nowMs), nowMs];
  if (hasCaps) for (const period of PERIODS) parameters.push(periodStartMs(period, nowMs));
  for (const row of await store.query<GrantedRow>(hasCaps ? GRANT_CAPPED : GRANT, parameters)) {
    const want = wants[Number(row.seq)];
    if (want !== undefined) answers[Number(row.seq)] = answerOf(want, row, dayOf(nowMs));
  }
  return answers;
}

function itemOf(want: LeaseWant, seq: number, hasEpoch: boolean) {
  const { accountId, allowanceId, budgetIds, lease, requests, mayLease, newId } = want;
  let [asked, needed, posted] = [0n, 0n, 0n];
  for (const request of requests) {
    // What stands before a request in the same tick is not free for it.
    const free = asked + freeForAll(request);
    if (free > needed) needed = free;
    for (const least of [request.floorNano, request.minNano]) if (least > posted) posted = least;
    asked += request.maxNano;
  }
  const { leastNano, mostNano } = sliceBounds(requests);
  return {
    seq,
    account_id: accountId,
    allowance_id: allowanceId ?? null,
    budget_ids: budgetIds === undefined ? null : JSON.stringify(budgetIds),
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

function answerOf(want: LeaseWant, row: GrantedRow, dailyDay: number): LeaseResult {
  const { requests, lease, newId } = want;
  let total = row.leased ?? 0n;
  const answers = requests.map((request) => {
    total += request.maxNano;
    return plannedFor(request, row, dailyDay);
  });
  const id = lease?.id ?? newId;
  const addedNano = total - (lease?.freeNano ?? 0n);
  const grant = row.leased === null ? undefined : { id, kind: 'usd' as const, addedNano };
  return { answers, grant, isLost: false, isPlain: true, holders: [] };
}

function plannedFor({ maxNano }: HoldRequest, row: GrantedRow, dailyDay: number): PlannedHold {
  return {
    ok: true,
    usdNano: maxNano,
    dailyNano: ZERO,
    spendableNano: row.spendable_nano as Nano, // of what is posted
    before: { usdNano: row.balance_nano as Nano, diemNano: ZERO }, // posted
    dailyDay,
    allowanceStartMs: row.own_ms === null ? undefined : Number(row.own_ms),
    createdMs: Number(row.since_ms),
  };
}
