/**
 * The life of this process in a ledger that processes share. Holds belong to the epoch of the
 * process that placed them. A living process renews its epoch; one that stays unrenewed is closed by
 * anybody: its holds are given back, since nobody got a complete answer for them. A process also
 * gives back holds of its own that no request stands for (their placing was confirmed by nobody),
 * and writes journaled settles to the database when that is back.
 *
 * Whether an epoch is renewed is seen, not computed: a process judges another one dead when it has
 * looked on for long enough without a change, so that clocks may differ, and a process that was
 * itself cut off begins to look on anew.
 */
import { type Clock, SECOND_MS } from '../../../core/clock.ts';
import type { Log } from '../../../core/log.ts';
import type { Queryable, Statement, Store } from '../../../db/db.ts';
import { DURABLE_EPOCH } from '../place-holds.ts';
import type { SettleRequest } from '../records.ts';
import { HOLD_COLUMNS, type HoldRow, giveBack, heldInRow } from '../settle.ts';
import { readStates, saveStates } from '../states.ts';
import type { SettleJournal } from './settle-journal.ts';

/** An epoch that was not renewed for this long belongs to a dead process. */
export const EPOCH_DEAD_AFTER_MS = 30 * SECOND_MS;
/** Renewals within the time after which an epoch counts as dead. */
const RENEWALS_PER_LIFE = 6;
/**
 * Of the time after which a process is dead: a younger hold may still be on its way back to the
 * request that placed it.
 */
const ORPHAN_SHARE = 1 / 3;
/** Journals of ended processes are looked for once in so many renewals. */
const ADOPT_EVERY = 12;
/** Holds given back in one transaction, at most. */
const RELEASE_BATCH = 500;

export interface EpochParts {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Log;
  readonly epochId: string;
  readonly deadAfterMs: number;
  readonly journal: SettleJournal | undefined;
  readonly settle: (request: SettleRequest) => Promise<unknown>;
}

export class Epoch {
  readonly #parts: EpochParts;
  readonly #heartbeats: Heartbeats;
  /** Requests that have a hold of this epoch or are getting one. */
  readonly #open = new Set<string>();
  /** Durable holds whose placing got no answer, with the time of the loss. */
  readonly #doubtful = new Map<string, number>();
  #stopRenewing: (() => void) | undefined;
  #renewing: Promise<void> | undefined;
  #renewals = 0;

  constructor(parts: EpochParts) {
    this.#parts = parts;
    this.#heartbeats = new Heartbeats(parts.clock, parts.deadAfterMs);
  }

  /** The request stands for its hold: known before that can be in the database. */
  opened(requestId: string): void {
    this.#open.add(requestId);
  }

  /** The hold is settled, refused, or was never placed. */
  ended(requestId: string): void {
    this.#open.delete(requestId);
  }

  /** A durable hold outlives the epoch, so it has to be looked for by its id. */
  doubt(requestId: string): void {
    this.#doubtful.set(requestId, this.#parts.clock.nowMs());
  }

