/**
 * Reads the receipts of all accounts, newest first. Ids of requests sort by time (`Ids.ordered`), so
 * the primary key serves as the index: a further one would cost each settle.
 */
import { dayOf, dayStartMs } from '../../core/clock.ts';
import { type Parameter, type Queryable, type ScannedPage, scanDown } from '../../db/db.ts';
import {
  type ReceiptConditions,
  RECEIPT_COLUMNS,
  type UsageRow,
  conditionsOf,
} from './receipts.ts';

/** A list of one account is faster by `receiptsOf`. */
export interface AllReceiptsFilter extends ReceiptConditions {
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
  store: Queryable,
  filter: AllReceiptsFilter,
  { limit, below, sliceRows }: AllReceiptsPart,
): Promise<ScannedPage<UsageRow>> {
  // A partial index contains the few receipts with another status.
  const isRare = filter.status !== undefined && filter.status !== 'completed';
  const rare = isRare ? "AND status <> 'completed'" : '';
  const isFiltered =
    conditionsOf({ ...filter, status: rare ? undefined : filter.status }, []) !== '';
  return scanDown<UsageRow>({
    limit,
    below,
    ranges: isFiltered
      ? daysToRead(store, filter, below)
      : [[idAt(filter.fromDay), idAt(filter.toDay + 1)]],
    isFiltered,
    sliceRows,
    startOf: async ([from, end], rows) => {
      const parameters: Parameter[] = [from, end, rows];
      const [row] = await store.query<{ request_id: string }>(
        `SELECT request_id FROM ledger_usage WHERE request_id >= $1 AND request_id < $2 ${rare}
         ${inDays(from, end, parameters)} ORDER BY request_id DESC LIMIT 1 OFFSET $3`,
        parameters,
      );
      return row?.request_id;
    },
    find: ([from, end], most) => {
      const parameters: Parameter[] = [from, end, most];
      const days = inDays(from, end, parameters);
      return store.query<UsageRow>(
        `SELECT ${RECEIPT_COLUMNS} FROM ledger_usage WHERE request_id >= $1 AND request_id < $2 ${rare}
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
  store: Queryable,
  { fromDay, toDay, modelId }: AllReceiptsFilter,
  below: string | undefined,
): AsyncGenerator<readonly [string, string]> {
  const lastDay = below === undefined ? toDay : Math.min(toDay, dayOfId(below));
  for (let day = lastDay; day >= fromDay; day -= 1) {
    if (modelId !== undefined) {
      const sql = 'SELECT 1 FROM ledger_usage_day WHERE day = $1 AND model_id = $2 LIMIT 1';
      // The rollup of a receipt can be of the day after its id.
      const found = await Promise.all(
        [day, day + 1].map((one) => store.query(sql, [one, modelId])),
      );
      if (found.every((rows) => rows.length === 0)) continue;
    }
    yield [idAt(day), idAt(day + 1)];
  }
}

function dayOfId(id: string): number {
  return dayOf(Number.parseInt(id.slice(0, TIME_DIGITS), 16));
}

/**
 * Lets PostgreSQL read the partitions of these days only. A request can be priced, and so have its
 * receipt, on the day after its id.
 */
function inDays(from: string, end: string, parameters: Parameter[]): string {
  const [first, last] = [dayOfId(from), dayOfId(end) + 1];
  return `AND day >= $${parameters.push(first)} AND day <= $${parameters.push(last)}`;
}
