/**
 * Holds belong to the epoch of the process that placed them. A living process renews its epoch; an
 * epoch that was not renewed is closed by anybody: its holds are given back, since nobody got a
 * complete answer for them.
 */
import { nano } from '../kernel/money.ts';
import type { Store } from '../store/store.ts';
import { DURABLE_EPOCH } from './place-holds.ts';
import { States } from './states.ts';

/** An epoch that was not renewed for this long belongs to a dead process. */
export const EPOCH_DEAD_AFTER_MS = 30_000;
export const EPOCH_RENEW_EVERY_MS = 5_000;

/** Holds given back in one transaction, at most. */
const RELEASE_BATCH = 500;

interface OrphanRow {
  readonly request_id: string;
  readonly account_id: string;
  readonly allowance_id: string | null;
  readonly allowance_start_ms: bigint;
  readonly usd_nano: bigint;
  readonly daily_nano: bigint;
  readonly daily_day: bigint;
}

export async function renewEpoch(store: Store, id: string, nowMs: number): Promise<void> {
  await store.query(
    `INSERT INTO ledger_epoch (id, started_ms, heartbeat_ms) VALUES ($1, $2, $2)
     ON CONFLICT (id) DO UPDATE SET heartbeat_ms = excluded.heartbeat_ms`,
    [id, nowMs],
  );
}

/** Ids of epochs that were not renewed since `sinceMs`. */
export async function deadEpochs(store: Store, sinceMs: number): Promise<string[]> {
  const rows = await store.query<{ id: string }>(
    'SELECT id FROM ledger_epoch WHERE heartbeat_ms < $1 ORDER BY id',
    [sinceMs],
  );
  return rows.map((row) => row.id);
}

/** Gives back every hold of an epoch and forgets the epoch; returns how many holds there were. */
export async function closeEpoch(store: Store, id: string, nowMs: number): Promise<number> {
  let released = 0;
  for (;;) {
    const batch = await releaseBatch(store, id, nowMs);
    released += batch;
    if (batch < RELEASE_BATCH) break;
  }
  await store.query('DELETE FROM ledger_epoch WHERE id = $1 AND id <> $2', [id, DURABLE_EPOCH]);
  return released;
}

function releaseBatch(store: Store, epochId: string, nowMs: number): Promise<number> {
  return store.transaction(async (tx) => {
    const rows = await tx.query<OrphanRow>(
      `DELETE FROM ledger_hold WHERE request_id IN
         (SELECT request_id FROM ledger_hold WHERE epoch_id = $1 ORDER BY request_id LIMIT ${RELEASE_BATCH})
       RETURNING request_id, account_id, allowance_id, allowance_start_ms, usd_nano, daily_nano, daily_day`,
      [epochId],
    );
    const states = new States(tx, store.dialect, nowMs);
    await states.load(
      rows.map((row) => row.account_id),
      rows.flatMap((row) => row.allowance_id ?? []),
    );
    for (const row of rows) giveBack(states, row);
    await states.save();
    return rows.length;
  });
}

function giveBack(states: States, row: OrphanRow): void {
  const account = states.account(row.account_id);
  if (account !== undefined) {
    account.heldNano = nano(account.heldNano - row.usd_nano);
    if (Number(row.daily_day) === account.dailyDay) account.dailyHeldNano -= row.daily_nano;
  }
  const allowance = states.allowance(row.allowance_id);
  if (allowance !== undefined && Number(row.allowance_start_ms) === allowance.periodStartMs) {
    allowance.usdHeldNano -= row.usd_nano;
    allowance.diemHeldNano -= row.daily_nano;
  }
}
