/**
 * Settles of one tick in one statement: the receipts are written, the costs go from the leases of the
 * holds to revenue, balances and caps follow, and the day's sums are written, all or nothing. What
 * many settles of an account add up to is added up here, which costs a third less than in PostgreSQL;
 * so nothing at all happens where a lease is gone, and the others are sent again without its settles.
 * What finds no lease is settled under a lock (`settle.ts`): its process was taken for dead, or it was
 * settled before. A settle that comes alone, as that of one caller does, has a statement without joins.
 */
import { DAY_MS, dayOf } from '../../../core/clock.ts';
import { nano } from '../../../core/money.ts';
import type { Parameter, Queryable } from '../../../db/db.ts';
import type { Settlement } from '../records.ts';
import { LATE_AFTER_MS } from '../spent-ever.ts';
import {
  FIELDS,
  type Item,
  type LeaseSettle,
  itemOf,
  itemsText,
  textsText,
} from './settle-item.ts';
import { SETTLE_LAST, SETTLE_ONE, settleSqlFor } from './settle-sql.ts';

interface SettledRow {
  readonly request_id: string;
  readonly usd: bigint;
  readonly diem: bigint;
  readonly balance_after: bigint;
  readonly daily_after: bigint;
}

interface LeaseRow {
  readonly id: string;
  readonly balance_nano: bigint;
  readonly daily_left: bigint;
  readonly is_settled: boolean;
}

/** Both in nano-USD. */
interface Spent {
  usd: bigint;
  diem: bigint;
}

/**
 * By request id; one that is missing has to be settled under a lock. Each id comes once. Where one of
 * several was settled before nothing is done, and the error says that a receipt is there already.
 */
export async function settleFromLeases(
  tx: Queryable,
  settles: readonly LeaseSettle[],
  nowMs: number,
): Promise<ReadonlyMap<string, Settlement>> {
  const settled = new Map<string, Settlement>();
  const [first] = settles;
  if (first === undefined) return settled;
  if (settles.length === 1 && isSimple(first, nowMs)) {
    const settlement = await settleSimple(tx, first, nowMs);
    if (settlement !== undefined) return settled.set(first.request.usage.requestId, settlement);
  }
  const together = addUp(settles, nowMs);
  const rows = await tx.query<LeaseRow>(together.sql, together.parameters);
  if (rows.length < together.leases.size) {
    const there = new Set(rows.map(({ id }) => id));
    const left = settles.filter(({ leaseId }) => there.has(leaseId));
    return settleFromLeases(tx, left, nowMs);
  }
  const before = new Map(rows.map((row) => [row.id, row]));
  for (const [index, { request, leaseId, usdNano, dailyNano }] of settles.entries()) {
    const row = before.get(leaseId);
    const soFar = together.soFar[index];
    if (row?.is_settled !== true || soFar === undefined) continue;
    const dailyLeftNano = row.daily_left - soFar.diem;
    settled.set(request.usage.requestId, {
      fresh: true,
      usdNano: nano(usdNano),
      diemNano: nano(dailyNano),
      after: {
        usdNano: nano(row.balance_nano - soFar.usd),
        diemNano: nano(dailyLeftNano > 0n ? dailyLeftNano : 0n),
      },
    });
  }
  return settled;
}

async function settleSimple(
  tx: Queryable,
  settle: LeaseSettle,
  nowMs: number,
): Promise<Settlement | undefined> {
  const item = itemOf(settle, 0n, nowMs);
  const values = [...FIELDS.map((field) => item[field]), settle.leaseId, dayOf(nowMs), nowMs];
  const sql = settle.isLast ? SETTLE_LAST : SETTLE_ONE;
  const [row] = await tx.query<SettledRow>(sql, values);
  if (row === undefined) return undefined;
  return {
    fresh: true,
    usdNano: nano(row.usd),
    diemNano: nano(row.diem),
    after: { usdNano: nano(row.balance_after), diemNano: nano(row.daily_after) },
  };
}

interface Together {
  readonly sql: string;
  readonly parameters: readonly Parameter[];
  readonly leases: ReadonlyMap<string, Spent>;
  /** Of each settle, what its account spends up to it. */
  readonly soFar: readonly Spent[];
}

/** The statement for all of them, with what each account and each lease spends. */
function addUp(settles: readonly LeaseSettle[], nowMs: number): Together {
  const items: Item[] = [];
  const accounts = new Map<string, Spent>();
  const leases = new Map<string, Spent>();
  const lasts: boolean[] = [];
  const soFar: Spent[] = [];
  const caps = new Set<string>();
  let hasDaily = false;
  let hasBudgets = false;
  let hasTags = false;
  let hasLate = false;
  for (const settle of settles) {
    const { leaseId, allowanceId, budgetIds, request } = settle;
    const ofAccount = add(accounts, request.usage.accountId, settle);
    soFar.push({ ...ofAccount });
    const item = itemOf(settle, ofAccount.usd, nowMs);
    items.push(item);
    add(leases, leaseId, settle);
    // What the row of one request has is for it alone.
    if (leases.size > lasts.length) lasts.push(settle.isLast);
    if (allowanceId !== undefined) caps.add(allowanceId);
    for (const id of budgetIds ?? []) caps.add(id);
    hasLate ||= item.is_late;
    hasDaily ||= settle.dailyNano > 0n;
    hasBudgets ||= budgetIds !== undefined;
    hasTags ||= request.usage.metadata !== undefined;
  }
  const hasCaps = caps.size > 0;
  const sql = settleSqlFor({
    isAlone: settles.length === 1,
    hasLast: lasts.includes(true),
    hasDaily,
    hasCaps,
    hasBudgets,
    hasTags,
    hasLate,
  });
  const ofLeases = [...leases.values()];
  const parameters = [
    itemsText(items),
    dayOf(nowMs),
    nowMs,
    textsText(accounts.keys()),
    textsText(leases.keys()),
    `{${ofLeases.map(({ usd }) => usd).join()}}`,
    `{${ofLeases.map(({ diem }) => diem).join()}}`,
    `{${lasts.join()}}`,
  ];
  if (hasCaps) parameters.push(textsText(caps));
  return { sql, parameters, leases, soFar };
}

function add(sums: Map<string, Spent>, id: string, { usdNano, dailyNano }: LeaseSettle): Spent {
  let sum = sums.get(id);
  if (sum === undefined) {
    sum = { usd: 0n, diem: 0n };
    sums.set(id, sum);
  }
  sum.usd += usdNano;
  sum.diem += dailyNano;
  return sum;
}

function isSimple(
  { dailyNano, allowanceId, budgetIds, request: { usage } }: LeaseSettle,
  nowMs: number,
): boolean {
  const isUncapped = allowanceId === undefined && budgetIds === undefined;
  const isToday = nowMs - dayOf(usage.createdMs) * DAY_MS < LATE_AFTER_MS;
  return isUncapped && isToday && dailyNano === 0n && usage.metadata === undefined;
}
