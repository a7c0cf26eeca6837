/**
 * Payments as their payers and the operator see them: newest first, by wallet and state, and all that
 * is known of one. Without secrets: neither the signed payload nor the bytes that were sent.
 */
import { MINUTE_MS } from '../core/clock.ts';
import type { Nano } from '../core/money.ts';
import type { Parameter, Queryable } from '../db/db.ts';
import { unitsToNano } from './networks.ts';
import type { RailOffer } from './requirements.ts';
import type { TopUpRow } from './top-up-table.ts';

/** `open`: written down, nothing sent; `sent`: on its way; the other two are final. */
export type TopUpState = TopUpRow['state'];

export interface TopUpPlace {
  readonly createdMs: number;
  readonly paymentId: string;
}

export interface TopUpFilter {
  readonly wallet?: string | undefined;
  readonly state?: TopUpState | undefined;
  /** Only those that wait longer than a payment should. */
  readonly stuckAtMs?: number | undefined;
  /** Only those that changed since then. */
  readonly changedSinceMs?: number | undefined;
}

export interface TopUpDetail {
  readonly paymentId: string;
  readonly network: string;
  readonly wallet: string;
  readonly amountNano: Nano;
  readonly state: TopUpState;
  readonly transaction: string | undefined;
  /** Why it failed, or why the last look at it did not finish it. */
  readonly failure: string | undefined;
  readonly createdMs: number;
  readonly updatedMs: number;
  /** Looks at it so far, and the next one. */
  readonly attempts: number;
  readonly nextCheckMs: number;
  /** A process works on it until then; 0 for nobody. */
  readonly leaseUntilMs: number;
  readonly startHeight: bigint;
  readonly creditedHeight: bigint;
  /** When the authorization ends: Unix seconds on Base, a block height on Solana. */
  readonly expiresAt: bigint;
  /** The chain could still undo the credit, or show a failed payment as paid. */
  readonly isWatched: boolean;
  /** Since when a watched credit is missing on the chain. */
  readonly vanishedMs: number | undefined;
  readonly reversals: number;
  readonly payTo: string | undefined;
  readonly asset: string | undefined;
}

/** A payment is through in seconds; after this it wants somebody to look. */
const STUCK_AFTER_MS = 10 * MINUTE_MS;

interface ListedRow extends TopUpRow {
  readonly updated_ms: bigint;
  readonly lease_until_ms: bigint;
}

export function isStuck({ state, createdMs, vanishedMs }: TopUpDetail, nowMs: number): boolean {
  if (vanishedMs !== undefined) return true;
  return (state === 'open' || state === 'sent') && nowMs - createdMs >= STUCK_AFTER_MS;
}

export async function listTopUps(
  store: Queryable,
  { wallet, state, stuckAtMs, changedSinceMs }: TopUpFilter,
  { limit, after }: { readonly limit: number; readonly after?: TopUpPlace | undefined },
): Promise<readonly TopUpDetail[]> {
  const parameters: Parameter[] = [];
  const wanted: string[] = [];
  const add = (value: Parameter): string => `$${parameters.push(value)}`;
  if (wallet !== undefined) wanted.push(`wallet = ${add(wallet)}`);
  if (state !== undefined) wanted.push(`state = ${add(state)}`);
  if (changedSinceMs !== undefined) wanted.push(`updated_ms >= ${add(changedSinceMs)}`);
  if (stuckAtMs !== undefined) {
    const before = add(stuckAtMs - STUCK_AFTER_MS);
    wanted.push(
      `(state IN ('open', 'sent') AND created_ms <= ${before} OR vanished_ms IS NOT NULL)`,
    );
  }
  if (after !== undefined) {
    wanted.push(`(created_ms, payment_id) < (${add(after.createdMs)}, ${add(after.paymentId)})`);
  }
  const where = wanted.length === 0 ? '' : `WHERE ${wanted.join(' AND ')}`;
  const rows = await store.query<ListedRow>(
    `SELECT * FROM payments_topup ${where} ORDER BY created_ms DESC, payment_id DESC LIMIT ${add(limit)}`,
    parameters,
  );
  return rows.map(detailOf);
}

export async function topUpById(
  store: Queryable,
  paymentId: string,
): Promise<TopUpDetail | undefined> {
  const sql = 'SELECT * FROM payments_topup WHERE payment_id = $1';
  const [row] = await store.query<ListedRow>(sql, [paymentId]);
  return row === undefined ? undefined : detailOf(row);
}

function detailOf(row: ListedRow): TopUpDetail {
  const offer = row.offer === null ? undefined : (JSON.parse(row.offer) as RailOffer); // ours
  return {
    paymentId: row.payment_id,
    network: row.network,
    wallet: row.wallet,
    amountNano: unitsToNano(row.amount_units),
    state: row.state,
    transaction: row.tx_id ?? undefined,
    failure: row.failure ?? undefined,
    createdMs: Number(row.created_ms),
    updatedMs: Number(row.updated_ms),
    attempts: Number(row.attempts),
    nextCheckMs: Number(row.next_check_ms),
    leaseUntilMs: Number(row.lease_until_ms),
    startHeight: row.start_height,
    creditedHeight: row.credited_height,
    expiresAt: row.expires_at,
    isWatched: row.is_watched === 1n,
    vanishedMs: row.vanished_ms === null ? undefined : Number(row.vanished_ms),
    reversals: Number(row.reversals),
    payTo: offer?.payTo,
    asset: offer?.asset,
  };
}
