/**
 * The liveness of this process in a ledger that processes share. Leases and holds belong to the
 * epoch of their process. A running process renews its epoch. Any process closes an epoch that is
 * not renewed: it first deletes the epoch's record, so that the epoch can lease nothing more, and
 * then releases its unspent amounts. A process that was only disconnected or paused finds its epoch
 * deleted and starts another one; late settles of the old epoch find no lease. A process also
 * releases its own orphaned rows (their creation was never confirmed, or they are no longer used),
 * and writes journaled settles once the database is reachable again.
 *
 * Renewal is observed, not computed from timestamps: a process considers another one dead after it
 * has seen no change for long enough. So clocks may differ, and a process that was disconnected
 * itself starts observing from zero.
 */
import { type Clock, SECOND_MS } from '../../../core/clock.ts';
import type { Log } from '../../../core/log.ts';
import type { Store } from '../../../db/db.ts';
import { DURABLE_EPOCH, releaseHolds } from '../row-holds.ts';
import type { JournaledSettle, SettleJournal } from './settle-journal.ts';

/** The process of an epoch is dead if the epoch was not renewed for this long. */
export const EPOCH_DEAD_AFTER_MS = 30 * SECOND_MS;
const RENEWALS_PER_LIFE = 6;
/** Share of the dead-after time for which an unknown hold may still belong to a request. */
const ORPHAN_SHARE = 1 / 3;
/** Journals of ended processes are searched once in this many renewals. */
const ADOPT_EVERY = 12;
/** Clock differences above this are logged, because minutes and days start by the clock. */
const CLOCK_OFF_MS = 10 * SECOND_MS;
/** Share of the dead-after time for which a renewed process is certainly considered alive. */
const CERTAIN_SHARE = 1 / 2;

export interface EpochParts {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Log;
  readonly deadAfterMs: number;
  readonly processId: string;
  readonly journal: SettleJournal | undefined;
  readonly settle: (entry: JournaledSettle) => Promise<unknown>;
  readonly isKnown: () => ReadonlySet<string>;
  /** Called when another process has closed the epoch: its leases are gone. */
  readonly wasClosed: () => void;
  readonly round: () => void;
}

export class Epoch {
  readonly #parts: EpochParts;
  readonly #heartbeats: Heartbeats;
  /** Durable holds whose creation was not confirmed, with the time of the failure. */
  readonly #uncertain = new Map<string, number>();
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

  /** Whether this process has an epoch; a command beside the servers has none. */
  get hasBegun(): boolean {
    return this.#hasBegun;
  }

  /** Number of registered processes at the last check, this one included; at least 1. */
  get processes(): number {
    return this.#processes;
  }

  /** Whether no other process can consider this one dead yet. */
  get isCertain(): boolean {
    const { clock, deadAfterMs } = this.#parts;
    return clock.monotonicMs() - this.#renewedMs < deadAfterMs * CERTAIN_SHARE;
  }

  /** Registers a durable hold whose creation is uncertain, to be looked up by its id. */
  addUncertain(requestId: string): void {
    this.#uncertain.set(requestId, this.#parts.clock.monotonicMs());
  }

