/**
 * Recalls leased money: a process that needs what others lease and do not use notifies them, each
 * of them releases the part that no open hold uses and replies, and the process tries again.
 * Notifications can be lost, so every wait has a short time limit.
 */
import type { Clock } from '../../../core/clock.ts';
import type { Notices, SharedStore } from '../../../db/db.ts';
import { holdersOf } from './grants.ts';
import type { Leases } from './leases.ts';

const ANSWERS_MS = 100;
/** Without notifications, a process polls this many times whether leases are gone. */
const LOOKS = 4;
const PAUSE_MS = 50;

const RECALL = 'recall';
const FREED = 'freed';
const CHANGED = 'changed';
/** Sender of a notification that needs no reply. */
const NOBODY = '-';

export interface RecallParts {
  readonly store: SharedStore;
  readonly clock: Clock;
  readonly epochId: () => string;
  readonly notices: () => Notices | undefined;
  readonly leases: Leases;
}

interface Pending {
  readonly left: Set<string>;
  readonly done: Promise<void>;
  readonly end: () => void;
}

export class Recalls {
  readonly #parts: RecallParts;
  readonly #pending = new Map<string, Pending>();

  constructor(parts: RecallParts) {
    this.#parts = parts;
  }

  /** Resolves when the holders have replied, or after the time limit. */
  async wait(accountId: string, holders: readonly string[]): Promise<void> {
    const running = this.#pending.get(accountId);
    if (running !== undefined) return running.done;
    const { clock, notices, epochId } = this.#parts;
    const way = notices();
    if (holders.length === 0 || way?.arrive !== true) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    const cancel = clock.after(ANSWERS_MS, resolve);
    const pending = { left: new Set(holders), done: promise, end: resolve };
    this.#pending.set(accountId, pending);
    // A notification that cannot be sent gets no reply; the time limit ends the wait.
    way.say(`${RECALL} ${epochId()} ${accountId}`).catch(() => undefined);
    await promise;
    cancel();
    clock.after(PAUSE_MS, () => this.#pending.delete(accountId));
  }

  /** Makes all processes release unused leases of the account, for example before a debit. */
  async callBack(accountId: string): Promise<void> {
    const { clock, leases, store, epochId, notices } = this.#parts;
    leases.contest(accountId);
    const own = leases.giveBack(accountId);
    const holders = await holdersOf(store, accountId, epochId());
    // The caller may have locked the account; then nothing is released before the time limit.
    const { promise: moment, resolve } = Promise.withResolvers<void>();
    const cancel = clock.after(ANSWERS_MS, resolve);
    if (notices()?.arrive === true) {
      await Promise.race([moment, Promise.all([own, this.wait(accountId, holders)])]);
    } else {
      await Promise.race([moment, Promise.all([own, this.#look(accountId, holders)])]);
    }
    cancel();
  }

  /** Polls for released leases, in a command that receives no notifications. */
  async #look(accountId: string, holders: readonly string[]): Promise<void> {
    const { store, clock, epochId } = this.#parts;
    if (holders.length === 0) return;
    const { sql, parameters } = store.saying(`${RECALL} ${NOBODY} ${accountId}`);
    await store.query(sql, parameters);
    for (let look = 0; look < LOOKS; look += 1) {
      await clock.sleep(ANSWERS_MS / LOOKS);
      if ((await holdersOf(store, accountId, epochId())).length === 0) return;
    }
  }

  heard(word: string): void {
    const [what, from = NOBODY, accountId = ''] = word.split(' ');
    if (from === this.#parts.epochId()) return;
    if (what === RECALL) void this.#comply(from, accountId);
    if (what === CHANGED) void this.#parts.leases.giveBack(accountId);
    if (what !== FREED) return;
    const pending = this.#pending.get(accountId);
    pending?.left.delete(from);
    if (pending?.left.size === 0) pending.end();
  }

  async #comply(from: string, accountId: string): Promise<void> {
    const { leases, notices, epochId } = this.#parts;
    leases.contest(accountId);
    await leases.giveBack(accountId);
    if (from === NOBODY) return;
    // The recalling process waits only for its time limit.
    await notices()
      ?.say(`${FREED} ${epochId()} ${accountId}`)
      .catch(() => undefined);
  }
}

/** The notification for a transaction that changes what an account or a key may spend. */
export function changedWord(accountId: string): string {
  return `${CHANGED} ${NOBODY} ${accountId}`;
}
