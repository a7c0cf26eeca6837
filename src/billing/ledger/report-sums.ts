/**
 * Sums of past days for reports of all accounts: by model and engine, and by account and key for
 * spans of 1, 4, 16 and 64 days. A report reads them instead of `ledger_usage_day`, which has a row for each key,
 * model and engine of a day. A background job adds a day an hour after its end. A request of a past
 * day that is charged, closed or refunded marks its day as late in the same transaction. Reports
 * read `ledger_usage_day` from the first late day on until the job has added the day again, so their
 * sums are exact at any time.
 */
import { type Clock, HOUR_MS, SECOND_MS, dayOf } from '../../core/clock.ts';
import type { Log } from '../../core/log.ts';
import type { Migration, Parameter, Queryable, Statement, Store } from '../../db/db.ts';

const SUM_COLUMNS = `requests BIGINT NOT NULL,
  errors BIGINT NOT NULL,
  prompt_tokens BIGINT NOT NULL,
  completion_tokens BIGINT NOT NULL,
  usd_nano BIGINT NOT NULL,
  diem_nano BIGINT NOT NULL,
  cost_nano BIGINT,
  uncosted BIGINT NOT NULL`;

export const REPORT_MIGRATIONS: readonly Migration[] = [
  {
    // Empty at first: the background job adds the past days of an existing database.
    id: 'ledger-0024',
    up: `
CREATE TABLE ledger_report_engine (
  day BIGINT NOT NULL,
  model_id TEXT NOT NULL,
  engine TEXT NOT NULL,
  ${SUM_COLUMNS},
  PRIMARY KEY (day, model_id, engine)
);
CREATE TABLE ledger_report_key (
  span BIGINT NOT NULL,
  day BIGINT NOT NULL,
  account_id TEXT NOT NULL,
  key_id TEXT NOT NULL,
  ${SUM_COLUMNS},
  PRIMARY KEY (span, day, account_id, key_id)
);
CREATE TABLE ledger_report_until (
  name TEXT PRIMARY KEY,
  day BIGINT NOT NULL
);
CREATE TABLE ledger_report_late (
  day BIGINT NOT NULL,
  id TEXT NOT NULL,
  PRIMARY KEY (day, id)
);`,
  },
];

const USD = 'usd_nano - refunded_usd_nano';
const DIEM = 'diem_nano - refunded_diem_nano';
/** The columns of `SUM_COLUMNS` in a row of `ledger_usage_day`. */
const OF_DAY_ROW = `requests, errors, prompt_tokens, completion_tokens, ${USD} AS usd_nano,
  ${DIEM} AS diem_nano, cost_nano, CASE WHEN cost_nano IS NULL THEN requests ELSE 0 END AS uncosted`;
const SUMMED = [
  'requests',
  'errors',
  'prompt_tokens',
  'completion_tokens',
  'usd_nano',
  'diem_nano',
  'cost_nano',
  'uncosted',
];
const STORED = SUMMED.join(', ');
const SUMS = SUMMED.map((name) => `CAST(sum(${name}) AS BIGINT) AS ${name}`).join(', ');

/** In days; each is a multiple of the one before. */
const SPANS = [1, 4, 16, 64] as const;
const LONG_SPANS = SPANS.slice(1);

/** The job adds a day this long after its end. Clocks of processes differ by less. */
const ADD_AFTER_MS = HOUR_MS;
/** One run of the job; the next one continues. */
const RUN_MS = 20 * SECOND_MS;
const MAX_MARKS = 1_000;

/** Marks a day that has ended as late; an id is marked once. */
export const MARK_LATE =
  'INSERT INTO ledger_report_late (day, id) VALUES ($1, $2) ON CONFLICT (day, id) DO NOTHING';

/** The groupings that the sums have. */
export type ReportKind = 'engine' | 'key';

export interface ReportSource {
  /** `FROM …`, with the columns of `SUM_COLUMNS` and those of the grouping. */
  readonly from: string;
  readonly parameters: Parameter[];
}

interface Wanted {
  readonly fromDay: number;
  readonly toDay: number;
  readonly columns: readonly string[];
  /** Conditions on columns of the rows; only those of the kind. */
  readonly equal: readonly (readonly [column: string, value: string])[];
  readonly nowMs: number;
}

