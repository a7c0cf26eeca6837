/**
 * Holds belong to the epoch of the process that placed them. A living process renews its epoch; an
 * epoch that stays unrenewed is closed by anybody: its holds are given back, since nobody got a
 * complete answer for them.
 *
 * Whether an epoch is renewed is seen, not computed: a process judges another one dead when it has
 * looked on for long enough without a change, so that clocks may differ, and a process that was
 * itself cut off begins to look on anew.
 */
import { type Clock, SECOND_MS } from '../../core/clock.ts';
import type { Queryable, Statement, Store } from '../../db/db.ts';
import { DURABLE_EPOCH } from './place-holds.ts';
import { HOLD_COLUMNS, type HoldRow, giveBack, heldInRow } from './settle.ts';
import { readStates, saveStates } from './states.ts';

/** An epoch that was not renewed for this long belongs to a dead process. */
export const EPOCH_DEAD_AFTER_MS = 30 * SECOND_MS;
/** Renewals within the time after which an epoch counts as dead. */
export const RENEWALS_PER_LIFE = 6;

/** Holds given back in one transaction, at most. */
const RELEASE_BATCH = 500;

export async function renewEpoch(store: Store, id: string, nowMs: number): Promise<void> {
  await store.transaction(
    (tx) =>
      tx.query(
        `INSERT INTO ledger_epoch (id, started_ms, heartbeat_ms) VALUES ($1, $2, $2)
         ON CONFLICT (id) DO UPDATE SET heartbeat_ms = excluded.heartbeat_ms`,
        [id, nowMs],
      ),
    { durable: false },
  );
}

/** Every epoch but the own one and the durable one, dead or not. */
export async function otherEpochs(
  store: Queryable,
  ownId: string,
): Promise<readonly { readonly id: string; readonly heartbeat: bigint }[]> {
  return store.query<{ id: string; heartbeat: bigint }>(
    'SELECT id, heartbeat_ms AS heartbeat FROM ledger_epoch WHERE id <> $1 AND id <> $2 ORDER BY id',
    [ownId, DURABLE_EPOCH],
  );
}

/** Epochs that nobody has on record any more, with holds from before `beforeMs`. */
export async function lostEpochs(store: Queryable, beforeMs: number): Promise<string[]> {
  const rows = await store.query<{ id: string }>(
    `SELECT DISTINCT h.epoch_id AS id FROM ledger_hold h WHERE h.epoch_id <> $1 AND h.created_ms < $2
     AND NOT EXISTS (SELECT 1 FROM ledger_epoch e WHERE e.id = h.epoch_id)`,
    [DURABLE_EPOCH, beforeMs],
  );
  return rows.map((row) => row.id);
}

/** Watches the epochs of others and tells which are not renewed any more. */
export class EpochWatch {
  readonly #clock: Clock;
  readonly #deadAfterMs: number;
  readonly #seen = new Map<string, { heartbeat: bigint; sinceMs: number }>();
  #lookedMs = -Infinity;

  constructor(clock: Clock, deadAfterMs: number) {
    this.#clock = clock;
    this.#deadAfterMs = deadAfterMs;
  }

  /** Takes a look; returns the epochs that have stood still for as long as it takes. */
  look(epochs: readonly { readonly id: string; readonly heartbeat: bigint }[]): string[] {
    const nowMs = this.#clock.monotonicMs();
    // Cut off in between: nobody can be blamed for what this process could not see.
    if (nowMs - this.#lookedMs > this.#deadAfterMs / 2) this.#seen.clear();
    this.#lookedMs = nowMs;
    const dead: string[] = [];
    for (const { id, heartbeat } of epochs) {
      const seen = this.#seen.get(id);
      if (seen === undefined || seen.heartbeat !== heartbeat) {
        this.#seen.set(id, { heartbeat, sinceMs: nowMs });
      } else if (nowMs - seen.sinceMs >= this.#deadAfterMs) {
        dead.push(id);
      }
    }
    const listed = new Set(epochs.map((epoch) => epoch.id));
    for (const id of this.#seen.keys()) if (!listed.has(id)) this.#seen.delete(id);
    return dead;
  }
}

/** Gives back every hold of an epoch and forgets the epoch; returns how many holds there were. */
export async function closeEpoch(store: Store, id: string, nowMs: number): Promise<number> {
  let released = 0;
  for (;;) {
    const batch = await releaseBatch(store, nowMs, (tx) =>
      tx.query<HoldRow>(
        `DELETE FROM ledger_hold WHERE request_id IN
           (SELECT request_id FROM ledger_hold WHERE epoch_id = $1 ORDER BY request_id LIMIT ${RELEASE_BATCH})
         RETURNING ${HOLD_COLUMNS}`,
        [id],
      ),
    );
    if (batch === 0) break;
    released += batch;
  }
  // Another process may be closing it too: the record goes when the last hold has gone.
  await store.query(
    `DELETE FROM ledger_epoch WHERE id = $1 AND id <> $2
     AND NOT EXISTS (SELECT 1 FROM ledger_hold WHERE epoch_id = $1)`,
    [id, DURABLE_EPOCH],
  );
  return released;
}

/** Ids of holds of one epoch that were placed before `beforeMs`, the oldest first. */
export async function holdsOf(
  store: Queryable,
  epochId: string,
  beforeMs: number,
): Promise<string[]> {
  const rows = await store.query<{ request_id: string }>(
    `SELECT request_id FROM ledger_hold WHERE epoch_id = $1 AND created_ms < $2`,
    [epochId, beforeMs],
  );
  return rows.map((row) => row.request_id);
}

/** Gives back single holds; returns how many were still there. */
export async function releaseHolds(
  store: Store,
  requestIds: readonly string[],
  nowMs: number,
): Promise<number> {
  let released = 0;
  const sorted = requestIds.toSorted();
  for (let start = 0; start < sorted.length; start += RELEASE_BATCH) {
    const ids = sorted.slice(start, start + RELEASE_BATCH);
    released += await releaseBatch(store, nowMs, async (tx) => {
      const rows: HoldRow[] = [];
      for (const id of ids) {
        const sql = `DELETE FROM ledger_hold WHERE request_id = $1 RETURNING ${HOLD_COLUMNS}`;
        rows.push(...(await tx.query<HoldRow>(sql, [id])));
      }
      return rows;
    });
  }
  return released;
}

function releaseBatch(
  store: Store,
  nowMs: number,
  take: (tx: Queryable) => Promise<readonly HoldRow[]>,
): Promise<number> {
  return store.transaction(async (tx) => {
    const rows = await take(tx);
    const accountIds = rows.map((row) => row.account_id);
    const allowanceIds = rows.flatMap((row) => row.allowance_id ?? []);
    const context = { dialect: store.dialect, nowMs };
    const states = await readStates(tx, context, accountIds, allowanceIds);
    for (const row of rows) {
      const account = states.accounts.get(row.account_id);
      if (account !== undefined) giveBack(states, account, heldInRow(row));
    }
    const statements: Statement[] = [];
    saveStates(statements, states);
    await tx.run(statements);
    return rows.length;
  });
}
