/**
 * Total spending of an account or of one of its keys, minus refunds, for tools that poll every few
 * seconds. It is the sum of the daily rollups; the sum of past days is stored and extended once a
 * day. A charge for a day that is already in the stored sum (a job that ran for days, a settle from
 * the journal) invalidates the sum in the transaction of its settle. So a query reads only a few
 * days, and its result equals the sum of all rollups minus all refunds, to the nano.
 */
import { DAY_MS, dayOf } from '../../core/clock.ts';
import { nano } from '../../core/money.ts';
import type { Queryable, Store } from '../../db/db.ts';
import { NOTHING_SPENT, type Spending } from './caps.ts';
import { total } from './usage-sums.ts';

/** Days before today that can still be charged, because requests run past midnight. */
const OPEN_DAYS = 1;
/** Clocks of processes differ by less than a day. */
const SKEW_DAYS = 1;

export interface EverSpent {
  readonly account: Spending;
  readonly key: Spending;
}

interface SumsRow {
  /** Days before it are in the stored sum; 0 if there is none. */
  readonly day: bigint;
  readonly usd: bigint;
  readonly diem: bigint;
  readonly key_usd: bigint;
  readonly key_diem: bigint;
}

const ofKey = (column: string): string => total(`CASE WHEN key_id = $2 THEN ${column} ELSE 0 END`);

const sums = `${total('usd_nano')} AS usd, ${total('diem_nano')} AS diem,
    ${ofKey('usd_nano')} AS key_usd, ${ofKey('diem_nano')} AS key_diem`;

const SUMS = `SELECT s.day AS day, s.usd_nano + r.usd - f.usd AS usd,
  s.diem_nano + r.diem - f.diem AS diem,
  COALESCE(k.usd_nano, 0) + r.key_usd - f.key_usd AS key_usd,
  COALESCE(k.diem_nano, 0) + r.key_diem - f.key_diem AS key_diem
  FROM ledger_spent s
  CROSS JOIN (SELECT ${sums} FROM ledger_refund WHERE account_id = $1) f
  CROSS JOIN (SELECT ${sums} FROM ledger_usage_day WHERE account_id = $1
    AND day >= (SELECT day FROM ledger_spent WHERE account_id = $1)) r
  LEFT JOIN ledger_spent_key k ON k.account_id = s.account_id AND k.key_id = $2
  WHERE s.account_id = $1`;

export async function spentEver(
  store: Store,
  { accountId, keyId }: { readonly accountId: string; readonly keyId: string },
  nowMs: number,
): Promise<EverSpent> {
  const lastOpenDay = dayOf(nowMs) - OPEN_DAYS;
  const untilDay = lastOpenDay - SKEW_DAYS;
  for (;;) {
    const [row] = await store.query<SumsRow>(SUMS, [accountId, keyId]);
    const day = Number(row?.day ?? 0n);
    // A later day was written by a process with a wrong clock.
    if (row !== undefined && day >= untilDay && day <= lastOpenDay) {
      return {
        account: { usdNano: nano(row.usd), diemNano: nano(row.diem) },
        key: { usdNano: nano(row.key_usd), diemNano: nano(row.key_diem) },
      };
    }
    if (!(await addUp(store, accountId, untilDay))) {
      return { account: NOTHING_SPENT, key: NOTHING_SPENT };
    }
  }
}

/** Stores the sum until `untilDay`, exclusive; `false` for an account without ledger rows. */
async function addUp(store: Store, accountId: string, untilDay: number): Promise<boolean> {
  return store.transaction(async (tx) => {
    // Settles lock the row of the account: each has ended, or runs after this and sees the sum.
    const sql = 'SELECT id FROM ledger_account WHERE id = $1 FOR UPDATE';
    const [account] = await tx.query(sql, [accountId]);
    if (account === undefined) return false;
    const fromDay = await addedUntil(tx, accountId, untilDay);
    if (fromDay === 0) {
      await tx.query('DELETE FROM ledger_spent_key WHERE account_id = $1', [accountId]);
    }
    await tx.query(
      `INSERT INTO ledger_spent_key (account_id, key_id, usd_nano, diem_nano)
       SELECT account_id, key_id, ${total('usd_nano')}, ${total('diem_nano')} FROM ledger_usage_day
       WHERE account_id = $1 AND day >= $2 AND day < $3 GROUP BY account_id, key_id
       ON CONFLICT (account_id, key_id) DO UPDATE SET
       usd_nano = ledger_spent_key.usd_nano + excluded.usd_nano,
       diem_nano = ledger_spent_key.diem_nano + excluded.diem_nano`,
      [accountId, fromDay, untilDay],
    );
    await tx.query(
      `INSERT INTO ledger_spent (account_id, day, usd_nano, diem_nano)
       SELECT $1, CAST($2 AS BIGINT), ${total('usd_nano')}, ${total('diem_nano')}
       FROM ledger_spent_key WHERE account_id = $1
       ON CONFLICT (account_id) DO UPDATE SET day = excluded.day, usd_nano = excluded.usd_nano,
       diem_nano = excluded.diem_nano`,
      [accountId, untilDay],
    );
    return true;
  });
}

/** Returns the day until which the stored sum is usable; 0 if it is not. */
async function addedUntil(tx: Queryable, accountId: string, untilDay: number): Promise<number> {
  const sql = 'SELECT day FROM ledger_spent WHERE account_id = $1';
  const [row] = await tx.query<{ day: bigint }>(sql, [accountId]);
  const day = Number(row?.day ?? 0n);
  return day > untilDay ? 0 : day;
}

/** A charge for a day that began longer ago than this must invalidate the stored sum. */
export const LATE_AFTER_MS = (1 + OPEN_DAYS) * DAY_MS;

export const FORGET_SUMS = `INSERT INTO ledger_spent (account_id, day, usd_nano, diem_nano)
  VALUES ($1, 0, 0, 0) ON CONFLICT (account_id) DO UPDATE SET day = 0`;
