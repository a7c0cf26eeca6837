/**
 * One configured engine while it lives: its connections, its slots, its bounded queue. An engine is
 * replaced as a whole when its settings change; the calls that run on the old one end there.
 */
import type { Clock } from '../core/clock.ts';
import { FairQueue } from '../core/fair-queue.ts';
import { type TimeLimits, UpstreamPool } from '../net/upstream-pool.ts';
import { CALLER_HEADER, type EngineSettings, type EngineStatus } from './contract.ts';
import { ReplicaState } from './replica-state.ts';

/** Long prompts on slow machines take minutes to the first token; SDKs give up after 10 min. */
const DEFAULT_TIME_LIMITS: TimeLimits = {
  connectMs: 5_000,
  firstByteMs: 300_000,
  idleMs: 120_000,
  totalMs: 1_800_000,
};
const DEFAULT_MAX_CONNECTIONS = 512;
const DEFAULT_MAX_QUEUED = 1_024;

/** A call that waits for a slot. */
export interface Waiter {
  readonly caller: string;
  /** Its place goes to a caller that waits for less. */
  crowdOut(): void;
  /** A slot may be free: take one, or leave it to the next waiter. */
  wake(): void;
}

export class EngineState {
  readonly settings: EngineSettings;
  readonly pool: UpstreamPool;
  readonly limits: TimeLimits;
  /** Flat request headers that every call carries, and the same for a body of JSON. */
  readonly headers: readonly string[];
  readonly jsonHeaders: readonly string[];
  /** Each call says whose it is. */
  readonly takesTurns: boolean;
  readonly #clock: Clock;
  readonly #concurrency: number;
  readonly #maxQueued: number;
  readonly #replicas = new Map<string, ReplicaState>();
  readonly #waiters = new FairQueue<Waiter>();
  /** Slots that are taken; `freeSlot` gives one back. */
  inFlight = 0;

  constructor(settings: EngineSettings, clock: Clock) {
    const maxConnections = settings.maxConnections ?? DEFAULT_MAX_CONNECTIONS;
    this.settings = settings;
    this.limits = { ...DEFAULT_TIME_LIMITS, ...settings.timeLimits };
    this.headers = headersOf(settings);
    this.jsonHeaders = [...this.headers, 'content-type', 'application/json'];
    this.takesTurns = settings.takesTurns === true;
    this.#clock = clock;
    this.#concurrency = Math.min(settings.concurrency ?? maxConnections, maxConnections);
    this.#maxQueued = settings.maxQueued ?? DEFAULT_MAX_QUEUED;
    this.pool = new UpstreamPool({
      url: settings.url,
      maxConnections,
      connectMs: this.limits.connectMs,
      clock,
    });
  }

  /** What the headers of a call of this caller begin with. */
  headersFor(caller: string): readonly string[] {
    return this.takesTurns ? [...this.headers, CALLER_HEADER, caller] : this.headers;
  }

  get hasRoom(): boolean {
    return this.inFlight < this.#concurrency;
  }

  /** Nobody waits, and a slot stays free for who comes next; of an engine that idles it may be the last. */
  get hasSpareRoom(): boolean {
    if (this.#waiters.size > 0) return false;
    return this.inFlight === 0 || this.inFlight + 1 < this.#concurrency;
  }

  get queueRoom(): number {
    return this.#maxQueued - this.#waiters.size;
  }

  replica(model: string): ReplicaState {
    let state = this.#replicas.get(model);
    if (state === undefined) {
      state = new ReplicaState(model, this.#clock);
      this.#replicas.set(model, state);
    }
    return state;
  }

  /** Frees a slot and offers it to those who wait, in turns over the callers. */
  freeSlot(): void {
    this.inFlight -= 1;
    // At most one round: a waiter that queues again stands behind those that came later.
    for (let left = this.#waiters.size; left > 0 && this.hasRoom; left -= 1) {
      this.#waiters.next()?.wake();
    }
  }

  /** False when the queue is full and nobody in it waits for more calls than this caller. */
  enqueue(waiter: Waiter): boolean {
    if (this.queueRoom <= 0) {
      const last = this.#waiters.takeLastOfLongest(waiter.caller);
      if (last === undefined) return false;
      last.crowdOut();
    }
    this.#waiters.add(waiter.caller, waiter);
    return true;
  }

  dequeue(waiter: Waiter): void {
    this.#waiters.remove(waiter.caller, waiter);
  }

  /** Sends those who wait away to choose again; running calls go on to their end. */
  async retire(): Promise<void> {
    const waiters: Waiter[] = [];
    for (let next = this.#waiters.next(); next !== undefined; next = this.#waiters.next())
      waiters.push(next);
    for (const waiter of waiters) waiter.wake();
    await this.pool.close();
  }

  status(): EngineStatus {
    const { connected, running, queued } = this.pool.stats;
    return {
      id: this.settings.id,
      inFlight: this.inFlight,
      queued: this.#waiters.size,
      connections: connected,
      busy: running + queued,
      replicas: [...this.#replicas.values()].map((replica) => replica.status(this.settings.id)),
    };
  }
}

function headersOf({ apiKey = '', headers = {} }: EngineSettings): readonly string[] {
  const authorization = apiKey === '' ? [] : ['authorization', `Bearer ${apiKey}`];
  return [...authorization, ...Object.entries(headers).flat()];
}
