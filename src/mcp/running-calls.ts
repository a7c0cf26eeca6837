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
  /** Several calls have one name if a client repeats a request. */
  readonly #running = new Map<string, Set<AbortController>>();
  #notices: Notices | undefined;

  constructor(store: Store) {
    this.#store = store;
  }

  /** Subscribes to cancellations that other processes received. */
  async start(): Promise<void> {
    if (!isShared(this.#store)) return;
    this.#notices = await this.#store.listen((word) => {
      const [what, name = ''] = word.split(' ');
      if (what === CANCELLED) this.#abort(name);
    });
  }

  /** Returns a signal that a cancellation aborts; `undefined` without a session. */
  begin(
    client: string | undefined,
    id: MessageId,
  ): { readonly signal: AbortSignal; readonly end: () => void } | undefined {
    if (client === undefined) return undefined;
    const name = nameOf(client, id);
    const controller = new AbortController();
    const calls = this.#running.get(name) ?? new Set();
    this.#running.set(name, calls.add(controller));
    const end = (): void => {
      calls.delete(controller);
      if (calls.size === 0) this.#running.delete(name);
    };
    return { signal: controller.signal, end };
  }

  /** Cancels the call in this or another process. */
  async cancel(client: string, id: MessageId): Promise<void> {
    const name = nameOf(client, id);
    if (this.#running.has(name)) this.#abort(name);
    else await this.#notices?.notify(`${CANCELLED} ${name}`);
  }

  #abort(name: string): void {
    for (const controller of this.#running.get(name) ?? []) controller.abort();
  }

  close(): void {
    this.#notices?.close();
  }
}

/** A hash, so that no text of a client is sent to other processes. */
function nameOf(client: string, id: MessageId): string {
  return sha256Hex(`${client}\n${typeof id} ${id}`);
}
