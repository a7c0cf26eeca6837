/** Lists of payments for payers and the operator, without the signed payload and the sent bytes. */
import { MINUTE_MS } from '../core/clock.ts';
import type { Parameter, Queryable } from '../db/db.ts';
import { unitsToNano } from './networks.ts';
import { REVERTED } from './rail.ts';
import type { RailOffer } from './requirements.ts';
import type { TopUpRow } from './top-up-table.ts';

export interface TopUpPlace {
  readonly createdMs: number;
  readonly paymentId: string;
}

export interface TopUpFilter {
  readonly wallet?: string | undefined;
  readonly state?: TopUpRow['state'] | undefined;
  /** Only payments that are stuck at this time. */
  readonly stuckAtMs?: number | undefined;
  readonly changedSinceMs?: number | undefined;
}

export type TopUpDetail = ReturnType<typeof detailOf>;

/**
 * A payment takes seconds; after this time it needs the operator, unless its payer has made it revert: it
 * can be signed without an end, and waits for the payer.
 */
const STUCK_AFTER_MS = 10 * MINUTE_MS;

interface ListedRow extends TopUpRow {
  readonly updated_ms: bigint;
  readonly lease_until_ms: bigint;
}

export function isStuck(
  { state, failure, createdMs, vanishedMs }: TopUpDetail,
  nowMs: number,
): boolean {
  if (vanishedMs !== undefined) return true;
  if (failure === REVERTED) return false;
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
    const isOpen = `state IN ('open', 'sent') AND COALESCE(failure, '') <> ${add(REVERTED)}`;
    const isOld = `created_ms <= ${add(stuckAtMs - STUCK_AFTER_MS)}`;
    wanted.push(`(${isOpen} AND ${isOld} OR vanished_ms IS NOT NULL)`);
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

function detailOf(row: ListedRow) {
  const offer = row.offer === null ? undefined : (JSON.parse(row.offer) as RailOffer); // ours
  return {
    paymentId: row.payment_id,
    network: row.network,
    wallet: row.wallet,
    amountNano: unitsToNano(row.amount_units),
    state: row.state,
    transaction: row.tx_id ?? undefined,
    /** Why it failed, or why the last attempt did not finish it. */
    failure: row.failure ?? undefined,
    createdMs: Number(row.created_ms),
    updatedMs: Number(row.updated_ms),
    attempts: Number(row.attempts),
    nextCheckMs: Number(row.next_check_ms),
    /** End of the lease of a process; 0 without a lease. */
    leaseUntilMs: Number(row.lease_until_ms),
    startHeight: row.start_height,
    creditedHeight: row.credited_height,
    /** End of the authorization: Unix seconds on Base, a block height on Solana. */
    expiresAt: row.expires_at,
    isWatched: row.is_watched === 1n,
    /** Since when a watched credit is missing on the chain. */
    vanishedMs: row.vanished_ms === null ? undefined : Number(row.vanished_ms),
    reversals: Number(row.reversals),
    payTo: offer?.payTo,
    asset: offer?.asset,
  };
}
