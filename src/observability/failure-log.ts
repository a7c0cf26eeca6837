/**
 * The record of failed and retried requests: the error that the caller received, and each try. It
 * is written in the background, so that it never delays a response; while the database or its disk
 * takes no writes, records wait in bounded memory, and further ones are dropped. Each account adds a bounded number of records
 * per day, weighted by their size.
 */
import * as z from 'zod';
import { type Clock, SECOND_MS, dayOf } from '../core/clock.ts';
import { DailyRows } from '../core/daily-rows.ts';
import type { RequestTry } from '../core/request-tries.ts';
import {
  type Migration,
  type Parameter,
  type Queryable,
  type ScannedPage,
  type Store,
  Whole,
  deleteInBatches,
  jsonText,
  maybe,
  rowShape,
  scanDown,
} from '../db/db.ts';

export const OBSERVABILITY_MIGRATIONS: readonly Migration[] = [
  {
    // Ids of requests sort by time, so the primary key also serves lists and retention.
    id: 'observability-0001',
    up: `
CREATE TABLE observability_failure (
  request_id TEXT PRIMARY KEY,
  created_ms BIGINT NOT NULL,
  account_id TEXT NOT NULL,
  key_id TEXT NOT NULL,
  route TEXT NOT NULL,
  model_id TEXT,
  engine TEXT,
  status BIGINT NOT NULL,
  code TEXT NOT NULL,
  took_ms BIGINT NOT NULL,
  facts TEXT NOT NULL,
  prompt TEXT
);`,
  },
];

/** Details that only the explanation of one request shows. */
const Facts = z.object({
  message: z.string(),
  cause: z.string(),
  parameters: z.record(z.string(), z.union([z.string(), z.number()])),
  tries: z.array(
    z.object({
      engine: z.string(),
      target: z.string(),
      startedMs: z.number(),
      tookMs: z.number(),
      status: z.number().optional(),
      result: z.string(),
      detail: z.string(),
      words: z.string(),
    }),
  ),
});

const Row = rowShape({
  requestId: z.string(),
  createdMs: Whole,
  accountId: z.string(),
  keyId: z.string(),
  route: z.string(),
  modelId: maybe(z.string()),
  engine: maybe(z.string()),
  status: Whole,
  code: z.string(),
  tookMs: Whole,
  facts: jsonText(Facts),
  prompt: maybe(z.string()),
});

export interface FailureRecord {
  readonly requestId: string;
  readonly createdMs: number;
  /** Empty for an anonymous request. */
  readonly accountId: string;
  readonly keyId: string;
  /** Method and path of the route. */
  readonly route: string;
  readonly modelId?: string | undefined;
  /** The engine or node of the last try. */
  readonly engine?: string | undefined;
  readonly status: number;
  /** Empty if the request has succeeded after failed tries. */
  readonly code: string;
  readonly tookMs: number;
  readonly facts: {
    /** The error message that the caller received. */
    readonly message: string;
    /** The internal reason, which the caller did not see. */
    readonly cause: string;
    readonly parameters: Readonly<Record<string, string | number>>;
    readonly tries: readonly RequestTry[];
  };
  readonly prompt?: string | undefined;
}

interface WaitingRecord {
  readonly record: FailureRecord;
  readonly facts: string;
  readonly bytes: number;
}

const FLUSH_AFTER_MS = SECOND_MS;
const RETRY_AFTER_MS = 5 * SECOND_MS;
const MAX_WAITING = 2_000;
const MAX_WAITING_BYTES = 8 * 1_024 * 1_024;
const ROWS_PER_TRANSACTION = 200;
/** A record counts once for each started unit: at most 8 MB per account and day, 100 MB for all. */
const UNIT_BYTES = 4 * 1_024;
const UNITS_OF_ACCOUNT = 2_000;
const FEW_UNITS_OF_ACCOUNT = 50;
const UNITS_OF_ALL = 25_000;
const DELETE_BATCH = 500;

