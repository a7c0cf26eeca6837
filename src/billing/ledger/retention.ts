/**
 * Drops old receipts and postings, whole days at a time. Their sums are added to `ledger_carry` in
 * the same transaction, so that the audit stays exact to the nano.
 */
import { type PartitionedTable, type Store, dropDays, makeDayPartitions } from '../../db/db.ts';

const USAGE: PartitionedTable = { table: 'ledger_usage', column: 'day', unitsPerDay: 1 };
const TRANSFER: PartitionedTable = { table: 'ledger_transfer', column: 'day', unitsPerDay: 1 };

const DELETE_BATCH = 500;

/** Rows from before these days may be dropped; `undefined` keeps them forever. */
export interface KeptFrom {
  readonly usageDay: number | undefined;
  readonly postingDay: number | undefined;
}

/** Returns the first day that has a row. It reads every row, so use it in commands only. */
export async function firstDay(store: Store): Promise<number | undefined> {
  const [row] = await store.query<{ first: bigint | null }>(
    `SELECT min(day) AS first FROM (SELECT min(day) AS day FROM ledger_usage
     UNION ALL SELECT min(day) FROM ledger_transfer) days`,
  );
  return row === undefined || row.first === null ? undefined : Number(row.first);
}

/** Creates the partitions from `fromDay` to `untilDay`, exclusive; nothing on SQLite. */
export async function prepareDays(store: Store, fromDay: number, untilDay: number): Promise<void> {
  const days = Array.from({ length: Math.max(0, untilDay - fromDay) }, (_, at) => fromDay + at);
  await makeDayPartitions(store, USAGE, days);
  await makeDayPartitions(store, TRANSFER, days);
}

export async function dropOld(store: Store, kept: KeptFrom): Promise<number> {
  const { usageDay, postingDay } = kept;
  let dropped = 0;
  if (usageDay !== undefined) dropped += await dropRows(store, 'usage', usageDay);
  if (postingDay !== undefined) dropped += await dropRows(store, 'postings', postingDay);
  return dropped;
}

type RowsOf = 'usage' | 'postings';

async function dropRows(store: Store, rowsOf: RowsOf, beforeDay: number): Promise<number> {
  await store.query(
    `INSERT INTO ledger_kept_from (rows_of, day) VALUES ($1, $2)
     ON CONFLICT (rows_of) DO UPDATE SET day = excluded.day WHERE ledger_kept_from.day < excluded.day`,
    [rowsOf, beforeDay],
  );
  // Tag sums are dropped with the receipts, because a caller with a unique tag per request has as
  // many of them.
  if (rowsOf === 'usage') await dropTags(store, beforeDay);
  return dropDays(store, rowsOf === 'usage' ? USAGE : TRANSFER, {
    beforeDay,
    keep: (rows) => carriesOf(rowsOf, rows),
    accounts: async (after, limit) => {
      const sql = `SELECT id FROM ledger_account WHERE id > $1 ORDER BY id LIMIT ${limit}`;
      return (await store.query<{ id: string }>(sql, [after])).map(({ id }) => id);
    },
  });
}

const TAG_KEY = 'account_id, name, day, value, key_id, model_id';

async function dropTags(store: Store, beforeDay: number): Promise<void> {
  for (;;) {
    const deleted = await store.query(
      `DELETE FROM ledger_report_tag WHERE day = (SELECT min(day) FROM ledger_report_tag)
       AND day < $1 RETURNING day`,
      [beforeDay],
    );
    if (deleted.length === 0) break;
  }
  for (;;) {
    const dropped = await store.query(
      `DELETE FROM ledger_usage_tag WHERE (${TAG_KEY}) IN (SELECT ${TAG_KEY} FROM ledger_usage_tag
       WHERE day < $1 LIMIT ${DELETE_BATCH}) RETURNING day`,
      [beforeDay],
    );
    if (dropped.length < DELETE_BATCH) return;
  }
}

const INSERT = `INSERT INTO ledger_carry
  (account_id, credited_nano, debited_nano, charged_nano, used_nano, transfers)`;
const ADD = `ON CONFLICT (account_id) DO UPDATE SET
  credited_nano = ledger_carry.credited_nano + excluded.credited_nano,
  debited_nano = ledger_carry.debited_nano + excluded.debited_nano,
  charged_nano = ledger_carry.charged_nano + excluded.charged_nano,
  used_nano = ledger_carry.used_nano + excluded.used_nano,
  transfers = ledger_carry.transfers + excluded.transfers`;

/**
 * Returns the statements that add rows to the carried sums. For postings they also sum the other
 * side of each, which is never another caller's account.
 */
function carriesOf(rowsOf: RowsOf, rows: string): readonly string[] {
  if (rowsOf === 'usage') {
    return [
      `${INSERT} SELECT account_id, 0, 0, 0, sum(usd_nano + diem_nano), 0 FROM ${rows}
       GROUP BY account_id ${ADD}`,
    ];
  }
  return [
    `${INSERT} SELECT account_id,
       sum(CASE WHEN credit_account = account_id THEN amount_nano ELSE 0 END),
       sum(CASE WHEN debit_account = account_id THEN amount_nano ELSE 0 END),
       sum(CASE WHEN kind = 'CHARGE' THEN amount_nano ELSE 0 END), 0, count(*) FROM ${rows}
     GROUP BY account_id ${ADD}`,
    `${INSERT} SELECT id, sum(credited), sum(debited), 0, 0, 0 FROM (
       SELECT credit_account AS id, amount_nano AS credited, 0 AS debited FROM ${rows}
         WHERE credit_account <> account_id
       UNION ALL
       SELECT debit_account, 0, amount_nano FROM ${rows} WHERE debit_account <> account_id
     ) sides GROUP BY id ${ADD}`,
  ];
}
