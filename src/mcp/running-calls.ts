/**
 * Running calls, which `notifications/cancelled` of a legacy client can cancel. A client is identified
 * by its session id, which has no other state; request ids are unique per client. Processes that share
 * a database notify each other of cancellations.
 */
import { type Notices, type Store, isShared } from '../db/db.ts';
import { sha256Hex } from '../core/ids.ts';
import type { MessageId } from './protocol.ts';

const CANCELLED = 'mcp-cancelled';

export class RunningCalls {
  readonly #store: Store;
  readonly #running = new Map<string, AbortController>();
  #notices: Notices | undefined;

  constructor(store: Store) {
    this.#store = store;
  }

  /** Subscribes to cancellations that other processes received. */
  async start(): Promise<void> {
    if (!isShared(this.#store)) return;
    this.#notices = await this.#store.listen((word) => {
      const [what, name = ''] = word.split(' ');
      if (what === CANCELLED) this.#running.get(name)?.abort();
    });
  }

  /** Returns a signal that a cancellation aborts; `undefined` without a session. */
  begin(
    client: string | undefined,
    id: MessageId,
  ): { name: string; signal: AbortSignal } | undefined {
    if (client === undefined) return undefined;
    const name = nameOf(client, id);
    const controller = new AbortController();
    this.#running.set(name, controller);
    return { name, signal: controller.signal };
  }

  end(name: string): void {
    this.#running.delete(name);
  }

  /** Cancels the call in this or another process. */
  async cancel(client: string, id: MessageId): Promise<void> {
    const name = nameOf(client, id);
    const here = this.#running.get(name);
    if (here !== undefined) here.abort();
    else await this.#notices?.notify(`${CANCELLED} ${name}`);
  }

  close(): void {
    this.#notices?.close();
  }
}

/** A hash, so that no text of a client is sent to other processes. */
function nameOf(client: string, id: MessageId): string {
  return sha256Hex(`${client}\n${typeof id} ${id}`);
}