export class FailureLog {
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #units = new DailyRows({
    ofAccount: UNITS_OF_ACCOUNT,
    few: FEW_UNITS_OF_ACCOUNT,
    ofAll: UNITS_OF_ALL,
  });
  #waiting: WaitingRecord[] = [];
  #waitingBytes = 0;
  #isScheduled = false;
  #writing: Promise<void> = Promise.resolve();
  /** Number of records above a bound. */
  dropped = 0;

  constructor(parts: { readonly store: Store; readonly clock: Clock }) {
    this.#store = parts.store;
    this.#clock = parts.clock;
  }

  /** Calls `make` unless the account or the queue has reached its bound. */
  add(accountId: string, make: () => FailureRecord): void {
    const day = dayOf(this.#clock.nowMs());
    const isFull = this.#waiting.length >= MAX_WAITING || this.#waitingBytes >= MAX_WAITING_BYTES;
    if (isFull || !this.#units.take(accountId, day)) {
      this.dropped += 1;
      return;
    }
    const record = make();
    const facts = JSON.stringify(record.facts);
    const bytes = facts.length + (record.prompt?.length ?? 0);
    const more = Math.floor(bytes / UNIT_BYTES);
    if (more > 0 && !this.#units.take(accountId, day, more)) {
      this.dropped += 1;
      return;
    }
    this.#waiting.push({ record, facts, bytes });
    this.#waitingBytes += bytes;
    this.#schedule(FLUSH_AFTER_MS);
  }

  /** The record of a request of this process that is not written yet. */
  find(requestId: string): FailureRecord | undefined {
    return this.#waiting.find(({ record }) => record.requestId === requestId)?.record;
  }

  #schedule(afterMs: number): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    this.#clock.after(afterMs, () => {
      this.#isScheduled = false;
      void this.flush();
    });
  }

  /** Writes the waiting records. Never rejects: those that cannot be written keep waiting. */
  async flush(): Promise<void> {
    this.#writing = this.#writing.then(() => this.#write());
    await this.#writing;
  }

  async #write(): Promise<void> {
    while (this.#waiting.length > 0) {
      const rows = this.#waiting.slice(0, ROWS_PER_TRANSACTION);
      try {
        await this.#store.transaction(
          async (tx) => {
            for (const { record, facts } of rows) await tx.query(ADD, valuesOf(record, facts));
          },
          { durable: false },
        );
      } catch {
        // The store has logged why it takes no writes.
        this.#schedule(RETRY_AFTER_MS);
        return;
      }
      this.#waiting.splice(0, rows.length);
      for (const { bytes } of rows) this.#waitingBytes -= bytes;
    }
  }

  /** Deletes records from before a time, in small batches. */
  async dropBefore(beforeMs: number): Promise<void> {
    const before = idAt(beforeMs);
    await deleteInBatches(DELETE_BATCH, () =>
      this.#store.query(
        `DELETE FROM observability_failure WHERE request_id IN (SELECT request_id
         FROM observability_failure WHERE request_id < $1 ORDER BY request_id LIMIT ${DELETE_BATCH})
         RETURNING request_id`,
        [before],
      ),
    );
  }
}

const ADD = `INSERT INTO observability_failure (request_id, created_ms, account_id, key_id, route,
  model_id, engine, status, code, took_ms, facts, prompt)
  VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT (request_id) DO NOTHING`;

function valuesOf(record: FailureRecord, facts: string): Parameter[] {
  const { requestId, createdMs, accountId, keyId, route, modelId, engine } = record;
  const { status, code, tookMs, prompt } = record;
  const who = [requestId, createdMs, accountId, keyId, route, modelId ?? null, engine ?? null];
  // PostgreSQL stores no NUL character in a text.
  const texts = [facts.replaceAll(String.raw`\u0000`, ''), prompt?.replaceAll('\0', '') ?? null];
  return [...who, status, code, tookMs, ...texts];
}

/** The smallest id of a request that begins at a time; ids sort by time (`Ids.ordered`). */
export function idAt(ms: number): string {
  return Math.max(0, ms).toString(16).padStart(12, '0');
}

export async function failureOf(
  store: Queryable,
  requestId: string,
): Promise<FailureRecord | undefined> {
  const [row] = await store.query(
    `SELECT ${Row.columns} FROM observability_failure WHERE request_id = $1`,
    [requestId],
  );
  return row === undefined ? undefined : Row.parse(row);
}

/** Missing members match all. */
export interface FailureFilter {
  readonly fromMs: number;
  readonly untilMs: number;
  readonly accountId?: string | undefined;
  readonly modelId?: string | undefined;
  readonly engine?: string | undefined;
  readonly code?: string | undefined;
}

/** Records newest first; `below`: the page begins below this id. */
export function failuresOf(
  store: Queryable,
  filter: FailureFilter,
  { limit, below }: { readonly limit: number; readonly below?: string | undefined },
): Promise<ScannedPage<FailureRecord>> {
  const conditions = [
    ['account_id', filter.accountId],
    ['model_id', filter.modelId],
    ['engine', filter.engine],
    ['code', filter.code],
  ] as const;
  const wanted = conditions.filter(([, value]) => value !== undefined);
  const range = 'FROM observability_failure WHERE request_id >= $1 AND request_id < $2';
  return scanDown<FailureRecord>({
    limit,
    below,
    ranges: [[idAt(filter.fromMs), idAt(filter.untilMs)]],
    isFiltered: wanted.length > 0,
    startOf: async ([from, end], rows) => {
      const [row] = await store.query<{ request_id: string }>(
        `SELECT request_id ${range} ORDER BY request_id DESC LIMIT 1 OFFSET $3`,
        [from, end, rows],
      );
      return row?.request_id;
    },
    find: async ([from, end], most) => {
      const also = wanted.map(([column], at) => ` AND ${column} = $${at + 4}`).join('');
      const rows = await store.query(
        `SELECT ${Row.columns} ${range}${also} ORDER BY request_id DESC LIMIT $3`,
        [from, end, most, ...wanted.map(([, value]) => value ?? '')],
      );
      return rows.map(Row.parse);
    },
    idOf: (record) => record.requestId,
  });
}