  async start(): Promise<void> {
    const { clock, journal, deadAfterMs } = this.#parts;
    await journal?.open();
    await this.#renew();
    await this.#replayJournal();
    await this.#adoptJournals();
    this.#stopRenewing = clock.every(Math.ceil(deadAfterMs / RENEWALS_PER_LIFE), () => {
      // A round that hangs must not be joined by a second one.
      this.#renewing ??= this.#round().finally(() => {
        this.#renewing = undefined;
      });
    });
  }

  /** Ends the epoch; what cannot be written stays in the journal for the next process. */
  async stop(): Promise<void> {
    const { epochId, journal, log } = this.#parts;
    this.#stopRenewing?.();
    await this.#renewing;
    try {
      await this.#replayJournal();
      await this.#release(epochId);
    } catch (error) {
      // The database is away: the others close this epoch, the next process reads the journal.
      log.warn({ reason: String(error), journaled: journal?.size ?? 0 }, 'Epoch not closed');
    }
    await journal?.close();
  }

  async #round(): Promise<void> {
    try {
      await this.#renew();
      await this.#replayJournal();
      await this.#closeDead();
      await this.#releaseOrphans();
      this.#renewals += 1;
      if (this.#renewals % ADOPT_EVERY === 0) await this.#adoptJournals();
    } catch (error) {
      // The next round tries again; the store has logged what is wrong with the database.
      this.#parts.log.debug({ reason: String(error) }, 'Epoch not renewed');
    }
  }

  async #renew(): Promise<void> {
    const { store, clock, epochId } = this.#parts;
    const renewal = `INSERT INTO ledger_epoch (id, started_ms, heartbeat_ms) VALUES ($1, $2, $2)
      ON CONFLICT (id) DO UPDATE SET heartbeat_ms = excluded.heartbeat_ms`;
    await store.transaction((tx) => tx.query(renewal, [epochId, clock.nowMs()]), {
      durable: false,
    });
  }

  async #replayJournal(): Promise<void> {
    const { journal, log, settle } = this.#parts;
    if (journal === undefined || journal.size === 0) return;
    const { done, failed } = await journal.replay(settle);
    if (done > 0) log.info({ replayed: done }, 'Settles of the journal are in the database');
    if (failed.length === 0) return;
    log.error({ failed: failed.length, reason: String(failed[0]) }, 'Settles stay in the journal');
  }

  async #adoptJournals(): Promise<void> {
    const { journal, log, settle } = this.#parts;
    const adopted = (await journal?.adopt(settle)) ?? 0;
    if (adopted > 0) log.info({ adopted }, 'Settled what an ended process had journaled');
  }

  async #closeDead(): Promise<void> {
    const { clock, epochId, deadAfterMs } = this.#parts;
    for (const id of this.#heartbeats.dead(await this.#others())) await this.#close(id);
    for (const id of await this.#lost(clock.nowMs() - 2 * deadAfterMs)) {
      if (id !== epochId) await this.#close(id);
    }
  }

  async #close(id: string): Promise<void> {
    const released = await this.#release(id);
    this.#parts.log.info({ epoch: id, released }, 'Closed the epoch of an ended process');
  }

  /** Gives back every hold of an epoch and forgets the epoch; returns how many holds there were. */
  async #release(id: string): Promise<number> {
    const { store, clock } = this.#parts;
    const released = await releaseHolds(store, clock.nowMs(), 'epoch_id = $1', id);
    // Another process may be closing it too: the record goes when the last hold has gone.
    await store.query(
      `DELETE FROM ledger_epoch WHERE id = $1 AND id <> $2
       AND NOT EXISTS (SELECT 1 FROM ledger_hold WHERE epoch_id = $1)`,
      [id, DURABLE_EPOCH],
    );
    return released;
  }

  /** Holds whose placing got no answer are in the database and in no request. */
  async #releaseOrphans(): Promise<void> {
    const { store, clock, epochId, journal, log, deadAfterMs } = this.#parts;
    const nowMs = clock.nowMs();
    const beforeMs = nowMs - deadAfterMs * ORPHAN_SHARE;
    const placed = await store.query<{ id: string }>(
      'SELECT request_id AS id FROM ledger_hold WHERE epoch_id = $1 AND created_ms < $2',
      [epochId, beforeMs],
    );
    const doubtful = [...this.#doubtful].filter(([, sinceMs]) => sinceMs < beforeMs);
    for (const [id] of doubtful) this.#doubtful.delete(id);
    const orphans = [...placed.map(({ id }) => id), ...doubtful.map(([id]) => id)].filter((id) => {
      return !this.#open.has(id) && journal?.has(id) !== true;
    });
    if (orphans.length === 0) return;
    const which = 'request_id IN (SELECT json_array_elements_text($1::json))';
    const released = await releaseHolds(store, nowMs, which, JSON.stringify(orphans));
    if (released > 0) log.warn({ released }, 'Gave back holds that no request stands for');
  }

  /** Every epoch but the own one and the durable one, dead or not. */
  #others(): Promise<readonly Heartbeat[]> {
    const { store, epochId } = this.#parts;
    return store.query<Heartbeat>(
      `SELECT id, heartbeat_ms AS heartbeat FROM ledger_epoch WHERE id <> $1 AND id <> $2
       ORDER BY id`,
      [epochId, DURABLE_EPOCH],
    );
  }

  /** Epochs that nobody has on record any more, with holds from before `beforeMs`. */
  async #lost(beforeMs: number): Promise<string[]> {
    const rows = await this.#parts.store.query<{ id: string }>(
      `SELECT DISTINCT h.epoch_id AS id FROM ledger_hold h WHERE h.epoch_id <> $1 AND h.created_ms < $2
       AND NOT EXISTS (SELECT 1 FROM ledger_epoch e WHERE e.id = h.epoch_id)`,
      [DURABLE_EPOCH, beforeMs],
    );
    return rows.map((row) => row.id);
  }
}

interface Heartbeat {
  readonly id: string;
  readonly heartbeat: bigint;
}

/** Looks at the epochs of others and tells which are not renewed any more. */
export class Heartbeats {
  readonly #clock: Clock;
  readonly #deadAfterMs: number;
  readonly #seen = new Map<string, { heartbeat: bigint; sinceMs: number }>();
  #lookedMs = -Infinity;

  constructor(clock: Clock, deadAfterMs: number) {
    this.#clock = clock;
    this.#deadAfterMs = deadAfterMs;
  }

  /** Takes a look; returns the epochs that have stood still for as long as it takes. */
  dead(epochs: readonly Heartbeat[]): string[] {
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

/** Gives holds back, some in each transaction; returns how many were still there. */
async function releaseHolds(
  store: Store,
  nowMs: number,
  which: string,
  parameter: string,
): Promise<number> {
  const take = `DELETE FROM ledger_hold WHERE request_id IN
      (SELECT request_id FROM ledger_hold WHERE ${which} ORDER BY request_id LIMIT ${RELEASE_BATCH})
    RETURNING ${HOLD_COLUMNS}`;
  let released = 0;
  for (;;) {
    const batch = await store.transaction((tx) => releaseBatch(tx, nowMs, take, parameter));
    if (batch === 0) return released;
    released += batch;
  }
}

async function releaseBatch(
  tx: Queryable,
  nowMs: number,
  take: string,
  parameter: string,
): Promise<number> {
  const rows = await tx.query<HoldRow>(take, [parameter]);
  const accountIds = rows.map((row) => row.account_id);
  const allowanceIds = rows.flatMap((row) => row.allowance_id ?? []);
  const context = { dialect: 'postgres', nowMs } as const;
  const states = await readStates(tx, context, accountIds, allowanceIds);
  for (const row of rows) {
    const account = states.accounts.get(row.account_id);
    if (account !== undefined) giveBack(states, account, heldInRow(row));
  }
  const statements: Statement[] = [];
  saveStates(statements, states);
  await tx.run(statements);
  return rows.length;
}
