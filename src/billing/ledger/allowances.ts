/**
 * The caps of keys, and budgets: caps of several keys, or of what is tagged alike. A cap counts what its
 * key spent in the running period, whenever the cap was made: a new cap, a cap that comes back, and a
 * cap whose period changes start from the day rollups. Requests that run at that moment without a cap
 * are counted by no cap. And what keys have spent, for people: since a day, and in the running period.
 */
import { DAY_MS, dayOf } from '../../core/clock.ts';
import { type Nano, nano } from '../../core/money.ts';
import type { Dialect, Queryable } from '../../db/db.ts';
import { type AllowancePeriod, periodStartMs } from './hold-plan.ts';
import { NET_DIEM, NET_USD } from './usage-sums.ts';

export interface AllowanceSettings {
  readonly id: string;
  readonly accountId: string;
  readonly period: AllowancePeriod;
  /** Missing limits are none; a cap without any limit counts nothing. */
  readonly usdLimitNano: Nano | undefined;
  readonly diemLimitNano: Nano | undefined;
  /** What it counts of the account; default: the charges of the key whose id it has. */
  readonly counts?: CountedCharges | undefined;
  /** The budget that it is the cap of, or one of them; a cap of a key has none. */
  readonly budgetId?: string | undefined;
}

/** All that are given must be so; none given: every charge of the account. */
export interface CountedCharges {
  readonly keyIds?: readonly string[] | undefined;
  readonly tag?: { readonly name: string; readonly value: string } | undefined;
}

interface CapRow {
  readonly period: AllowancePeriod;
  readonly period_start_ms: bigint;
  readonly usd_limit_nano: bigint | null;
  readonly diem_limit_nano: bigint | null;
}

export interface AllowanceContext {
  readonly tx: Queryable;
  readonly dialect: Dialect;
  readonly nowMs: number;
}

/** Makes or changes a cap in the caller's transaction; whether requests counted under another one. */
export async function setAllowance(
  context: AllowanceContext,
  settings: AllowanceSettings,
): Promise<boolean> {
  const { tx, nowMs } = context;
  const before = await lockedCap(context, settings);
  const { id, usdLimitNano, diemLimitNano, budgetId, counts } = settings;
  await tx.query(
    `UPDATE ledger_allowance SET usd_limit_nano = $2, diem_limit_nano = $3, budget_id = $4,
     tag_value = $5 WHERE id = $1`,
    [id, usdLimitNano ?? null, diemLimitNano ?? null, budgetId ?? null, counts?.tag?.value ?? null],
  );
  const wasCounting = before.usd_limit_nano !== null || before.diem_limit_nano !== null;
  if (!wasCounting || before.period !== settings.period) {
    await countFromRollups(tx, settings, nowMs);
    return wasCounting;
  }
  const isOther =
    before.usd_limit_nano !== (usdLimitNano ?? null) ||
    before.diem_limit_nano !== (diemLimitNano ?? null);
  const startMs = periodStartMs(before.period, nowMs);
  if (Number(before.period_start_ms) >= startMs) return isOther;
  // Nothing was spent in the period that runs. It begins here, so that the cap is not dropped.
  await tx.query(
    `UPDATE ledger_allowance SET period_start_ms = $2, usd_spent_nano = 0, usd_held_nano = 0,
     diem_spent_nano = 0, diem_held_nano = 0 WHERE id = $1`,
    [id, startMs],
  );
  return isOther;
}

/** Rows that one run drops of each kind of period, at most. */
const DROPPED_AT_ONCE = 1_000;
/** Whoever has made sure of a cap relies on it for an hour (`budgets/budgets.ts`). */
const KEPT_MS = DAY_MS;

/**
 * Forgets some of the caps of budgets whose period has been over for a day and that hold nothing: what
 * is spent later makes them anew.
 */
export async function dropEndedBudgets(store: Queryable, nowMs: number): Promise<void> {
  for (const period of ['EPOCH', 'WEEK', 'MONTH'] as const) {
    const isEnded = `budget_id IS NOT NULL AND period = $1 AND period_start_ms < $2
      AND usd_held_nano = 0 AND diem_held_nano = 0`;
    await store.query(
      `DELETE FROM ledger_allowance WHERE ${isEnded} AND id IN (
         SELECT id FROM ledger_allowance WHERE ${isEnded} LIMIT ${DROPPED_AT_ONCE})`,
      [period, periodStartMs(period, nowMs - KEPT_MS)],
    );
  }
}

/** Whether requests or leases hold something of a cap that had other limits, or another period. */
export async function isOtherwiseHeld(
  tx: Queryable,
  { id, period, usdLimitNano, diemLimitNano }: AllowanceSettings,
): Promise<boolean> {
  const [row] = await tx.query<CapRow>(
    `SELECT period, usd_limit_nano, diem_limit_nano FROM ledger_allowance
     WHERE id = $1 AND usd_held_nano + diem_held_nano > 0`,
    [id],
  );
  if (row === undefined) return false;
  const { usd_limit_nano: usd, diem_limit_nano: diem } = row;
  return (
    usd !== (usdLimitNano ?? null) || diem !== (diemLimitNano ?? null) || row.period !== period
  );
}