/** Returns the rows of a report, which the caller sums; without a kind those by day and key. */
export async function reportSource(
  store: Queryable,
  kind: ReportKind | undefined,
  { fromDay, toDay, columns, equal, nowMs }: Wanted,
): Promise<ReportSource> {
  const added = kind === undefined ? 0 : await addedUntil(store, nowMs);
  const until = Math.max(fromDay, Math.min(toDay + 1, added));
  const parameters: Parameter[] = [];
  const place = (value: Parameter) => `$${parameters.push(value)}`;
  const conditions = () => equal.map(([name, value]) => ` AND ${name} = ${place(value)}`).join('');
  const parts: string[] = [];
  const names = columns.join(', ');
  const add = (sums: string, table: string, from: number, end: number, span = '') => {
    const days = `${span}day >= ${place(from)} AND day < ${place(end)}`;
    const wanted = names === '' ? sums : `${names}, ${sums}`;
    parts.push(`SELECT ${wanted} FROM ${table} WHERE ${days}${conditions()}`);
  };
  if (kind === 'engine') add(STORED, 'ledger_report_engine', fromDay, until);
  if (kind === 'key') {
    for (const { span, from, end } of spansOf(fromDay, until)) {
      add(STORED, 'ledger_report_key', from, end, `span = ${span} AND `);
    }
  }
  add(OF_DAY_ROW, 'ledger_usage_day', until, toDay + 1);
  return { from: `FROM (${parts.join(' UNION ALL ')}) report_rows`, parameters };
}

interface SpanRange {
  readonly span: number;
  readonly from: number;
  end: number;
}

/** Divides days into the longest spans; `end` is exclusive. */
function spansOf(fromDay: number, until: number): SpanRange[] {
  const ranges: SpanRange[] = [];
  let day = fromDay;
  while (day < until) {
    const from = day;
    const span = SPANS.findLast((days) => from % days === 0 && from + days <= until) ?? 1;
    const last = ranges.at(-1);
    if (last?.span === span) last.end += span;
    else ranges.push({ span, from, end: from + span });
    day += span;
  }
  return ranges;
}

/** The first day of which the sums are not complete. */
async function addedUntil(store: Queryable, nowMs: number): Promise<number> {
  const [row] = await store.query<{ day: bigint; late: bigint | null }>(
    `SELECT day, (SELECT min(day) FROM ledger_report_late) AS late FROM ledger_report_until`,
  );
  const day = Number(row?.day ?? 0n);
  // A later day was written by a process with a wrong clock.
  if (day > dayOf(nowMs)) return 0;
  return row === undefined || row.late === null ? day : Math.min(day, Number(row.late));
}

/** Days until `until`, exclusive, that have requests of a model or an engine. */
export interface DaysWith {
  readonly until: number;
  readonly days: ReadonlySet<number>;
}

export async function daysWith(
  store: Queryable,
  wanted: Pick<Wanted, 'fromDay' | 'toDay' | 'equal' | 'nowMs'>,
): Promise<DaysWith> {
  const until = await addedUntil(store, wanted.nowMs);
  const parameters: Parameter[] = [wanted.fromDay, Math.min(wanted.toDay + 1, until)];
  const equal = wanted.equal.map(([name, value]) => ` AND ${name} = $${parameters.push(value)}`);
  const rows = await store.query<{ day: bigint }>(
    `SELECT DISTINCT day FROM ledger_report_engine WHERE day >= $1 AND day < $2${equal.join('')}`,
    parameters,
  );
  return { until, days: new Set(rows.map(({ day }) => Number(day))) };
}

