/**
 * The life of this process in a ledger that processes share. Leases and holds belong to the epoch of
 * the process that has them. A living process renews its epoch; one that stays unrenewed is closed by
 * anybody: its record goes first, so that it leases nothing more, then what it has not spent is given
 * back. A process that was only cut off or stopped finds its epoch gone and begins another one; what
 * it still settles of the old one finds no lease. A process also gives back rows of its own that
 * nothing in it stands for (their placing was confirmed by nobody, or they have served), and writes
 * journaled settles to the database when that is back.
 *
 * Whether an epoch is renewed is seen, not computed: a process judges another one dead when it has
 * looked on for long enough without a change, so that clocks may differ, and a process that was
 * itself cut off begins to look on anew.
 */
import { type Clock, SECOND_MS } from '../../../core/clock.ts';
import type { Log } from '../../../core/log.ts';
import type { Store } from '../../../db/db.ts';
import { DURABLE_EPOCH, releaseHolds } from '../row-holds.ts';
import type { JournaledSettle, SettleJournal } from './settle-journal.ts';

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
/** Clocks that differ by more than this are told: minutes and days begin by them. */
const CLOCK_OFF_MS = 10 * SECOND_MS;
/** A process may take itself for alive so long after a renewal, of the time until it is dead. */
const CERTAIN_SHARE = 1 / 2;

export interface EpochParts {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Log;
  readonly deadAfterMs: number;
  /** Begins the id of each epoch of this process. */
  readonly processId: string;
  readonly journal: SettleJournal | undefined;
  readonly settle: (entry: JournaledSettle) => Promise<unknown>;
  /** Rows of this process that something in it stands for. */
  readonly isKnown: () => ReadonlySet<string>;
  /** The epoch was closed by another process: nothing is left of its leases. */
  readonly begunAnew: () => void;
  /** Something that is due with each renewal. */
  readonly round: () => void;
}

export class Epoch {
  readonly #parts: EpochParts;
  readonly #heartbeats: Heartbeats;
  /** Durable holds whose placing got no answer, with the time of the loss. */
  readonly #doubtful = new Map<string, number>();
  #id: string;
  #hasBegun = false;
  #begun = 1;
  #processes = 1;
  #renewedMs = -Infinity;
  #stopRenewing: (() => void) | undefined;
  #renewing: Promise<void> | undefined;
  #rounding: Promise<void> | undefined;
  #rounds = 0;
  #isClockOff = false;

  constructor(parts: EpochParts) {
    this.#parts = parts;
    this.#heartbeats = new Heartbeats(parts.clock, parts.deadAfterMs);
    this.#id = parts.processId;
  }

  get id(): string {
    return this.#id;
  }

  /** Whether this process is on record; a command beside the servers is not. */
  get hasBegun(): boolean {
    return this.#hasBegun;
  }

  /** Processes on record, this one included, when that was last looked at; at least one. */
  get processes(): number {
    return this.#processes;
  }

  /** Whether nobody can have taken this process for dead yet. */
  get isCertain(): boolean {
    const { clock, deadAfterMs } = this.#parts;
    return clock.monotonicMs() - this.#renewedMs < deadAfterMs * CERTAIN_SHARE;
  }

  /** A durable hold outlives the epoch, so it has to be looked for by its id. */
  doubt(requestId: string): void {
    this.#doubtful.set(requestId, this.#parts.clock.monotonicMs());
  }

