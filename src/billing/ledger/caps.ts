/**
 * The table of caps: of keys, and of budgets (several keys, or requests with the same tag). A cap
 * counts what was spent in its running period, even before the cap was created: a new cap, a
 * restored cap, and a cap whose period changes start from the daily rollups. Requests that run
 * without the cap at that moment are not counted. Also reads the spending of keys, since a given
 * day and in the running period.
 */
import { assert } from '../../core/assert.ts';
import { DAY_MS, dayOf } from '../../core/clock.ts';
import { type Nano, nano } from '../../core/money.ts';
import { type Queryable, deleteInBatches } from '../../db/db.ts';
import { type CapPeriod, periodStartMs } from '../rules.ts';
import { type CapRow, readStates } from './states.ts';
import { NET_DIEM, NET_USD } from './usage-sums.ts';

export interface CapSettings {
  readonly id: string;
  readonly accountId: string;
  readonly period: CapPeriod;
  /** A missing limit means unlimited; a cap without any limit counts nothing. */
  readonly usdLimitNano: Nano | undefined;
  readonly diemLimitNano: Nano | undefined;
  /** The charges that it counts; default: those of the key with the id of the cap. */
  readonly counts?: CountedCharges | undefined;
  /** The budget that the cap belongs to; `undefined` for the cap of a key. */
  readonly budgetId?: string | undefined;
}

/** A charge counts if it meets all given conditions; without any, every charge counts. */
export interface CountedCharges {
  readonly keyIds?: readonly string[] | undefined;
  readonly tag?: { readonly name: string; readonly value: string } | undefined;
}

type LimitRow = Pick<CapRow, 'period' | 'period_start_ms' | 'usd_limit_nano' | 'diem_limit_nano'>;

/** Creates or changes a cap; returns whether it had other limits or another period before. */
export async function setCap(
  tx: Queryable,
  settings: CapSettings,
  nowMs: number,
): Promise<boolean> {
  const before = await lockCap(tx, settings, nowMs);
  const { id, period, usdLimitNano, diemLimitNano, budgetId, counts } = settings;
  await tx.query(
    `UPDATE ledger_allowance SET usd_limit_nano = $2, diem_limit_nano = $3, budget_id = $4,
     tag_value = $5 WHERE id = $1`,
    [id, usdLimitNano ?? null, diemLimitNano ?? null, budgetId ?? null, counts?.tag?.value ?? null],
  );
  const wasCounting = before.usd_limit_nano !== null || before.diem_limit_nano !== null;
  if (!wasCounting || before.period !== period) {
    await countFromRollups(tx, settings, nowMs);
    return wasCounting;
  }
  const startMs = periodStartMs(period, nowMs);
  if (Number(before.period_start_ms) < startMs) {
    // The running period has no row until its first spending. Add it with 0, so that the cap applies.
    await beginPeriod(tx, settings, startMs, NOTHING_SPENT, NOTHING_SPENT);
  }
  return isOther(before, settings);
}

function isOther(
  { period, usd_limit_nano: usd, diem_limit_nano: diem }: LimitRow,
  settings: CapSettings,
): boolean {
  const { usdLimitNano = null, diemLimitNano = null } = settings;
  return usd !== usdLimitNano || diem !== diemLimitNano || period !== settings.period;
}

const DROPPED_AT_ONCE = 1_000;
/** A process that has confirmed a cap relies on it for an hour (`budgets/budgets.ts`). */
const KEPT_MS = DAY_MS;

/** Drops budget caps without holds whose period ended a day ago, in batches; they can be recreated. */
export async function dropEndedBudgets(store: Queryable, nowMs: number): Promise<void> {
  for (const period of ['EPOCH', 'WEEK', 'MONTH'] as const) {
    const isEnded = `budget_id IS NOT NULL AND period = $1 AND period_start_ms < $2
      AND usd_held_nano = 0 AND diem_held_nano = 0`;
    await deleteInBatches(DROPPED_AT_ONCE, () =>
      store.query(
        `DELETE FROM ledger_allowance WHERE ${isEnded} AND id IN (
           SELECT id FROM ledger_allowance WHERE ${isEnded} LIMIT ${DROPPED_AT_ONCE})
         RETURNING id`,
        [period, periodStartMs(period, nowMs - KEPT_MS)],
      ),
    );
  }
}

/** Whether requests or leases hold part of a cap whose limits or period differ from `settings`. */
export async function isOtherwiseHeld(tx: Queryable, settings: CapSettings): Promise<boolean> {
  const [row] = await tx.query<LimitRow>(
    `SELECT period, period_start_ms, usd_limit_nano, diem_limit_nano FROM ledger_allowance
     WHERE id = $1 AND usd_held_nano + diem_held_nano > 0`,
    [settings.id],
  );
  return row !== undefined && isOther(row, settings);
}

