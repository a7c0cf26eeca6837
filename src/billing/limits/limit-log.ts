/**
 * The log of requests rejected by a limit: written in the background; its owner sees the last 50.
 * Rejections of one key, model and kind within a minute are one row with a count, and each account
 * adds a bounded number of rows per day, so that a client that ignores 429s cannot fill the disk.
 */
import * as z from 'zod';
import { type Clock, DAY_MS, MINUTE_MS, SECOND_MS, dayOf, dayStartMs } from '../../core/clock.ts';
import { sha256Hex } from '../../core/ids.ts';
import {
  type Queryable,
  type Store,
  Whole,
  dayPartitions,
  dropDayPartition,
  makeDayPartitions,
  maybe,
  rowShape,
} from '../../db/db.ts';
import { DailyRows } from '../../core/daily-rows.ts';

export type LimitType = 'RPM' | 'TPM' | 'RPD' | 'FAILED_REQUESTS' | 'UNSUPPORTED_FEATURE_REQUESTS';

export interface LimitHit {
  readonly accountId: string;
  readonly keyId: string;
  readonly modelId: string;
  readonly tier: string;
  readonly type: LimitType;
}

export interface LoggedHit extends LimitHit {
  readonly createdMs: number;
}

const Logged = rowShape({
  accountId: z.string(),
  keyId: z.string(),
  modelId: z.string(),
  tier: z.string(),
  type: z.string().transform((type) => type as LimitType), // written by this file only
  hits: Whole,
  createdMs: Whole,
  lastMs: maybe(Whole),
});

const LOG_TABLE = { table: 'limits_log', column: 'created_ms', unitsPerDay: DAY_MS };

const SHOWN = 50;
const FLUSH_AFTER_MS = SECOND_MS;
const MAX_WAITING = 1_000;
/** Rows per day of about 400 bytes: at most 2 MB per account and 40 MB for all. */
export const MAX_ROWS_OF_ACCOUNT = 5_000;
const FEW_ROWS_OF_ACCOUNT = 50;
const MAX_ROWS_OF_ALL = 100_000;
const ID_HEX = 32;

interface Waiting {
  readonly hit: LimitHit;
  readonly minuteMs: number;
  hits: number;
  lastMs: number;
}

export class LimitLog {
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #rows = new DailyRows({
    ofAccount: MAX_ROWS_OF_ACCOUNT,
    few: FEW_ROWS_OF_ACCOUNT,
    ofAll: MAX_ROWS_OF_ALL,
  });
  readonly #waiting = new Map<string, Waiting>();
  readonly #ofMinute = new Set<string>();
  #minuteMs = 0;
  #isScheduled = false;
  #writing: Promise<void> = Promise.resolve();

  constructor(parts: { readonly store: Store; readonly clock: Clock }) {
    this.#store = parts.store;
    this.#clock = parts.clock;
  }

  add(hit: LimitHit): void {
    const nowMs = this.#clock.nowMs();
    const minuteMs = nowMs - (nowMs % MINUTE_MS);
    if (minuteMs !== this.#minuteMs) {
      this.#minuteMs = minuteMs;
      this.#ofMinute.clear();
    }
    const name = `${minuteMs} ${nameOf(hit)}`;
    const waiting = this.#waiting.get(name);
    if (waiting !== undefined) {
      waiting.hits += 1;
      waiting.lastMs = nowMs;
      return;
    }
    if (this.#waiting.size >= MAX_WAITING) return;
    if (!this.#ofMinute.has(name)) {
      if (!this.#rows.take(hit.accountId, dayOf(nowMs))) return;
      this.#ofMinute.add(name);
    }
    this.#waiting.set(name, { hit, minuteMs, hits: 1, lastMs: nowMs });
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    this.#clock.after(FLUSH_AFTER_MS, () => {
      this.flush().catch(() => undefined); // losing a log line costs no money
    });
  }

  async flush(): Promise<void> {
    this.#isScheduled = false;
    const rows = [...this.#waiting.values()].map((one) => ({ ...one, id: idOf(one.hit) }));
    this.#waiting.clear();
    const written = this.#writing.then(() => this.#write(rows));
    this.#writing = written.catch(() => undefined); // reported to the caller of this flush
    await written;
  }

  async #write(rows: (Waiting & { readonly id: string })[]): Promise<void> {
    if (rows.length === 0) return;
    // All processes use the same order, so that transactions cannot deadlock.
    rows.sort((a, b) => (a.id < b.id ? -1 : 1));
    const write = async (tx: Queryable): Promise<void> => {
      for (const { id, hit, minuteMs, hits, lastMs } of rows) {
        const { accountId, keyId, modelId, tier, type } = hit;
        await tx.query(ADD, [id, accountId, keyId, modelId, tier, type, minuteMs, hits, lastMs]);
      }
    };
    await this.#store.transaction(write, { durable: false });
  }

  async last(accountId: string, keyId?: string): Promise<LoggedHit[]> {
    await this.flush();
    const rows = await this.#store.query(
      `SELECT ${Logged.columns} FROM limits_log WHERE account_id = $1 AND ($2 = '*' OR key_id = $3)
       ORDER BY created_ms DESC, last_ms DESC, id DESC LIMIT ${SHOWN}`,
      [accountId, keyId === undefined ? '*' : '=', keyId ?? ''],
    );
    const hits = rows.map(Logged.parse).flatMap(({ hits: count, lastMs, createdMs, ...hit }) => {
      const shown: LoggedHit = { ...hit, createdMs: lastMs ?? createdMs };
      return Array.from({ length: Math.min(SHOWN, count) }, () => shown);
    });
    return hits.sort((a, b) => b.createdMs - a.createdMs).slice(0, SHOWN);
  }

  async prepareDays(fromDay: number, untilDay: number): Promise<void> {
    const days = Array.from({ length: untilDay - fromDay }, (_, at) => fromDay + at);
    await makeDayPartitions(this.#store, LOG_TABLE, days);
  }

  /** Drops the days before `beforeDay`; on PostgreSQL as whole partitions. */
  async dropDaysBefore(beforeDay: number): Promise<void> {
    for (const day of await dayPartitions(this.#store, LOG_TABLE)) {
      if (day >= beforeDay) break;
      await this.#store.transaction((tx) => dropDayPartition(tx, LOG_TABLE, day), {
        limitsLockWait: true,
      });
    }
    await this.#store.query('DELETE FROM limits_log WHERE created_ms < $1', [
      dayStartMs(beforeDay),
    ]);
  }
}

const ADD = `INSERT INTO limits_log (id, account_id, key_id, model_id, tier, type, created_ms, hits, last_ms)
  VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
  ON CONFLICT (id, created_ms) DO UPDATE SET hits = limits_log.hits + excluded.hits,
    last_ms = CASE WHEN limits_log.last_ms > excluded.last_ms THEN limits_log.last_ms
      ELSE excluded.last_ms END`;

function nameOf({ accountId, keyId, modelId, type }: LimitHit): string {
  return `${accountId} ${keyId} ${type} ${modelId}`;
}

/** The same in all processes, so that they count in one row. */
function idOf(hit: LimitHit): string {
  return sha256Hex(nameOf(hit)).slice(0, ID_HEX);
}
