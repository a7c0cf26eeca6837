/**
 * The background job that adds past days to the sums of reports (`report-sums.ts`). The work of a day
 * is divided into short transactions, because requests on SQLite wait for each of them. Reports read a
 * day only after its last transaction. A run has a number; a later run of another process ends it.
 */
import { type Clock, HOUR_MS, SECOND_MS, dayOf } from '../../core/clock.ts';
import type { Log } from '../../core/log.ts';
import type { Queryable, Statement, Store } from '../../db/db.ts';
import { ALL, BY_KEY, BY_TAG, SPANS, type Source, isStored, reportReader } from './report-sums.ts';

/** The job adds a day this long after its end. Clocks of processes differ by less. */
const ADD_AFTER_MS = HOUR_MS;
/** One run of the job; the next one continues. */
const RUN_MS = 20 * SECOND_MS;
const MAX_MARKS = 1_000;
/** Rows of one transaction: some milliseconds. */
const SLICE_ROWS = 500;

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
  const first = await firstToAdd(store, end);
  const late = await store.query<{ day: bigint }>(
    'SELECT DISTINCT day FROM ledger_report_late WHERE day < $1 ORDER BY day',
    [first],
  );
  if (first >= end && late.length === 0) return true;
  const [state] = await store.query<{ run: bigint }>(
    'UPDATE ledger_report_state SET run = run + 1 RETURNING run',
  );
  let until = first;
  const add = async (day: number): Promise<boolean> => {
    const isDone =
      clock.nowMs() - startedMs <= RUN_MS && (await addDay(store, state?.run, day, until));
    if (isDone && day === until) until += 1;
    return isDone;
  };
  let goesOn = true;
  for (let day = first; goesOn && day < end; day += 1) goesOn = await add(day);
  if (until - first > 1) {
    log.info({ days: until - first, left: end - until }, 'Added past days to the sums of reports');
  }
  for (const { day } of late) goesOn &&= await add(Number(day));
  return until >= end;
}

/** The day to add next. A day after `end` was written by a process with a wrong clock. */
async function firstToAdd(store: Store, end: number): Promise<number> {
  const [known] = await store.query<{ day: bigint }>(
    'SELECT until_day AS day FROM ledger_report_state',
  );
  if (known !== undefined && known.day <= BigInt(end) + 1n) return Number(known.day);
  const [row] = await store.query<{ first: bigint | null }>(
    'SELECT min(day) AS first FROM ledger_usage_day',
  );
  const first = row === undefined || row.first === null ? end : Math.min(end, Number(row.first));
  await store.query(
    `INSERT INTO ledger_report_state (name, until_day, run) VALUES ('reports', $1, 0)
     ON CONFLICT (name) DO UPDATE SET until_day = excluded.until_day`,
    [first],
  );
  return first;
}

type Work = (tx: Queryable) => Promise<unknown>;

/**
 * Adds a day, or adds it again. The marks are read before the sums, and only those are deleted, so a
 * change during the run stays marked. Returns `false` if a later run has begun.
 */
async function addDay(
  store: Store,
  run: bigint | undefined,
  day: number,
  until: number,
): Promise<boolean> {
  const step = (work: Work, durable: boolean) =>
    store.transaction(
      async (tx) => {
        const sql = 'SELECT run FROM ledger_report_state FOR UPDATE';
        const [state] = await tx.query<{ run: bigint }>(sql);
        if (state === undefined || state.run !== run) return false;
        await work(tx);
        return true;
      },
      { durable },
    );
  const marks = await store.query<{ id: string }>(
    `SELECT id FROM ledger_report_late WHERE day = $1 ORDER BY id LIMIT ${MAX_MARKS}`,
    [day],
  );
  // A crash before the last transaction, which is durable, repeats the day.
  const after = Math.max(until, day + 1);
  for await (const work of worksOf(store, day, { after, isAgain: day < until })) {
    if (!(await step(work, false))) return false;
  }
  return step(async (tx) => {
    await tx.query(
      `DELETE FROM ledger_report_late WHERE day = $1
       AND id IN (SELECT json_array_elements_text($2::json))`,
      [day, JSON.stringify(marks.map(({ id }) => id))],
    );
    await tx.query('UPDATE ledger_report_state SET until_day = $1', [after]);
  }, true);
}