export interface ReportJob {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Adds the days that have ended, and those with late changes; runs some seconds at most. Returns
 * whether all ended days are added.
 */
export async function addReportDays({ store, clock, log }: ReportJob): Promise<boolean> {
  const startedMs = clock.nowMs();
  const end = dayOf(startedMs - ADD_AFTER_MS);
  let until = await firstUntil(store, end);
  const first = until;
  const isLong = () => clock.nowMs() - startedMs > RUN_MS;
  for (; until < end && !isLong(); until += 1) {
    if (!(await addDay(store, until, true))) return false;
  }
  if (until - first > 1) {
    log.info({ days: until - first, left: end - until }, 'Added past days to the sums of reports');
  }
  const sql = 'SELECT DISTINCT day FROM ledger_report_late WHERE day < $1 ORDER BY day';
  for (const { day } of await store.query<{ day: bigint }>(sql, [until])) {
    if (isLong() || !(await addDay(store, Number(day), false))) return false;
  }
  return until === end;
}

/** The day to add next. A day after `end` was written by a process with a wrong clock. */
async function firstUntil(store: Store, end: number): Promise<number> {
  const [known] = await store.query<{ day: bigint }>('SELECT day FROM ledger_report_until');
  if (known !== undefined && known.day <= BigInt(end) + 1n) return Number(known.day);
  const [row] = await store.query<{ first: bigint | null }>(
    'SELECT min(day) AS first FROM ledger_usage_day',
  );
  const first = row === undefined || row.first === null ? end : Math.min(end, Number(row.first));
  await store.query(
    `INSERT INTO ledger_report_until (name, day) VALUES ('reports', $1)
     ON CONFLICT (name) DO UPDATE SET day = excluded.day`,
    [first],
  );
  return first;
}

type SumsRow = Readonly<Record<string, string | bigint | null>>;

/**
 * Adds a day, or adds it again. The marks are read before the sums, and only those are deleted, so a
 * change during the run stays marked. Returns `false` if another process was first.
 */
async function addDay(store: Store, day: number, isNext: boolean): Promise<boolean> {
  const marks = await store.query<{ id: string }>(
    `SELECT id FROM ledger_report_late WHERE day = $1 ORDER BY id LIMIT ${MAX_MARKS}`,
    [day],
  );
  // The read of a SQLite file runs in a child process; replicas of PostgreSQL could be late.
  const reader = store.dialect === 'sqlite' ? store.readerFor('') : store;
  const rowsBy = (columns: string) =>
    reader.query<SumsRow>(
      `SELECT ${columns}, ${SUMS} FROM (SELECT ${columns}, ${OF_DAY_ROW} FROM ledger_usage_day
       WHERE day = $1) day_rows GROUP BY ${columns}`,
      [day],
    );
  const engines = await rowsBy('model_id, engine');
  const keys = await rowsBy('account_id, key_id');
  return store.transaction(async (tx) => {
    const [row] = await tx.query<{ day: bigint }>('SELECT day FROM ledger_report_until FOR UPDATE');
    if (row === undefined || (isNext ? row.day !== BigInt(day) : row.day <= BigInt(day))) {
      return false;
    }
    const deleted = await tx.query(
      `DELETE FROM ledger_report_late WHERE day = $1
       AND id IN (SELECT json_array_elements_text($2::json)) RETURNING id`,
      [day, JSON.stringify(marks.map(({ id }) => id))],
    );
    if (deleted.length !== marks.length) return false;
    await tx.query('DELETE FROM ledger_report_engine WHERE day = $1', [day]);
    await tx.query('DELETE FROM ledger_report_key WHERE span = 1 AND day = $1', [day]);
    await tx.run([
      ...engines.map((one) => insertion('ledger_report_engine', { day: BigInt(day), ...one })),
      ...keys.map((one) => insertion('ledger_report_key', { span: 1n, day: BigInt(day), ...one })),
    ]);
    if (isNext) await tx.query('UPDATE ledger_report_until SET day = $1', [day + 1]);
    const until = isNext ? day + 1 : Number(row.day);
    for (const [at, span] of LONG_SPANS.entries()) {
      const from = day - (day % span);
      if (from + span <= until) await addSpan(tx, { from, span, parts: SPANS[at] ?? 1 });
    }
    return true;
  });
}

function insertion(table: string, row: SumsRow): Statement {
  const names = Object.keys(row);
  const places = names.map((name, at) =>
    name === 'cost_nano' ? `CAST($${at + 1} AS BIGINT)` : `$${at + 1}`,
  );
  return {
    sql: `INSERT INTO ${table} (${names.join(', ')}) VALUES (${places.join(', ')})`,
    parameters: Object.values(row),
  };
}

async function addSpan(
  tx: Queryable,
  { from, span, parts }: { readonly from: number; readonly span: number; readonly parts: number },
): Promise<void> {
  await tx.query('DELETE FROM ledger_report_key WHERE span = $1 AND day = $2', [span, from]);
  await tx.query(
    `INSERT INTO ledger_report_key (span, day, account_id, key_id, ${STORED})
     SELECT $1, CAST($2 AS BIGINT), account_id, key_id, ${SUMS} FROM ledger_report_key
     WHERE span = $3 AND day >= $2 AND day < $4 GROUP BY account_id, key_id`,
    [span, from, parts, from + span],
  );
}
