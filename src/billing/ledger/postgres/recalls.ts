/**
 * Calls leased money back: who needs what others have leased and do not use says so, each of them
 * gives back what no open hold has of it and answers, and the asker looks again. Words between
 * processes can be lost, so nothing waits for them longer than a moment.
 */
import type { Clock } from '../../../core/clock.ts';
import type { Notices, SharedStore } from '../../../db/db.ts';
import { holdersOf } from './grants.ts';
import type { Leases } from './leases.ts';

/** How long the answers of the others may take. */
const ANSWERS_MS = 100;
/** Without notifications of its own a process looks whether leases are gone so often. */
const LOOKS = 4;
/** An account is called back no sooner than this after the last time. */
const PAUSE_MS = 50;

const RECALL = 'recall';
const FREED = 'freed';
const CHANGED = 'changed';
/** Of a word that nobody waits for an answer to. */
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

  /** Resolves when the holders have answered, or a moment later. */
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
    // What cannot be said is not answered, and the moment passes.
    way.say(`${RECALL} ${epochId()} ${accountId}`).catch(() => undefined);
    await promise;
    cancel();
    clock.after(PAUSE_MS, () => this.#pending.delete(accountId));
  }

  /** Has everybody give back what they do not use of the account, also before it is debited. */
  async callBack(accountId: string): Promise<void> {
    const { clock, leases, store, epochId, notices } = this.#parts;
    leases.contest(accountId);
    const own = leases.giveBack(accountId);
    const holders = await holdersOf(store, accountId, epochId());
    // The caller may have the account locked, then nothing comes back before the moment is over.
    const { promise: moment, resolve } = Promise.withResolvers<void>();
    const cancel = clock.after(ANSWERS_MS, resolve);
    if (notices()?.arrive === true) {
      await Promise.race([moment, Promise.all([own, this.wait(accountId, holders)])]);
    } else {
      await Promise.race([moment, Promise.all([own, this.#look(accountId, holders)])]);
    }
    cancel();
  }

  /** A command beside the servers hears nothing: it looks. */
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
    // Who asks waits a moment and no longer.
    await notices()
      ?.say(`${FREED} ${epochId()} ${accountId}`)
      .catch(() => undefined);
  }
}

/** Said in a transaction that changes what an account or a key may spend. */
export function changedWord(accountId: string): string {
  return `${CHANGED} ${NOBODY} ${accountId}`;
}
