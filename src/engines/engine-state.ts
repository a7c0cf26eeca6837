/**
 * One configured engine while it lives (its connections, its slots, its bounded queue), what is
 * known of each model on it (breaker, load, failures), and which of several replicas takes a call.
 * An engine is replaced as a whole when its settings change; the calls that run on the old one end
 * there.
 *
 * Lower `order` first; within an order the least loaded by weight, or, with an affinity key, the
 * first in the key's rendezvous order that is not overloaded, so that one conversation meets one
 * prompt cache and a lost replica moves only its own keys.
 */
import type { Clock } from '../core/clock.ts';
import { FairQueue } from '../core/fair-queue.ts';
import { type BreakerSettings, CircuitBreaker, type Ticket } from '../net/circuit-breaker.ts';
import type { Origins } from '../net/origins.ts';
import type { TimeLimits } from '../net/exchange.ts';
import { UpstreamPool } from '../net/upstream-pool.ts';
import {
  CALLER_HEADER,
  type EngineSettings,
  type EngineStatus,
  type Replica,
  type ReplicaStatus,
} from './contract.ts';
import type { Verdict } from './verdict.ts';

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

  constructor(settings: EngineSettings, clock: Clock, origins: Origins) {
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
      proxy: settings.proxy,
      tls: settings.tls,
      maxConnections,
      connectMs: this.limits.connectMs,
      clock,
      origins,
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
    return {
      id: this.settings.id,
      inFlight: this.inFlight,
      queued: this.#waiters.size,
      connections: this.pool.connected,
      busy: this.pool.running.size,
      keepsAlive: this.pool.keepsAlive,
      replicas: [...this.#replicas.values()].map((replica) => replica.status(this.settings.id)),
    };
  }
}

function headersOf({ apiKey = '', headers = {} }: EngineSettings): readonly string[] {
  const authorization = apiKey === '' ? [] : ['authorization', `Bearer ${apiKey}`];
  return [...authorization, ...Object.entries(headers).flat()];
}

/** Half of at least five calls within 10 s: one odd request retried thrice does not open it. */
const WINDOW_MS = 10_000;
const BREAKER: BreakerSettings = {
  openMs: 1_000,
  maxOpenMs: 30_000,
  window: { sizeMs: WINDOW_MS, minFailures: 5, failureShare: 0.5 },
};
/** Callers whose failures make an opening hold for all; fewer may have caused it themselves. */
const MIN_CALLERS = 3;
/** Longest time for which a breaker is open; a certain failure outlasts it. */
const WITNESS_MS = BREAKER.maxOpenMs + WINDOW_MS;
/** A replica that says 429 without `Retry-After` is left alone for this long. */
const REST_MS = 1_000;
/** A `Retry-After` of an hour must not take a replica away for an hour. */
const MAX_REST_MS = 30_000;

/** What the last answer counts in the moving average of latencies. */
const SHARE_OF_LAST = 0.2;

/** What is known about one model on one engine. */
export class ReplicaState {
  readonly #model: string;
  readonly #clock: Clock;
  readonly #breaker: CircuitBreaker;
  #inFlight = 0;
  #calls = 0;
  #failures = 0;
  /** A moving average; below zero before the first answer. */
  #firstByteMs = -1;
  #restUntilMs = 0;
  #isAlive = true;
  /** Whose calls failed last, at most as many as are needed. */
  #witnesses: { readonly caller: string; atMs: number }[] = [];
  /** An opening holds for everybody until then: a failure that no request can cause. */
  #certainUntilMs = 0;

  constructor(model: string, clock: Clock) {
    this.#model = model;
    this.#clock = clock;
    this.#breaker = new CircuitBreaker(clock, BREAKER);
  }

