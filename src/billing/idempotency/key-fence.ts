/**
 * The fence between a charge and its idempotency key: one row, which is marked as spent in the
 * transaction of the charge, and only while it has the token of the request that is charged.
 */
import { DAY_MS } from '../../core/clock.ts';
import type { Queryable } from '../../db/db.ts';
import { ROW_BYTES, addToHour } from './kept-storage.ts';

/** Which row, and the token by which a request holds it. */
export interface KeyFence {
  readonly caller: string;
  readonly key: string;
  readonly token: string;
}

/**
 * Why a key is spent without a response: the response was too large, the request ended in the middle of
 * it, or it was dropped for newer ones of the account.
 */
export type NotKept = 'too-large' | 'incomplete' | 'dropped';

/** What becomes of a row whose request is charged; the nulls are those of a key without a response. */
export interface KeyEnd {
  readonly state: 'done' | NotKept;
  readonly status: number | null;
  /** JSON. */
  readonly headers: string | null;
  readonly body: Buffer | null;
  /** What is counted for the row. */
  readonly bytes: number;
  readonly paidNano: bigint;
}

/** How long a key stays spent. */
const KEPT_MS = DAY_MS;

const END = `UPDATE idempotency_entry
  SET state = $4, expires_ms = now_ms($10) + ${KEPT_MS}, status = $5, headers = $6, body = $7,
    kept_bytes = $8, paid_nano = $9
  WHERE caller = $1 AND entry_key = $2 AND token = $3 AND state = 'running'
  RETURNING expires_ms`;

/**
 * Marks a key as spent and returns when its row expires; `spent` if this request has spent it before
 * (the reply to its commit was lost), `lost` if another request has the key.
 */
export async function endKey(
  tx: Queryable,
  nowMs: number,
  { caller, key, token }: KeyFence,
  { state, status, headers, body, bytes, paidNano }: KeyEnd,
): Promise<number | 'spent' | 'lost'> {
  const values = [caller, key, token, state, status, headers, body, bytes, paidNano, nowMs];
  const [row] = await tx.query<{ expires_ms: bigint }>(END, values);
  if (row !== undefined) return Number(row.expires_ms);
  const own = await tx.query(
    `SELECT token FROM idempotency_entry
     WHERE caller = $1 AND entry_key = $2 AND token = $3 AND state <> 'running'`,
    [caller, key, token],
  );
  return own.length > 0 ? 'spent' : 'lost';
}

/** The end of a request that was charged and broke off. */
export function withoutResponse(state: NotKept, paidNano: bigint): KeyEnd {
  return { state, status: null, headers: null, body: null, bytes: ROW_BYTES, paidNano };
}

/** Spends the key of a settle that has waited in the journal; `false` if another request has it. */
export async function spendJournaled(
  tx: Queryable,
  nowMs: number,
  key: KeyFence,
  { accountId, paidNano }: { readonly accountId: string; readonly paidNano: bigint },
): Promise<boolean> {
  const ended = await endKey(tx, nowMs, key, withoutResponse('incomplete', paidNano));
  if (typeof ended === 'number') {
    await addToHour(tx, { accountId, bytes: ROW_BYTES, paidNano, expiresMs: ended });
  }
  return ended !== 'lost';
}