/** The same of an account that had another daily allocation. */
export async function isOtherwiseAllocated(
  tx: Queryable,
  of: {
    readonly accountId: string;
    readonly allocationNano: Nano;
    readonly day: number | undefined;
  },
): Promise<boolean> {
  const [row] = await tx.query<{ nano: bigint; day: bigint | null }>(
    `SELECT daily_allocation_nano AS nano, daily_allocation_day AS day FROM ledger_account
     WHERE id = $1 AND held_nano + daily_held_nano > 0`,
    [of.accountId],
  );
  if (row === undefined) return false;
  const day = row.day === null ? undefined : Number(row.day);
  return row.nano !== of.allocationNano || day !== of.day;
}

const OF_BUDGET = 'account_id = $1 AND budget_id = $2';

/** How many caps a budget has: one for each value that came, where each has its own. */
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

/** Forgets caps that nothing is held of. */
export async function dropAllowances(tx: Queryable, ids: readonly string[]): Promise<void> {
  for (const id of ids) {
    await tx.query(
      'DELETE FROM ledger_allowance WHERE id = $1 AND usd_held_nano = 0 AND diem_held_nano = 0',
      [id],
    );
  }
}

/** The row of the cap, locked; a new one has no limit yet, so that its spending is looked up. */
async function lockedCap(
  { tx, dialect, nowMs }: AllowanceContext,
  settings: AllowanceSettings,
): Promise<CapRow> {
  await tx.query(
    `INSERT INTO ledger_allowance (id, account_id, period, period_start_ms, usd_limit_nano,
     diem_limit_nano, usd_spent_nano, usd_held_nano, diem_spent_nano, diem_held_nano)
     VALUES ($1, $2, $3, $4, NULL, NULL, 0, 0, 0, 0) ON CONFLICT (id) DO NOTHING`,
    [settings.id, settings.accountId, settings.period, periodStartMs(settings.period, nowMs)],
  );
  const lock = dialect === 'postgres' ? ' FOR UPDATE' : '';
  const [row] = await tx.query<CapRow>(
    `SELECT period, period_start_ms, usd_limit_nano, diem_limit_nano FROM ledger_allowance
     WHERE id = $1${lock}`,
    [settings.id],
  );
  if (row === undefined) throw new Error('A cap that was just made is not there');
  return row;
}

/** Starts the period anew with what the key spent in it; open holds move into it. */
async function countFromRollups(
  tx: Queryable,
  settings: AllowanceSettings,
  nowMs: number,
): Promise<void> {
  const startMs = periodStartMs(settings.period, nowMs);
  const startDay = periodStartDay(settings.period, nowMs);
  await countJobs(tx, settings, startMs);
  const spent = await countedSince(tx, settings, startDay);
  const ofKey = await tx.query<{ usd_nano: bigint; daily_nano: bigint }>(
    `UPDATE ledger_hold SET allowance_start_ms = $2 WHERE allowance_id = $1
     RETURNING usd_nano, daily_nano`,
    [settings.id, startMs],
  );
  const ofBudget = await tx.query<{ usd_nano: bigint; daily_nano: bigint }>(
    `SELECT usd_nano, daily_nano FROM ledger_hold WHERE account_id = $1 AND created_ms >= $2
     AND budget_ids IS NOT NULL AND replace(budget_ids, $3, '') <> budget_ids`,
    [settings.accountId, startMs, JSON.stringify(settings.id)],
  );
  const held = [...ofKey, ...ofBudget];
  await tx.query(
    `UPDATE ledger_allowance SET period = $2, period_start_ms = $3, usd_spent_nano = $4,
     diem_spent_nano = $5, usd_held_nano = $6, diem_held_nano = $7 WHERE id = $1`,
    [
      settings.id,
      settings.period,
      startMs,
      spent.usdNano,
      spent.diemNano,
      held.reduce((sum, row) => sum + row.usd_nano, 0n),
      held.reduce((sum, row) => sum + row.daily_nano, 0n),
    ],
  );
}

interface JobRow {
  readonly request_id: string;
  readonly key_id: string;
  readonly metadata: string | null;
  readonly cap_ids: string;
}