  async start(): Promise<void> {
    const { clock, journal, deadAfterMs } = this.#parts;
    await journal?.open();
    await this.renew();
    this.#processes = (await this.#others()).length + 1;
    await this.#replayJournal();
    await this.#adoptJournals();
    this.#stopRenewing = clock.every(Math.ceil(deadAfterMs / RENEWALS_PER_LIFE), () => {
      // A round that hangs must not be joined by a second one.
      this.#rounding ??= this.#round().finally(() => {
        this.#rounding = undefined;
      });
    });
  }

  /** Ends the epoch; what cannot be written stays in the journal for the next process. */
  async stop(): Promise<void> {
    const { journal, log } = this.#parts;
    this.#stopRenewing?.();
    await this.#rounding;
    try {
      await this.#replayJournal();
      await this.#release(this.#id);
    } catch (error) {
      // The database is away: the others close this epoch, the next process reads the journal.
      log.warn({ reason: String(error), journaled: journal?.size ?? 0 }, 'Epoch not closed');
    }
    await journal?.close();
  }

  /** Says that this process lives; begins another epoch when its own was closed. */
  renew(): Promise<void> {
    this.#renewing ??= this.#renew().finally(() => {
      this.#renewing = undefined;
    });
    return this.#renewing;
  }

  /**
   * Gives back at once what a process had that has ended for sure, not only fallen silent. What it
   * had journaled is settled first, out of its leases.
   */
  async processEnded(processId: string): Promise<void> {
    await this.#adoptJournals();
    const epochs = await this.#parts.store.query<{ id: string }>(
      "SELECT id FROM ledger_epoch WHERE id = $1 OR id LIKE $1 || ':%'",
      [processId],
    );
    for (const { id } of epochs) await this.#close(id);
  }

  async #round(): Promise<void> {
    try {
      await this.renew();
      await this.#replayJournal();
      await this.#closeDead();
      await this.#releaseOrphans();
      this.#parts.round();
      this.#rounds += 1;
      if (this.#rounds % ADOPT_EVERY === 0) await this.#adoptJournals();
    } catch (error) {
      // The next round tries again; the store has logged what is wrong with the database.
      this.#parts.log.debug({ reason: String(error) }, 'Epoch not renewed');
    }
  }

  async #renew(): Promise<void> {
    const { store, clock, processId, log, begunAnew } = this.#parts;
    const sinceMs = clock.monotonicMs();
    if (this.#hasBegun) {
      // Above its own last beat, whatever the clock says.
      const beat = `UPDATE ledger_epoch SET heartbeat_ms = greatest(heartbeat_ms + 1, $2)
        WHERE id = $1 RETURNING now_ms($3) AS now_ms`;
      const nowMs = clock.nowMs();
      const [row] = await store.transaction(
        (tx) => tx.query<{ now_ms: bigint }>(beat, [this.#id, nowMs, nowMs]),
        { durable: false },
      );
      if (row !== undefined) {
        this.#renewedMs = sinceMs;
        this.#compareClocks(nowMs - Number(row.now_ms));
        return;
      }
      log.warn({ epoch: this.#id }, 'Another process took this one for dead: its leases are gone');
      begunAnew();
      this.#begun += 1;
      this.#id = `${processId}:${this.#begun}`;
    }
    const begin = 'INSERT INTO ledger_epoch (id, started_ms, heartbeat_ms) VALUES ($1, $2, $2)';
    await store.query(begin, [this.#id, clock.nowMs()]);
    this.#hasBegun = true;
    this.#renewedMs = sinceMs;
  }

  /** Told once, and when it is over. */
  #compareClocks(aheadMs: number): void {
    const { log } = this.#parts;
    const isOff = Math.abs(aheadMs) > CLOCK_OFF_MS;
    if (isOff === this.#isClockOff) return;
    this.#isClockOff = isOff;
    const fields = { aheadSeconds: Math.round(aheadMs / SECOND_MS) };
    if (isOff)
      log.warn(fields, 'The clock of this machine is not that of the database: set both by NTP');
    else log.info(fields, 'The clock of this machine is that of the database again');
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
    const { clock, deadAfterMs } = this.#parts;
    const others = await this.#others();
    this.#processes = others.length + 1;
    for (const { id, heartbeat } of this.#heartbeats.dead(others)) {
      if (await this.#endOf(id, heartbeat)) await this.#close(id);
    }
    for (const id of await this.#lost(clock.nowMs() - 2 * deadAfterMs)) {
      if (id !== this.#id) await this.#close(id);
    }
  }

  /** From here the process leases nothing more; `false` when it has given a sign after all. */
  async #endOf(id: string, heartbeat: bigint): Promise<boolean> {
    const rows = await this.#parts.store.query(
      'DELETE FROM ledger_epoch WHERE id = $1 AND heartbeat_ms = $2 RETURNING id',
      [id, heartbeat],
    );
    return rows.length > 0;
  }

  async #close(id: string): Promise<void> {
    const released = await this.#release(id);
    this.#parts.log.info({ epoch: id, released }, 'Closed the epoch of an ended process');
  }

  /** Gives back every hold of an epoch and forgets the epoch; returns how many holds there were. */
  async #release(id: string): Promise<number> {
    const { store, clock } = this.#parts;
    await store.query('DELETE FROM ledger_epoch WHERE id = $1 AND id <> $2', [id, DURABLE_EPOCH]);
    return releaseAll(store, clock.nowMs(), 'epoch_id = $1', id);
  }

  /** Rows that nothing here stands for: unconfirmed ones, and leases that have served. */
  async #releaseOrphans(): Promise<void> {
    const { store, clock, log, deadAfterMs, isKnown } = this.#parts;
    const nowMs = clock.nowMs();
    const orphanMs = deadAfterMs * ORPHAN_SHARE;
    const placed = await store.query<{ id: string; amount: bigint }>(
      `SELECT request_id AS id, usd_nano + daily_nano AS amount FROM ledger_hold
       WHERE epoch_id = $1 AND created_ms < $2`,
      [this.#id, nowMs - orphanMs],
    );
    const doubtfulMs = clock.monotonicMs() - orphanMs;
    const doubtful = [...this.#doubtful].filter(([, sinceMs]) => sinceMs < doubtfulMs);
    for (const [id] of doubtful) this.#doubtful.delete(id);
    const known = isKnown();
    const unknown = placed.filter(({ id }) => !known.has(id));
    const orphans = [...unknown.map(({ id }) => id), ...doubtful.map(([id]) => id)];
    if (orphans.length === 0) return;
    const which = 'request_id IN (SELECT json_array_elements_text($1::json))';
    const released = await releaseAll(store, nowMs, which, JSON.stringify(orphans));
    const held = unknown.filter(({ amount }) => amount > 0n).length;
    if (held + doubtful.length === 0) return;
    log.info({ released }, 'Gave back what was held and nothing stands for');
  }

  /** Every epoch but the own one and the durable one, dead or not. */
  #others(): Promise<readonly Heartbeat[]> {
    return this.#parts.store.query<Heartbeat>(
      `SELECT id, heartbeat_ms AS heartbeat FROM ledger_epoch WHERE id <> $1 AND id <> $2
       ORDER BY id`,
      [this.#id, DURABLE_EPOCH],
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
  dead(epochs: readonly Heartbeat[]): Heartbeat[] {
    const nowMs = this.#clock.monotonicMs();
    // Cut off in between: nobody can be blamed for what this process could not see.
    if (nowMs - this.#lookedMs > this.#deadAfterMs / 2) this.#seen.clear();
    this.#lookedMs = nowMs;
    const dead: Heartbeat[] = [];
    for (const { id, heartbeat } of epochs) {
      const seen = this.#seen.get(id);
      if (seen === undefined || seen.heartbeat !== heartbeat) {
        this.#seen.set(id, { heartbeat, sinceMs: nowMs });
      } else if (nowMs - seen.sinceMs >= this.#deadAfterMs) {
        dead.push({ id, heartbeat });
      }
    }
    const listed = new Set(epochs.map((epoch) => epoch.id));
    for (const id of this.#seen.keys()) if (!listed.has(id)) this.#seen.delete(id);
    return dead;
  }
}

/** Gives holds back, some in each transaction; returns how many there were. */
async function releaseAll(
  store: Store,
  nowMs: number,
  condition: string,
  parameter: string,
): Promise<number> {
  let released = 0;
  for (;;) {
    const batch = await store.transaction((tx) => releaseHolds(tx, nowMs, condition, parameter));
    if (batch === 0) return released;
    released += batch;
  }
}
