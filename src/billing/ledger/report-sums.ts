/**
 * Sums of past days for reports of all accounts: by model and engine, by tag, and by account and key,
 * the last also of each model and of each engine, for spans of 1, 4, 16 and 64 days. A report reads them
 * instead of `ledger_usage_day` and `ledger_usage_tag`, which have a row for each key and model of a day. A
 * background job (`report-job.ts`) adds a day an hour after its end. A request of a past day that is
 * charged, closed or refunded marks its day as late in the same transaction. Reports read the rows by
 * key from the first late day on until the job has added the day again, so their sums are exact at any
 * time.
 */
import { dayOf } from '../../core/clock.ts';
import type { Migration, Parameter, Queryable, Store } from '../../db/db.ts';

const TAG_COLUMNS = `requests BIGINT NOT NULL,
  errors BIGINT NOT NULL,
  prompt_tokens BIGINT NOT NULL,
  completion_tokens BIGINT NOT NULL,
  usd_nano BIGINT NOT NULL,
  diem_nano BIGINT NOT NULL`;
const SUM_COLUMNS = `${TAG_COLUMNS},
  cost_nano BIGINT,
  uncosted BIGINT NOT NULL`;

const OF_ACCOUNTS = `
DROP TABLE ledger_report_key;
DROP TABLE ledger_report_until;
CREATE TABLE ledger_report_state (
  name TEXT PRIMARY KEY,
  until_day BIGINT NOT NULL,
  run BIGINT NOT NULL
);
CREATE TABLE ledger_report_account (
  span BIGINT NOT NULL,
  model_id TEXT NOT NULL,
  engine TEXT NOT NULL,
  day BIGINT NOT NULL,
  account_id TEXT NOT NULL,
  key_id TEXT NOT NULL,
  ${SUM_COLUMNS},
  PRIMARY KEY (span, model_id, engine, day, account_id, key_id)
)`;
/** Without an index of the values, which can be large and as many as requests. */
const OF_TAGS = `
CREATE TABLE ledger_report_tag (
  day BIGINT NOT NULL,
  name TEXT NOT NULL,
  value TEXT NOT NULL,
  ${TAG_COLUMNS}
);
CREATE INDEX ledger_report_tag_day ON ledger_report_tag (day);`;

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
  {
    // Further sums, which the background job adds for all past days. The tables have new names, so
    // that a process of the version before cannot add days without these sums.
    id: 'ledger-0025',
    up: {
      sqlite: `${OF_ACCOUNTS} WITHOUT ROWID;
${OF_TAGS}`,
      postgres: `${OF_ACCOUNTS};
${OF_TAGS}`,
    },
  },
];

const OF_TAG_ROW = `requests, errors, prompt_tokens, completion_tokens,
  usd_nano - refunded_usd_nano AS usd_nano, diem_nano - refunded_diem_nano AS diem_nano`;
const OF_DAY_ROW = `${OF_TAG_ROW}, cost_nano,
  CASE WHEN cost_nano IS NULL THEN requests ELSE 0 END AS uncosted`;
const TAG_SUMS = [
  'requests',
  'errors',
  'prompt_tokens',
  'completion_tokens',
  'usd_nano',
  'diem_nano',
] as const;

export interface Source {
  readonly table: string;
  /** The columns of `sums` in a row of the table. */
  readonly columns: string;
  readonly sums: readonly string[];
}

/** Rows by key, which contain all changes. */
export const BY_KEY: Source = {
  table: 'ledger_usage_day',
  columns: OF_DAY_ROW,
  sums: [...TAG_SUMS, 'cost_nano', 'uncosted'],
};
export const BY_TAG: Source = { table: 'ledger_usage_tag', columns: OF_TAG_ROW, sums: TAG_SUMS };

/** In days; each is a multiple of the one before. */
export const SPANS = [1, 4, 16, 64] as const;
/** In place of a model or an engine: the row contains the requests of all. No id is `*`. */
export const ALL = '*';

/** Marks a day that has ended as late; an id is marked once. */
export const MARK_LATE =
  'INSERT INTO ledger_report_late (day, id) VALUES ($1, $2) ON CONFLICT (day, id) DO NOTHING';

/** The groupings that the sums have. */
export type ReportKind = 'engine' | 'account' | 'tag';

export interface ReportSource {
  /** `FROM …`, with the sums and the columns of the grouping. */
  readonly from: string;
  readonly parameters: Parameter[];
}

export type Condition = readonly [column: string, value: string];

interface Wanted {
  readonly fromDay: number;
  readonly toDay: number;
  readonly columns: readonly string[];
  /** Conditions on columns of the rows; for accounts only a model or an engine. */
  readonly equal: readonly Condition[];
  readonly nowMs: number;
}

/** SQLite reads in a child process. On PostgreSQL the statements of a report read from one server. */
export function reportReader(store: Store): Queryable {
  return store.dialect === 'sqlite' ? store.readerFor('') : store;
}

/** Returns the rows of a report, which the caller sums; without a kind those by day and key. */
export async function reportSource(
  store: Queryable,
  kind: ReportKind | undefined,
  { fromDay, toDay, columns, equal, nowMs }: Wanted,
): Promise<ReportSource> {
  const added = kind === undefined ? 0 : await addedUntil(store, nowMs);
  const until = Math.max(fromDay, Math.min(toDay + 1, added));
  const source = kind === 'tag' ? BY_TAG : BY_KEY;
  const parameters: Parameter[] = [];
  const parts: string[] = [];
  const add = (
    table: string,
    sums: string,
    from: number,
    end: number,
    values: readonly (readonly [column: string, value: Parameter])[] = equal,
  ) => {
    const conditions = values.map(([name, value]) => ` AND ${name} = $${parameters.push(value)}`);
    const days = `day >= $${parameters.push(from)} AND day < $${parameters.push(end)}`;
    const wanted = [...columns, sums].join(', ');
    parts.push(`SELECT ${wanted} FROM ${table} WHERE ${days}${conditions.join('')}`);
  };
  const stored = source.sums.join(', ');
  if (kind === 'engine' || kind === 'tag') add(`ledger_report_${kind}`, stored, fromDay, until);
  if (kind === 'account') {
    const { model_id: model = ALL, engine = ALL } = Object.fromEntries(equal);
    for (const { span, from, end } of spansOf(fromDay, until)) {
      if (isStored(span, model)) {
        const values = [['model_id', model] as const, ['engine', engine] as const];
        add(`ledger_report_account`, stored, from, end, [...values, ['span', span]]);
      } else add(source.table, source.columns, from, end);
    }
  }
  add(source.table, source.columns, until, toDay + 1);
  return { from: `FROM (${parts.join(' UNION ALL ')}) report_rows`, parameters };
}

/** Sums of a model for one day would be as many as the rows by key. */
export function isStored(span: number, model: string): boolean {
  return span > 1 || (span === 1 && model === ALL);
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
    'SELECT until_day AS day, (SELECT min(day) FROM ledger_report_late) AS late FROM ledger_report_state',
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