  /** Whether the breaker lets a caller through and the replica did not ask for a rest. */
  isReadyFor(caller: string): boolean {
    if (this.#restUntilMs > 0 && this.#isResting()) return false;
    return this.#breaker.canAdmit || this.#isOthersFault(caller);
  }

  /**
   * Whether a call may go here when no replica is ready: it rests, or its breaker opened on
   * answers. A caller whose requests make an engine fail must not take the model from everyone.
   */
  isLastResortFor(caller: string): boolean {
    return this.#breaker.canAdmit || this.#isAlive || this.#isOthersFault(caller);
  }

  /** Whether the breaker opened on failures that only a few others saw. */
  #isOthersFault(caller: string): boolean {
    return (
      this.#witnesses.length > 0 &&
      this.#witnesses.length < MIN_CALLERS &&
      this.#certainUntilMs <= this.#clock.monotonicMs() &&
      !this.#witnesses.some((witness) => witness.caller === caller)
    );
  }

  #isResting(): boolean {
    return this.#clock.monotonicMs() < this.#restUntilMs;
  }

  /** Milliseconds until the breaker lets a probe through. */
  get readyInMs(): number {
    return this.#breaker.opensInMs;
  }

  /** Takes a call in; give the ticket back by `succeed`, `fail` or `cancel`. */
  begin(): Ticket {
    this.#inFlight += 1;
    this.#calls += 1;
    return this.#breaker.admit();
  }

  /** `firstByteMs`: how long the answer took to begin. */
  succeed(ticket: Ticket, firstByteMs: number): void {
    const before = this.#firstByteMs < 0 ? firstByteMs : this.#firstByteMs;
    this.#firstByteMs = before + (firstByteMs - before) * SHARE_OF_LAST;
    this.#inFlight -= 1;
    this.#isAlive = true;
    this.#restUntilMs = 0;
    this.#breaker.settle(ticket, 'success');
  }

  fail(ticket: Ticket, caller: string, verdict: Verdict, retryAfterMs: number | null): void {
    this.#inFlight -= 1;
    const nowMs = this.#clock.monotonicMs();
    const isOverloaded = verdict.reason === 'overloaded';
    if (verdict.breaker === 'failure') {
      this.#isAlive = verdict.isAlive;
      this.#witness(caller, nowMs, verdict.isCertain);
    }
    if (isOverloaded) this.#restUntilMs = nowMs + Math.min(retryAfterMs ?? REST_MS, MAX_REST_MS);
    if (isOverloaded || verdict.breaker === 'failure') this.#failures += 1;
    this.#breaker.settle(ticket, verdict.breaker);
  }

  /** Gives a ticket back without a result: the connection was stale, nothing was tried. */
  cancel(ticket: Ticket): void {
    this.#inFlight -= 1;
    this.#calls -= 1;
    this.#breaker.settle(ticket, 'unknown');
  }

  status(engine: string): ReplicaStatus {
    const breaker = this.#breaker.state;
    return {
      engine,
      model: this.#model,
      isHealthy: breaker === 'closed' && !this.#isResting(),
      breaker,
      inFlight: this.#inFlight,
      calls: this.#calls,
      failures: this.#failures,
      firstByteMs: this.#firstByteMs < 0 ? null : this.#firstByteMs,
    };
  }

  #witness(caller: string, nowMs: number, isCertain: boolean): void {
    // A call of our own is nobody's input.
    if (isCertain || caller === '') this.#certainUntilMs = nowMs + WITNESS_MS;
    // While the breaker is open its witnesses speak for it.
    if (this.#breaker.state === 'closed')
      this.#witnesses = this.#witnesses.filter(({ atMs }) => nowMs - atMs < WINDOW_MS);
    const known = this.#witnesses.find((witness) => witness.caller === caller);
    if (known !== undefined) known.atMs = nowMs;
    else if (this.#witnesses.length < MIN_CALLERS) this.#witnesses.push({ caller, atMs: nowMs });
  }
}

/** A replica of a list that is called, and where it runs. */
export class Target {
  readonly replica: Replica;
  readonly engine: EngineState;
  readonly state: ReplicaState;
  readonly weight: number;
  readonly order: number;
  /** Of engine and model, for rendezvous hashing. */
  readonly hash: number;
  /** Number of the choice that took it last: among equals the longest unused one wins. */
  lastChoice = 0;

