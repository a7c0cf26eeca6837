/**
 * Counts the storage that stored responses use per account, and enforces its limit, in the
 * transaction that stores a response. Above the limit the oldest responses of the account are
 * dropped. Their keys stay spent, so a retry receives 410 and is not charged again.
 *
 * The sums are one row per account and hour of expiry. They expire together with their entries, so
 * pruning does not have to correct them.
 */
import { DAY_MS } from '../../core/clock.ts';
import type { Queryable } from '../../db/db.ts';

const HOUR_MS = DAY_MS / 24;
/** Bytes per row besides its headers and body: other columns and its share of two indexes. */
export const ROW_BYTES = 512;
/** Bytes per USD charged: 0.2 of 1 GB per USD, which receipts and tags share. */
const BYTES_PER_USD = 200_000_000n;
const NANO_PER_USD = 1_000_000_000n;
/** Share of the configured quota for an account that has not paid for any response. */
const UNPAID_SHARE = 1 / 16;
const DROP_ROWS = 256;

export interface KeptStorage {
  readonly bytes: number;
  readonly limitBytes: number;
}

export interface KeptSize {
  readonly accountId: string;
  readonly bytes: number;
  readonly paidNano: bigint;
  readonly expiresMs: number;
}

interface SumRow {
  readonly bytes: bigint | null;
  readonly paid: bigint | null;
}

interface OldRow {
  readonly caller: string;
  readonly entry_key: string;
  readonly kept_bytes: bigint;
  readonly paid_nano: bigint;
  readonly expires_ms: bigint;
}

const ADD = `INSERT INTO idempotency_hour (account_id, hour, kept_bytes, paid_nano)
  VALUES ($1, $2, $3, $4)
  ON CONFLICT (account_id, hour) DO UPDATE SET
    kept_bytes = idempotency_hour.kept_bytes + excluded.kept_bytes,
    paid_nano = idempotency_hour.paid_nano + excluded.paid_nano`;

export class AccountStorage {
  readonly #baseBytes: () => number;

  constructor(baseBytes: () => number) {
    this.#baseBytes = baseBytes;
  }

  async of(tx: Queryable, accountId: string, nowMs: number): Promise<KeptStorage> {
    const [row] = await tx.query<SumRow>(SUM, [accountId, nowMs]);
    const paidNano = row?.paid ?? 0n;
    const share = paidNano > 0n ? 1 : UNPAID_SHARE;
    const paidBytes = Number((paidNano * BYTES_PER_USD) / NANO_PER_USD);
    const limitBytes = Math.floor(this.#baseBytes() * share) + paidBytes;
    return { bytes: Number(row?.bytes ?? 0n), limitBytes };
  }

  async add(tx: Queryable, kept: KeptSize, nowMs: number): Promise<void> {
    await addToHour(tx, kept);
    await this.fit(tx, kept.accountId, nowMs);
  }

  /** Drops the oldest responses of an account until the rest fits; returns the remaining usage. */
  async fit(tx: Queryable, accountId: string, nowMs: number): Promise<KeptStorage> {
    for (;;) {
      const storage = await this.of(tx, accountId, nowMs);
      const overBytes = storage.bytes - storage.limitBytes;
      if (overBytes <= 0 || !(await this.#drop(tx, accountId, overBytes, nowMs))) return storage;
    }
  }

  async #drop(
    tx: Queryable,
    accountId: string,
    overBytes: number,
    nowMs: number,
  ): Promise<boolean> {
    const oldest = await tx.query<OldRow>(OLDEST, [accountId, nowMs]);
    const hours = new Map<number, KeptSize>();
    const spent: string[][] = [];
    const free: string[][] = [];
    let freedBytes = 0;
    for (const { caller, entry_key: key, kept_bytes, paid_nano, expires_ms } of oldest) {
      if (freedBytes >= overBytes) break;
      // Running a free request again charges nothing, so its row can be deleted.
      const isFree = paid_nano === 0n;
      (isFree ? free : spent).push([caller, key]);
      const bytes = Number(kept_bytes) - (isFree ? 0 : ROW_BYTES);
      freedBytes += bytes;
      const hour = hourOf(Number(expires_ms));
      const before = hours.get(hour)?.bytes ?? 0;
      const size = { accountId, bytes: before - bytes, paidNano: 0n };
      hours.set(hour, { ...size, expiresMs: Number(expires_ms) });
    }
    if (spent.length > 0) await tx.query(DROP, [JSON.stringify(spent), ROW_BYTES]);
    if (free.length > 0) await tx.query(REMOVE, [JSON.stringify(free)]);
    for (const size of hours.values()) await addToHour(tx, size);
    return oldest.length > 0;
  }

  async prune(tx: Queryable, nowMs: number): Promise<void> {
    await tx.query(PRUNE, [nowMs]);
  }
}

export async function addToHour(
  tx: Queryable,
  { accountId, bytes, paidNano, expiresMs }: KeptSize,
): Promise<void> {
  await tx.query(ADD, [accountId, hourOf(expiresMs), bytes, paidNano]);
}

function hourOf(expiresMs: number): number {
  return Math.floor(expiresMs / HOUR_MS);
}

const SUM = `SELECT CAST(sum(kept_bytes) AS BIGINT) AS bytes, CAST(sum(paid_nano) AS BIGINT) AS paid
  FROM idempotency_hour WHERE account_id = $1 AND hour >= now_ms($2) / ${HOUR_MS}`;
const OLDEST = `SELECT caller, entry_key, kept_bytes, paid_nano, expires_ms FROM idempotency_entry
  WHERE account_id = $1 AND expires_ms > now_ms($2)
    AND (state = 'done' OR state <> 'running' AND paid_nano = 0)
  ORDER BY expires_ms LIMIT ${DROP_ROWS}`;
const OF_KEYS = `(caller, entry_key) IN
  (SELECT value ->> 0, value ->> 1 FROM json_array_elements($1::json))`;
const DROP = `UPDATE idempotency_entry
  SET state = 'dropped', headers = NULL, body = NULL, kept_bytes = $2 WHERE ${OF_KEYS}`;
const REMOVE = `DELETE FROM idempotency_entry WHERE ${OF_KEYS}`;
const PRUNE = `DELETE FROM idempotency_hour WHERE hour < now_ms($1) / ${HOUR_MS}`;