/** Notes for charges of running jobs that they count in the cap from now on: a refund takes them off. */
async function countJobs(
  tx: Queryable,
  { id, accountId, counts = { keyIds: [id] } }: AllowanceSettings,
  sinceMs: number,
): Promise<void> {
  const { keyIds, tag } = counts;
  const jobs = await tx.query<JobRow>(
    `SELECT request_id, key_id, metadata, cap_ids FROM ledger_job
     WHERE account_id = $1 AND created_ms >= $2`,
    [accountId, sinceMs],
  );
  for (const job of jobs) {
    const capIds = JSON.parse(job.cap_ids) as string[]; // ours
    const tags = JSON.parse(job.metadata ?? '{}') as Record<string, string>; // ours
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

interface SumRow {
  readonly key_id: string;
  readonly usd: bigint | null;
  readonly diem: bigint | null;
}

/** What each key of an account spent since a day, that day included; silent keys are missing. */
export async function spendingSince(
  store: Queryable,
  accountId: string,
  fromDay: number,
): Promise<ReadonlyMap<string, Spending>> {
  const rows = await store.query<SumRow>(
    `SELECT key_id, CAST(sum(${NET_USD}) AS BIGINT) AS usd, CAST(sum(${NET_DIEM}) AS BIGINT) AS diem
     FROM ledger_usage_day WHERE account_id = $1 AND day >= $2 GROUP BY key_id`,
    [accountId, fromDay],
  );
  return new Map(rows.map((row) => [row.key_id, spendingOf(row.usd, row.diem)]));
}

/** What a cap counts since a day: that of a key, of several, or of a tag. */
async function countedSince(
  tx: Queryable,
  { id, accountId, counts = { keyIds: [id] } }: AllowanceSettings,
  fromDay: number,
): Promise<Spending> {
  const { tag } = counts;
  const keyIds = counts.keyIds && new Set(counts.keyIds);
  const ofKeys =
    tag === undefined
      ? await spendingSince(tx, accountId, fromDay)
      : await tagSpendingSince(tx, accountId, fromDay, tag);
  let [usd, diem] = [0n, 0n];
  for (const [keyId, { usdNano, diemNano }] of ofKeys) {
    if (keyIds?.has(keyId) === false) continue;
    usd += usdNano;
    diem += diemNano;
  }
  return spendingOf(usd, diem);
}

/** By key. */
async function tagSpendingSince(
  tx: Queryable,
  accountId: string,
  fromDay: number,
  tag: { readonly name: string; readonly value: string },
): Promise<ReadonlyMap<string, Spending>> {
  const rows = await tx.query<SumRow>(
    `SELECT key_id, CAST(sum(${NET_USD}) AS BIGINT) AS usd, CAST(sum(${NET_DIEM}) AS BIGINT) AS diem
     FROM ledger_usage_tag WHERE account_id = $1 AND name = $2 AND day >= $3 AND value = $4
     GROUP BY key_id`,
    [accountId, tag.name, fromDay, tag.value],
  );
  return new Map(rows.map((row) => [row.key_id, spendingOf(row.usd, row.diem)]));
}

interface CappedRow {
  readonly id: string;
  readonly period: AllowancePeriod;
  readonly period_start_ms: bigint;
  readonly usd_spent_nano: bigint;
  readonly diem_spent_nano: bigint;
}

/** Ids in one question: more than an account has keys. */
const MAX_IDS = 500;

/**
 * What counts against those of the caps that have a limit, in the period that runs at `nowMs`. They are
 * named, since an account can have a cap for each of its end users.
 */
export async function cappedSpending(
  store: Queryable,
  ids: readonly string[],
  nowMs: number,
): Promise<ReadonlyMap<string, Spending>> {
  const rows: CappedRow[] = [];
  for (let from = 0; from < ids.length; from += MAX_IDS) {
    const some = ids.slice(from, from + MAX_IDS);
    const places = some.map((_, at) => `$${at + 1}`).join(', ');
    const found = await store.query<CappedRow>(
      `SELECT id, period, period_start_ms, usd_spent_nano, diem_spent_nano FROM ledger_allowance
       WHERE id IN (${places}) AND (usd_limit_nano IS NOT NULL OR diem_limit_nano IS NOT NULL)`,
      some,
    );
    rows.push(...found);
  }
  return new Map(
    rows.map((row) => {
      const isCurrent = Number(row.period_start_ms) >= periodStartMs(row.period, nowMs);
      return [
        row.id,
        isCurrent ? spendingOf(row.usd_spent_nano, row.diem_spent_nano) : NOTHING_SPENT,
      ];
    }),
  );
}

/** What counts against a cap in the period that runs at `nowMs`, also before a request has made its row. */
export async function spendingOfCap(
  store: Queryable,
  settings: AllowanceSettings,
  nowMs: number,
): Promise<Spending> {
  const capped = await cappedSpending(store, [settings.id], nowMs);
  return (
    capped.get(settings.id) ??
    (await countedSince(store, settings, periodStartDay(settings.period, nowMs)))
  );
}

/** The first day of the period that runs at `nowMs`; 0 for LIFETIME. */
export function periodStartDay(period: AllowancePeriod, nowMs: number): number {
  return dayOf(periodStartMs(period, nowMs));
}

function spendingOf(usd: bigint | null, diem: bigint | null): Spending {
  return { usdNano: nano(usd ?? 0n), diemNano: nano(diem ?? 0n) };
}