  constructor(replica: Replica, engine: EngineState) {
    this.replica = replica;
    this.engine = engine;
    this.state = engine.replica(replica.model);
    this.weight = replica.weight ?? 1;
    this.order = replica.order ?? 0;
    this.hash = hashText(`${replica.engine}\n${replica.model}`);
  }

  /** With one more call: so a heavier replica is ahead of a lighter one when both are idle. */
  get load(): number {
    return (this.engine.inFlight + 1) / this.weight;
  }

  isBetterThan(other: Target): boolean {
    if (this.order !== other.order) return this.order < other.order;
    const difference = this.load - other.load;
    return difference === 0 ? this.lastChoice < other.lastChoice : difference < 0;
  }
}

/** How many calls per unit of weight a keyed replica may be ahead of the least loaded one. */
const AFFINITY_SLACK = 8;

/** Who asks, for which cache, and what it has tried. */
export interface Chooser {
  readonly caller: string;
  /** Null without affinity. */
  readonly keyHash: number | null;
  /** Targets that are left out. */
  readonly tried: ReadonlySet<Target> | null;
}

/** The engines in force, and the routes of the replica lists that were asked for. */
export class Router {
  readonly #engines: ReadonlyMap<string, EngineState>;
  readonly #routes = new WeakMap<readonly Replica[], readonly Target[]>();
  #choices = 0;

  constructor(engines: ReadonlyMap<string, EngineState>) {
    this.#engines = engines;
  }

  /** The replicas of engines that are there, in their order. */
  targetsOf(replicas: readonly Replica[]): readonly Target[] {
    let targets = this.#routes.get(replicas);
    if (targets === undefined) {
      targets = replicas.flatMap((replica) => {
        const engine = this.#engines.get(replica.engine);
        return engine === undefined ? [] : new Target(replica, engine);
      });
      this.#routes.set(replicas, targets);
    }
    return targets;
  }

  /** A target, or the engine to wait for when all that could take the call are full, or nothing. */
  choose(targets: readonly Target[], chooser: Chooser): Target | EngineState | null {
    const chosen = pick(targets, chooser, false) ?? pick(targets, chooser, true);
    if (chosen instanceof Target) {
      this.#choices += 1;
      chosen.lastChoice = this.#choices;
    }
    return chosen;
  }
}

function pick(
  targets: readonly Target[],
  { caller, keyHash, tried }: Chooser,
  isLastResort: boolean,
): Target | EngineState | null {
  let open: Target[] | undefined;
  let best: Target | null = null;
  let full: EngineState | null = null;
  for (const target of targets) {
    const { engine, state } = target;
    if (tried?.has(target) === true) continue;
    if (!(isLastResort ? state.isLastResortFor(caller) : state.isReadyFor(caller))) continue;
    if (engine.hasRoom) {
      if (keyHash !== null) (open ??= []).push(target);
      if (best === null || target.isBetterThan(best)) best = target;
    } else if (full === null || engine.queueRoom > full.queueRoom) full = engine;
  }
  if (best === null || keyHash === null) return best ?? full;
  // The first in the key's order among those of the same order as the least loaded.
  const { order, load } = best;
  let bestScore = -1;
  for (const target of open ?? []) {
    if (target.order !== order || target.load > load + AFFINITY_SLACK) continue;
    const score = rendezvousScore(keyHash, target);
    if (score <= bestScore) continue;
    best = target;
    bestScore = score;
  }
  return best;
}

/** Weighted rendezvous hashing: -weight / ln(u), u uniform in (0, 1) from key and replica. */
function rendezvousScore(keyHash: number, target: Target): number {
  const uniform = (mix(keyHash ^ target.hash) + 0.5) / 4_294_967_296;
  return -target.weight / Math.log(uniform);
}

/** FNV-1a over UTF-16 units, finished by `mix`. Spreads keys; keeps nothing secret. */
export function hashText(text: string): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < text.length; index += 1) {
    hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193);
  }
  return mix(hash);
}

/** The 32-bit finalizer of MurmurHash3: every input bit moves every output bit. */
function mix(value: number): number {
  let hash = value;
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}