  async start(): Promise<void> {
    const { clock, journal, deadAfterMs } = this.#parts;
    await journal?.open();
    await this.renew();
    this.#processes = (await this.#others()).length + 1;
    await this.#replayJournal();
    await this.#adoptJournals();
    this.#stopRenewing = clock.every(Math.ceil(deadAfterMs / RENEWALS_PER_LIFE), () => {
      // Starts no second round while one hangs.
      this.#rounding ??= this.#round().finally(() => {
        this.#rounding = undefined;
      });
    });
  }

  /** Ends the epoch; settles that cannot be written stay in the journal for the next process. */
  async stop(): Promise<void> {
    const { journal, log } = this.#parts;
    this.#stopRenewing?.();
    await this.#rounding;
    let isReleased = false;
    try {
      await this.#replayJournal();
      await this.#release(this.#id);
      isReleased = true;
    } catch (error) {
      // The database is unreachable: the next process of this folder closes this epoch and reads the
      // journal, or others close the epoch later.
      log.warn({ reason: String(error), journaled: journal?.size ?? 0 }, 'Epoch not closed');
    }
    await journal?.close(isReleased);
  }

  renew(): Promise<void> {
    this.#renewing ??= this.#renew().finally(() => {
      this.#renewing = undefined;
    });
    return this.#renewing;
  }

  /** Releases the rows of an ended process, after its journaled settles, which use its leases. */
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
      // The next round tries again; the store has logged the database failure.
      this.#parts.log.debug({ reason: String(error) }, 'Epoch not renewed');
    }
  }

  async #renew(): Promise<void> {
    const { store, clock, processId, log, wasClosed } = this.#parts;
    const sinceMs = clock.monotonicMs();
    if (this.#hasBegun) {
      // Always greater than its own last heartbeat, even if the clock was set back.
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
      log.warn(
        { epoch: this.#id },
        'Another process considered this one dead and closed its leases',
      );
      wasClosed();
      this.#begun += 1;
      this.#id = `${processId}:${this.#begun}`;
    }
    const begin = 'INSERT INTO ledger_epoch (id, started_ms, heartbeat_ms) VALUES ($1, $2, $2)';
    await store.query(begin, [this.#id, clock.nowMs()]);
    this.#hasBegun = true;
    this.#renewedMs = sinceMs;
  }

  #compareClocks(aheadMs: number): void {
    const { log } = this.#parts;
    const isOff = Math.abs(aheadMs) > CLOCK_OFF_MS;
    if (isOff === this.#isClockOff) return;
    this.#isClockOff = isOff;
    const fields = { aheadSeconds: Math.round(aheadMs / SECOND_MS) };
    if (isOff)
      log.warn(
        fields,
        'The clocks of this machine and of the database differ: synchronize both by NTP',
      );
    else log.info(fields, 'The clocks of this machine and of the database agree again');
  }

  async #replayJournal(): Promise<void> {
    const { journal, log, settle } = this.#parts;
    if (journal === undefined || journal.size === 0) return;
    const { done, failed } = await journal.replay(settle);
    if (done > 0)
      log.info({ replayed: done }, 'Settles of the journal were written to the database');
    if (failed.length === 0) return;
    log.error({ failed: failed.length, reason: String(failed[0]) }, 'Settles stay in the journal');
  }

  async #adoptJournals(): Promise<void> {
    const { journal, log, settle } = this.#parts;
    const adopted = (await journal?.adopt(settle)) ?? 0;
    if (adopted > 0) log.info({ adopted }, 'Settled the journal of an ended process');
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

  /** Deletes the epoch, which ends its leases; returns `false` if it was renewed meanwhile. */
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

  async #release(id: string): Promise<number> {
    const { store, clock } = this.#parts;
    await store.query('DELETE FROM ledger_epoch WHERE id = $1 AND id <> $2', [id, DURABLE_EPOCH]);
    return releaseAll(store, clock.nowMs(), 'epoch_id = $1', id);
  }

  async #releaseOrphans(): Promise<void> {
    const { store, clock, log, deadAfterMs, isKnown } = this.#parts;
    const nowMs = clock.nowMs();
    const orphanMs = deadAfterMs * ORPHAN_SHARE;
    const placed = await store.query<{ id: string; amount: bigint }>(
      `SELECT request_id AS id, usd_nano + daily_nano AS amount FROM ledger_hold
       WHERE epoch_id = $1 AND created_ms < $2`,
      [this.#id, nowMs - orphanMs],
    );
    const uncertainMs = clock.monotonicMs() - orphanMs;
    const uncertain = [...this.#uncertain].filter(([, sinceMs]) => sinceMs < uncertainMs);
    for (const [id] of uncertain) this.#uncertain.delete(id);
    const known = isKnown();
    const unknown = placed.filter(({ id }) => !known.has(id));
    const orphans = [...unknown.map(({ id }) => id), ...uncertain.map(([id]) => id)];
    if (orphans.length === 0) return;
    const which = 'request_id IN (SELECT json_array_elements_text($1::json))';
    const released = await releaseAll(store, nowMs, which, JSON.stringify(orphans));
    const held = unknown.filter(({ amount }) => amount > 0n).length;
    if (held + uncertain.length === 0) return;
    log.info({ released }, 'Released holds that belong to no request');
  }

  #others(): Promise<readonly Heartbeat[]> {
    return this.#parts.store.query<Heartbeat>(
      `SELECT id, heartbeat_ms AS heartbeat FROM ledger_epoch WHERE id <> $1 AND id <> $2
       ORDER BY id`,
      [this.#id, DURABLE_EPOCH],
    );
  }

  /** Epochs without a record that have holds from before `beforeMs`. */
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

/** Observes the epochs of other processes and reports those that are no longer renewed. */
export class Heartbeats {
  readonly #clock: Clock;
  readonly #deadAfterMs: number;
  readonly #seen = new Map<string, { heartbeat: bigint; sinceMs: number }>();
  #observedMs = -Infinity;

  constructor(clock: Clock, deadAfterMs: number) {
    this.#clock = clock;
    this.#deadAfterMs = deadAfterMs;
  }

  /** Records an observation; returns the epochs that have not changed for the dead-after time. */
  dead(epochs: readonly Heartbeat[]): Heartbeat[] {
    const nowMs = this.#clock.monotonicMs();
    // This process was disconnected in between, so missing renewals prove nothing.
    if (nowMs - this.#observedMs > this.#deadAfterMs / 2) this.#seen.clear();
    this.#observedMs = nowMs;
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
