/**
 * The calls that run, so that `notifications/cancelled` of a legacy client finds the one that it means.
 * A client is known by its session id, which says who asks and keeps nothing; ids of requests are its
 * own. Processes that share a database tell each other of a cancellation whose call is not theirs.
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

  /** Begins to hear of cancellations that other processes were told of. */
  async start(): Promise<void> {
    if (!isShared(this.#store)) return;
    this.#notices = await this.#store.listen((word) => {
      const [what, name = ''] = word.split(' ');
      if (what === CANCELLED) this.#running.get(name)?.abort();
    });
  }

  /** A signal that a cancellation of this request aborts; `undefined` without a session. */
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

  /** Ends the call, wherever it runs; one that is not there has ended. */
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

/** Nothing that a client sends leaves the process as it is. */
function nameOf(client: string, id: MessageId): string {
  return sha256Hex(`${client}\n${typeof id} ${id}`);
}