/** Whether requests or leases hold part of an account whose daily allocation differs. */
export async function isOtherwiseAllocated(
  tx: Queryable,
  accountId: string,
  allocationNano: Nano,
  day: number | undefined,
): Promise<boolean> {
  const rows = await tx.query(
    `SELECT id FROM ledger_account WHERE id = $1 AND held_nano + daily_held_nano > 0
     AND (daily_allocation_nano <> $2 OR COALESCE(daily_allocation_day, -1) <> $3)`,
    [accountId, allocationNano, day ?? -1],
  );
  return rows.length > 0;
}

const OF_BUDGET = 'account_id = $1 AND budget_id = $2';

export async function countBudgetCaps(
  tx: Queryable,
  accountId: string,
  budgetId: string,
): Promise<number> {
  const sql = `SELECT count(*) AS count FROM ledger_allowance WHERE ${OF_BUDGET}`;
  const [row] = await tx.query<{ count: bigint }>(sql, [accountId, budgetId]);
  return Number(row?.count ?? 0n);
}

export async function setBudgetLimit(
  tx: Queryable,
  accountId: string,
  budgetId: string,
  usdLimitNano: Nano,
): Promise<void> {
  await tx.query(`UPDATE ledger_allowance SET usd_limit_nano = $3 WHERE ${OF_BUDGET}`, [
    accountId,
    budgetId,
    usdLimitNano,
  ]);
}

export async function dropBudget(
  tx: Queryable,
  accountId: string,
  budgetId: string,
): Promise<void> {
  await tx.query(
    `DELETE FROM ledger_allowance WHERE ${OF_BUDGET} AND usd_held_nano = 0 AND diem_held_nano = 0`,
    [accountId, budgetId],
  );
}

export async function dropCaps(tx: Queryable, ids: readonly string[]): Promise<void> {
  await tx.query(
    `DELETE FROM ledger_allowance WHERE id IN (SELECT json_array_elements_text($1::json))
     AND usd_held_nano = 0 AND diem_held_nano = 0`,
    [JSON.stringify(ids)],
  );
}

async function lockCap(
  tx: Queryable,
  { id, accountId, period }: CapSettings,
  nowMs: number,
): Promise<LimitRow> {
  await tx.query(
    `INSERT INTO ledger_allowance (id, account_id, period, period_start_ms, usd_limit_nano,
     diem_limit_nano, usd_spent_nano, usd_held_nano, diem_spent_nano, diem_held_nano)
     VALUES ($1, $2, $3, $4, NULL, NULL, 0, 0, 0, 0) ON CONFLICT (id) DO NOTHING`,
    [id, accountId, period, periodStartMs(period, nowMs)],
  );
  const [row] = await tx.query<LimitRow>(
    `SELECT period, period_start_ms, usd_limit_nano, diem_limit_nano FROM ledger_allowance
     WHERE id = $1 FOR UPDATE`,
    [id],
  );
  assert(row !== undefined, 'a cap that was just made is there');
  return row;
}

async function countFromRollups(
  tx: Queryable,
  settings: CapSettings,
  nowMs: number,
): Promise<void> {
  const { id, accountId, period } = settings;
  const startMs = periodStartMs(period, nowMs);
  const startDay = dayOf(startMs);
  await countJobs(tx, settings, startDay);
  const spent = await countedSince(tx, settings, startDay);
  const holds = await tx.query<{ usd_nano: bigint; daily_nano: bigint }>(
    `SELECT usd_nano, daily_nano FROM ledger_hold WHERE account_id = $1 AND created_ms >= $2
     AND (allowance_id = $3 OR replace(budget_ids, $4, '') <> budget_ids)`,
    [accountId, startMs, id, JSON.stringify(id)],
  );
  const held = spendingOf(
    holds.reduce((sum, row) => sum + row.usd_nano, 0n),
    holds.reduce((sum, row) => sum + row.daily_nano, 0n),
  );
  await beginPeriod(tx, settings, startMs, spent, held);
}

async function beginPeriod(
  tx: Queryable,
  { id, period }: CapSettings,
  startMs: number,
  spent: Spending,
  held: Spending,
): Promise<void> {
  await tx.query(
    `UPDATE ledger_allowance SET period = $2, period_start_ms = $3, usd_spent_nano = $4,
     diem_spent_nano = $5, usd_held_nano = $6, diem_held_nano = $7 WHERE id = $1`,
    [id, period, startMs, spent.usdNano, spent.diemNano, held.usdNano, held.diemNano],
  );
}

interface JobRow {
  readonly request_id: string;
  readonly key_id: string;
  readonly metadata: string | null;
  readonly cap_ids: string;
}

