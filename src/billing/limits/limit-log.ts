/** The log of refusals by a limit: written in the background, the last 50 shown to their owner. */
import { type Clock, DAY_MS, dayStartMs } from '../../core/clock.ts';
import type { Ids } from '../../core/ids.ts';
import {
  type Queryable,
  type Store,
  dayPartitions,
  dropDayPartition,
  makeDayPartitions,
} from '../../db/db.ts';

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

const LOG_TABLE = { table: 'limits_log', column: 'created_ms', unitsPerDay: DAY_MS };

/** Of the log that callers read: the last 50, newest first. */
const SHOWN = 50;
const FLUSH_AFTER_MS = 250;
/** Hits that wait to be written, at most: a flood of refusals must not fill memory. */
const MAX_WAITING = 1_000;

export class LimitLog {
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #ids: Ids;
  #waiting: LoggedHit[] = [];
  #scheduled = false;

  constructor(parts: { readonly store: Store; readonly clock: Clock; readonly ids: Ids }) {
    this.#store = parts.store;
    this.#clock = parts.clock;
    this.#ids = parts.ids;
  }

  add(hit: LimitHit): void {
    if (this.#waiting.length >= MAX_WAITING) return;
    this.#waiting.push({ ...hit, createdMs: this.#clock.nowMs() });
    if (this.#scheduled) return;
    this.#scheduled = true;
    this.#clock.after(FLUSH_AFTER_MS, () => {
      this.flush().catch(() => undefined); // a lost log line costs nobody money
    });
  }

  async flush(): Promise<void> {
    this.#scheduled = false;
    const hits = this.#waiting;
    this.#waiting = [];
    if (hits.length === 0) return;
    await this.#store.transaction((tx) => this.#insert(tx, hits), { durable: false });
  }

  /** The last hits of an account, newest first; with `keyId` those of one of its keys. */
  async last(accountId: string, keyId?: string): Promise<LoggedHit[]> {
    await this.flush();
    const rows = await this.#store.query<{
      account_id: string;
      key_id: string;
      model_id: string;
      tier: string;
      type: LimitType;
      created_ms: bigint;
    }>(
      `SELECT account_id, key_id, model_id, tier, type, created_ms FROM limits_log
       WHERE account_id = $1 AND ($2 = '*' OR key_id = $3)
       ORDER BY created_ms DESC, id DESC LIMIT ${SHOWN}`,
      [accountId, keyId === undefined ? '*' : '=', keyId ?? ''],
    );
    return rows.map((row) => ({
      accountId: row.account_id,
      keyId: row.key_id,
      modelId: row.model_id,
      tier: row.tier,
      type: row.type,
      createdMs: Number(row.created_ms),
    }));
  }

  /** Makes the partitions of the coming days; nothing on SQLite. */
  async prepareDays(fromDay: number, untilDay: number): Promise<void> {
    const days = Array.from({ length: untilDay - fromDay }, (_, at) => fromDay + at);
    await makeDayPartitions(this.#store, LOG_TABLE, days);
  }

  /** Drops the days before `beforeDay`, whole where they are partitions. */
  async dropDaysBefore(beforeDay: number): Promise<void> {
    for (const day of await existingDays(this.#store)) {
      if (day >= beforeDay) break;
      await this.#store.transaction((tx) => dropDayPartition(tx, LOG_TABLE, day));
    }
    await this.#store.query('DELETE FROM limits_log WHERE created_ms < $1', [
      dayStartMs(beforeDay),
    ]);
  }

  async #insert(tx: Queryable, hits: readonly LoggedHit[]): Promise<void> {
    for (const hit of hits) {
      await tx.query(
        `INSERT INTO limits_log (id, account_id, key_id, model_id, tier, type, created_ms)
         VALUES ($1, $2, $3, $4, $5, $6, $7)`,
        [
          this.#ids.uuid(),
          hit.accountId,
          hit.keyId,
          hit.modelId,
          hit.tier,
          hit.type,
          hit.createdMs,
        ],
      );
    }
  }
}

async function existingDays(store: Store): Promise<number[]> {
  return store.dialect === 'postgres' ? dayPartitions(store, LOG_TABLE) : [];
}