type SumsRow = Readonly<Record<string, string | bigint | null>>;

/** The transactions that add a day, and the spans that contain it and end before `after`. */
async function* worksOf(
  store: Store,
  day: number,
  { after, isAgain }: { readonly after: number; readonly isAgain: boolean },
): AsyncGenerator<Work> {
  const reader = reportReader(store);
  for (const [table, columns, source] of OF_ONE_DAY) {
    const rows = await reader.query<SumsRow>(
      `SELECT day, ${columns}, ${summed(source)} FROM (SELECT day, ${columns}, ${source.columns}
       FROM ${source.table} WHERE day = $1) day_rows GROUP BY day, ${columns}`,
      [day],
    );
    // Reports may still read a day that is added again, so its rows change in one transaction.
    const size = isAgain ? Math.max(rows.length, 1) : SLICE_ROWS;
    for (let at = 0; at === 0 || at < rows.length; at += size) {
      yield async (tx) => {
        if (at === 0) await tx.query(`DELETE FROM ${table} WHERE day = $1`, [day]);
        await tx.run(rows.slice(at, at + size).map((row) => insertion(table, row)));
      };
    }
  }
  for (const [at, span] of SPANS.entries()) {
    const from = day - (day % span);
    if (from + span > after) return;
    const range = [from, from + span] as const;
    const valuesOf = (column: string) =>
      store.query<{ readonly [name: string]: string }>(
        `SELECT DISTINCT ${column} FROM ledger_report_engine WHERE day >= $1 AND day < $2`,
        range,
      );
    const groups = [{}, ...(await valuesOf('model_id')), ...(await valuesOf('engine'))];
    for (const { model_id: model = ALL, engine = ALL } of groups) {
      if (!isStored(span, model)) continue;
      const part = SPANS[at - 1] ?? 0;
      yield (tx) => addSpan(tx, { model, engine, span, from, part });
    }
  }
}

const OF_ONE_DAY = [
  ['ledger_report_engine', 'model_id, engine', BY_KEY],
  ['ledger_report_tag', 'name, value', BY_TAG],
] as const;

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

interface Span {
  readonly model: string;
  readonly engine: string;
  readonly span: number;
  /** The first day of the span. */
  readonly from: number;
  /** The span that it is summed from; rows by key if that is not stored. */
  readonly part: number;
}

async function addSpan(tx: Queryable, { model, engine, span, from, part }: Span): Promise<void> {
  const key = [model, engine, from];
  const where = 'model_id = $1 AND engine = $2 AND day';
  await tx.query(`DELETE FROM ledger_report_account WHERE span = ${span} AND ${where} = $3`, key);
  const stored = BY_KEY.sums.join(', ');
  const ofModel = model === ALL ? '' : 'model_id = $1 AND ';
  const ofEngine = engine === ALL ? '' : 'engine = $2 AND ';
  const rows = isStored(part, model)
    ? `SELECT account_id, key_id, ${stored} FROM ledger_report_account WHERE span = ${part} AND ${where}`
    : `SELECT account_id, key_id, ${BY_KEY.columns} FROM ledger_usage_day WHERE ${ofModel}${ofEngine}day`;
  await tx.query(
    `INSERT INTO ledger_report_account (span, model_id, engine, day, account_id, key_id, ${stored})
     SELECT ${span}, CAST($1 AS TEXT), CAST($2 AS TEXT), CAST($3 AS BIGINT), account_id, key_id, ${summed(BY_KEY)}
     FROM (${rows} >= $3 AND day < $4) parts GROUP BY account_id, key_id`,
    [...key, from + span],
  );
}

function summed({ sums }: Source): string {
  return sums.map((name) => `CAST(sum(${name}) AS BIGINT) AS ${name}`).join(', ');
}
