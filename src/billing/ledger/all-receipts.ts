/**
 * Reads the receipts of all accounts, newest first. Ids of requests sort by time (`Ids.ordered`), so
 * the primary key serves as the index: a further one would cost each settle.
 */
import { dayOf, dayStartMs } from '../../core/clock.ts';
import { type Parameter, type ScannedPage, type Store, scanDown } from '../../db/db.ts';
import { daysWith, reportReader } from './report-sums.ts';
import {
  type ReceiptConditions,
  RECEIPT_COLUMNS,
  type UsageRow,
  conditionsOf,
  rareOf,
} from './receipts.ts';
import { equalTo } from './usage-sums.ts';

/** A list of one account is faster by `receiptsOf`. */
export interface AllReceiptsFilter extends ReceiptConditions {
  readonly nowMs: number;
  readonly fromDay: number;
  readonly toDay: number;
}

interface AllReceiptsPart {
  readonly limit: number;
  /** The page begins below this id. */
  readonly below?: string | undefined;
  readonly sliceRows?: number;
}

/** Digits of the time at the beginning of an id. */
const TIME_DIGITS = 12;

export async function allReceipts(
  database: Store,
  filter: AllReceiptsFilter,
  { limit, below, sliceRows }: AllReceiptsPart,
): Promise<ScannedPage<UsageRow>> {
  const store = database.readerFor('');
  const { sql: rare, rest } = rareOf(filter);
  const isFiltered = rest !== '';
  return scanDown<UsageRow>({
    limit,
    below,
    ranges: isFiltered
      ? daysToRead(database, filter, below)
      : [[idAt(filter.fromDay), idAt(filter.toDay + 1)]],
    isFiltered,
    sliceRows,
    startOf: async ([from, end], rows) => {
      const parameters: Parameter[] = [from, end, rows];
      const status = rare === '' ? '' : conditionsOf({ status: filter.status }, parameters);
      const [row] = await store.query<{ request_id: string }>(
        `SELECT request_id FROM ledger_usage WHERE request_id >= $1 AND request_id < $2${rare}${status}
         ${inDays(from, end, parameters)} ORDER BY request_id DESC LIMIT 1 OFFSET $3`,
        parameters,
      );
      return row?.request_id;
    },
    find: ([from, end], most) => {
      const parameters: Parameter[] = [from, end, most];
      const days = inDays(from, end, parameters);
      return store.query<UsageRow>(
        `SELECT ${RECEIPT_COLUMNS} FROM ledger_usage WHERE request_id >= $1 AND request_id < $2${rare}
         ${days}${conditionsOf(filter, parameters)} ORDER BY request_id DESC LIMIT $3`,
        parameters,
      );
    },
    idOf: (row) => row.request_id,
  });
}

/** The smallest id of a day. */
function idAt(day: number): string {
  return dayStartMs(day).toString(16).padStart(TIME_DIGITS, '0');
}

/** Ranges of the days that can have a matching receipt, newest first. */
async function* daysToRead(
  store: Store,
  { fromDay, toDay, modelId, engine, nowMs }: AllReceiptsFilter,
  below: string | undefined,
): AsyncGenerator<readonly [string, string]> {
  const lastDay = below === undefined ? toDay : Math.min(toDay, dayOfId(below));
  const equal = equalTo({ modelId, engine });
  const range = { fromDay: fromDay - 1, toDay: lastDay + 1, equal, nowMs };
  const { until, days } =
    equal.length === 0 ? { until: 0, days: new Set() } : await daysWith(reportReader(store), range);
  for (let day = lastDay; day >= fromDay; day -= 1) {
    const isRead = day + 1 >= until || [day - 1, day, day + 1].some((one) => days.has(one));
    if (isRead) yield [idAt(day), idAt(day + 1)];
  }
}

function dayOfId(id: string): number {
  return dayOf(Number.parseInt(id.slice(0, TIME_DIGITS), 16));
}

/**
 * Lets PostgreSQL read the partitions of these days only. A request can be priced, and so have its
 * receipt, on the day after its id; a video can have it on the day before, by the clock of the database.
 */
function inDays(from: string, end: string, parameters: Parameter[]): string {
  const [first, last] = [dayOfId(from) - 1, dayOfId(end) + 1];
  return `AND day >= $${parameters.push(first)} AND day <= $${parameters.push(last)}`;
}