/**
 * Adds the cap to the charges of running jobs in the rollups of these days, so that a refund
 * subtracts them again.
 */
async function countJobs(
  tx: Queryable,
  { id, accountId, counts = { keyIds: [id] } }: CapSettings,
  fromDay: number,
): Promise<void> {
  const { keyIds, tag } = counts;
  const jobs = await tx.query<JobRow>(
    `SELECT j.request_id, j.key_id, j.metadata, j.cap_ids FROM ledger_job j
     JOIN ledger_usage u ON u.request_id = j.request_id WHERE j.account_id = $1 AND u.day >= $2`,
    [accountId, fromDay],
  );
  for (const job of jobs) {
    const capIds = JSON.parse(job.cap_ids) as string[]; // written by this folder
    const tags = JSON.parse(job.metadata ?? '{}') as Record<string, string>; // own JSON
    const isCounted =
      keyIds?.includes(job.key_id) !== false && (tag === undefined || tags[tag.name] === tag.value);
    if (!isCounted || capIds.includes(id)) continue;
    await tx.query('UPDATE ledger_job SET cap_ids = $2 WHERE request_id = $1', [
      job.request_id,
      JSON.stringify([...capIds, id]),
    ]);
  }
}

export interface Spending {
  readonly usdNano: Nano;
  readonly diemNano: Nano;
}

export const NOTHING_SPENT: Spending = { usdNano: nano(0n), diemNano: nano(0n) };

/** Returns the spending of each key since a day, inclusive; omits keys without spending. */
export async function spendingSince(
  store: Queryable,
  accountId: string,
  fromDay: number,
  tag?: { readonly name: string; readonly value: string },
): Promise<ReadonlyMap<string, Spending>> {
  const rows = await store.query<{ key_id: string; usd: bigint; diem: bigint }>(
    `SELECT key_id, CAST(sum(${NET_USD}) AS BIGINT) AS usd, CAST(sum(${NET_DIEM}) AS BIGINT) AS diem
     FROM ledger_usage_${tag === undefined ? 'day' : 'tag'} WHERE account_id = $1 AND day >= $2
     ${tag === undefined ? '' : 'AND name = $3 AND value = $4'} GROUP BY key_id`,
    [accountId, fromDay, ...(tag === undefined ? [] : [tag.name, tag.value])],
  );
  return new Map(rows.map((row) => [row.key_id, spendingOf(row.usd, row.diem)]));
}

async function countedSince(
  tx: Queryable,
  { id, accountId, counts = { keyIds: [id] } }: CapSettings,
  fromDay: number,
): Promise<Spending> {
  const { keyIds, tag } = counts;
  let [usd, diem] = [0n, 0n];
  for (const [keyId, spent] of await spendingSince(tx, accountId, fromDay, tag)) {
    if (keyIds?.includes(keyId) === false) continue;
    usd += spent.usdNano;
    diem += spent.diemNano;
  }
  return spendingOf(usd, diem);
}

interface CappedSpending extends Spending {
  /** `undefined` if only daily credit is limited. */
  readonly usdLimitNano: Nano | undefined;
  readonly period: CapPeriod;
}

/**
 * Returns the spending that counts against the named caps in the period that runs at `nowMs`, for
 * those that have a limit. The caller names the caps because an account can have one for each of
 * its end users.
 */
export async function cappedSpending(
  store: Queryable,
  ids: readonly string[],
  nowMs: number,
): Promise<ReadonlyMap<string, CappedSpending>> {
  const { caps } = await readStates(store, nowMs, { accountIds: [], capIds: ids });
  const capped = new Map<string, CappedSpending>();
  for (const [id, cap] of caps) {
    const { period, usdLimitNano: limit, usdSpentNano, diemSpentNano } = cap;
    if (limit === undefined && cap.diemLimitNano === undefined) continue;
    const usdLimitNano = limit === undefined ? undefined : nano(limit);
    capped.set(id, { ...spendingOf(usdSpentNano, diemSpentNano), period, usdLimitNano });
  }
  return capped;
}

/** Returns the spending of a cap in the current period, even if its row does not exist yet. */
export async function spendingOfCap(
  store: Queryable,
  settings: CapSettings,
  nowMs: number,
): Promise<Spending> {
  const capped = await cappedSpending(store, [settings.id], nowMs);
  return (
    capped.get(settings.id) ??
    (await countedSince(store, settings, periodStartDay(settings.period, nowMs)))
  );
}

export function periodStartDay(period: CapPeriod, nowMs: number): number {
  return dayOf(periodStartMs(period, nowMs));
}

function spendingOf(usd: bigint, diem: bigint): Spending {
  return { usdNano: nano(usd), diemNano: nano(diem) };
}
