/**
 * Ties a charge to its idempotency key: the row of the key is marked as spent in the transaction of
 * the charge, and only while the row contains the token of the charged request.
 */
import { DAY_MS } from '../../core/clock.ts';
import type { Queryable } from '../../db/db.ts';
import { ROW_BYTES, addToHour } from './kept-storage.ts';

export interface KeyFence {
  readonly caller: string;
  readonly key: string;
  readonly token: string;
}

/**
 * Why a key is spent without a response: the response was too large, the request broke off, or the
 * response was dropped in favour of newer ones of the account.
 */
export type NotKept = 'too-large' | 'incomplete' | 'dropped';

/** The final values of a key's row; the nullable members are `null` without a response. */
export interface KeyEnd {
  readonly state: 'done' | NotKept;
  readonly status: number | null;
  readonly headers: string | null;
  readonly body: Buffer | null;
  readonly bytes: number;
  readonly paidNano: bigint;
}

const KEPT_MS = DAY_MS;

const END = `UPDATE idempotency_entry
  SET state = $4, expires_ms = now_ms($10) + ${KEPT_MS}, status = $5, headers = $6, body = $7,
    kept_bytes = $8, paid_nano = $9
  WHERE caller = $1 AND entry_key = $2 AND token = $3 AND state = 'running'
  RETURNING expires_ms`;

/**
 * Marks a key as spent and returns when its row expires. Returns `spent` if this request has spent
 * it before (the reply to its commit was lost), and `lost` if another request has the key.
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

export function withoutResponse(state: NotKept, paidNano: bigint): KeyEnd {
  return { state, status: null, headers: null, body: null, bytes: ROW_BYTES, paidNano };
}

/** Spends the key of a journaled settle; returns `false` if another request has the key. */
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
