/**
 * Recalls leased parts of shared counters: a process that needs what others lease and do not use
 * notifies them; they return it and reply. Notifications can be lost, so every wait has a time
 * limit.
 */
import type { Clock } from '../../core/clock.ts';
import type { Notices, SharedStore, Statement } from '../contract.ts';

export const RECALL_MS = 100;
/** After a recall of known holders, the next one of the same counter waits this long. */
const PAUSE_MS = 50;

const RECALL = 'recall';
const RETURNED = 'freed';
/** Sender of a notification that needs no reply. */
const NO_REPLY = '-';

export interface RecallsParts {
  readonly store: SharedStore;
  readonly clock: Clock;
  /** The name of this process in leases. */
  readonly holder: () => string;
  /** Distinguishes the notifications of one kind of counter from those of the others. */
  readonly prefix: string;
  /** Returns what this process does not use; resolves to whether it replies. */
  readonly comply: (counter: string) => Promise<boolean>;
  /** Another process has returned its part. */
  readonly returned: (counter: string) => void;
  /** Receives the other notifications with this prefix. */
  readonly received: (kind: string, text: string) => void;
}

interface Pending {
  /** Holders that have not replied; `undefined` ends with the first reply of any process. */
  readonly left: Set<string> | undefined;
  readonly done: Promise<void>;
  readonly end: () => void;
}

export class Recalls {
  readonly #parts: RecallsParts;
  readonly #pending = new Map<string, Pending>();
  #notices: Notices | undefined;

  constructor(parts: RecallsParts) {
    this.#parts = parts;
  }

  /** Whether notifications are delivered now. */
  get areDelivered(): boolean {
    return this.#notices?.areDelivered === true;
  }

  async listen(): Promise<void> {
    this.#notices = await this.#parts.store.listen((message) => this.#receive(message));
  }

  close(): void {
    this.#notices?.close();
    this.#notices = undefined;
  }

  /** Resolves when the holders have replied (if they are unknown: one process), or at the limit. */
  async recall(counter: string, holders?: readonly string[]): Promise<void> {
    const running = this.#pending.get(counter);
    if (running !== undefined) return running.done;
    if (holders?.length === 0 || !this.areDelivered) return;
    const { clock } = this.#parts;
    const { promise: done, resolve: end } = Promise.withResolvers<void>();
    const cancel = clock.after(RECALL_MS, end);
    this.#pending.set(counter, { left: holders && new Set(holders), done, end });
    this.notify(RECALL, counter);
    await done;
    cancel();
    if (holders === undefined) this.#pending.delete(counter);
    else clock.after(PAUSE_MS, () => this.#pending.delete(counter));
  }

  /** Notifies the other processes; losing a notification costs time only. */
  notify(kind: string, text: string): void {
    const { prefix, holder } = this.#parts;
    this.#notices?.notify(`${prefix}${kind} ${holder()} ${text}`).catch(() => undefined);
  }

  /** Returns a notification for the transaction of `statement`, which needs no reply. */
  statement(kind: string, counter: string): Statement {
    const { store, prefix } = this.#parts;
    return store.notification(`${prefix}${kind} ${NO_REPLY} ${counter}`);
  }

  /** Recalls without waiting, for a process that receives no notifications. */
  async recallBlindly(counter: string): Promise<void> {
    const { sql, parameters } = this.statement(RECALL, counter);
    await this.#parts.store.query(sql, parameters);
  }

  #receive(message: string): void {
    const { prefix, holder, returned, received } = this.#parts;
    const [name = '', from = NO_REPLY, ...words] = message.split(' ');
    if (!name.startsWith(prefix) || from === holder()) return;
    const kind = name.slice(prefix.length);
    const text = words.join(' ');
    if (kind === RECALL) void this.#comply(text, from);
    else if (kind !== RETURNED) received(kind, text);
    else {
      returned(text);
      const pending = this.#pending.get(text);
      pending?.left?.delete(from);
      if (pending?.left === undefined || pending.left.size === 0) pending?.end();
    }
  }

  async #comply(counter: string, from: string): Promise<void> {
    const mustReply = await this.#parts.comply(counter);
    if (mustReply && from !== NO_REPLY) this.notify(RETURNED, counter);
  }
}
