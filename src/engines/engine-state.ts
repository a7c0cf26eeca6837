/**
 * One configured engine (its connections, slots and bounded queue), the state of each model on it
 * (breaker, load, failures), and the choice between several replicas. If the settings of an engine
 * change, a new object replaces it; running calls end on the old one.
 *
 * Lower `order` first. Within an order, the least loaded replica by weight; with an affinity key,
 * the first replica in the key's rendezvous order that is not overloaded. So one conversation stays
 * with one prompt cache, and the loss of a replica moves only its own keys.
 */
import type { Clock } from '../core/clock.ts';
import { FairQueue } from '../core/fair-queue.ts';
import { withoutSecrets } from '../core/known-secrets.ts';
import { type BreakerSettings, CircuitBreaker, type Ticket } from '../net/circuit-breaker.ts';
import type { Origins } from '../net/origins.ts';
import type { TimeLimits } from '../net/exchange.ts';
import { UpstreamPool } from '../net/upstream-pool.ts';
import {
  CALLER_HEADER,
  CHAT_PATHS,
  type EngineSettings,
  type EngineStatus,
  type Replica,
  type ReplicaStatus,
} from './contract.ts';
import type { Verdict } from './verdict.ts';

/** Long prompts on slow machines take minutes to the first token; SDKs give up after 10 minutes. */
const DEFAULT_TIME_LIMITS: TimeLimits = {
  connectMs: 5_000,
  firstByteMs: 300_000,
  idleMs: 120_000,
  totalMs: 1_800_000,
};
const DEFAULT_MAX_CONNECTIONS = 512;
const DEFAULT_MAX_QUEUED = 1_024;

export interface Waiter {
  readonly caller: string;
  /** Removed from the queue in favour of a caller with fewer waiting calls. */
  evict(): void;
  /** A slot may be free: take it, or leave it to the next waiter. */
  wake(): void;
}

export class EngineState {
  readonly settings: EngineSettings;
  readonly pool: UpstreamPool;
  readonly limits: TimeLimits;
  readonly chatPath: string;
  /** Request headers of every call as a flat list, without and with a JSON content type. */
  readonly headers: readonly string[];
  readonly jsonHeaders: readonly string[];
  /** Each call carries `CALLER_HEADER`. */
  readonly takesTurns: boolean;
  readonly #clock: Clock;
  readonly #concurrency: number;
  readonly #maxQueued: number;
  readonly #replicas = new Map<string, ReplicaState>();
  readonly #waiters = new FairQueue<Waiter>();
  /** Number of slots in use; `freeSlot` releases one. */
  inFlight = 0;

  constructor(settings: EngineSettings, clock: Clock, origins: Origins) {
    const maxConnections = settings.maxConnections ?? DEFAULT_MAX_CONNECTIONS;
    this.settings = settings;
    this.limits = { ...DEFAULT_TIME_LIMITS, ...settings.timeLimits };
    this.chatPath = settings.protocol === 'rembg' ? '' : CHAT_PATHS[settings.protocol];
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

  /** Removes the credentials of the engine from its message, which can repeat request headers. */
  withoutSecrets(message: string): string {
    const { apiKey = '', headers = {} } = this.settings;
    return withoutSecrets(message, [apiKey, ...Object.values(headers)]);
  }

  /** Base headers of a call of this caller. */
  headersFor(caller: string): readonly string[] {
    return this.takesTurns ? [...this.headers, CALLER_HEADER, caller] : this.headers;
  }

  get hasCapacity(): boolean {
    return this.inFlight < this.#concurrency;
  }

  /**
   * Whether a batch request may start: no call waits, and one slot stays free after it. An engine
   * without running calls accepts one even if it has only one slot.
   */
  get hasSpareCapacity(): boolean {
    if (this.#waiters.size > 0) return false;
    return this.inFlight === 0 || this.inFlight + 1 < this.#concurrency;
  }

  get queueCapacity(): number {
    return this.#maxQueued - this.#waiters.size;
  }

  replica(model: string): ReplicaState {
    let state = this.#replicas.get(model);
    if (state === undefined) {
      state = new ReplicaState(model, this.#clock, this.limits.connectMs);
      this.#replicas.set(model, state);
    }
    return state;
  }

  /** Releases a slot and offers it to waiting calls, in turns over the callers. */
  freeSlot(): void {
    this.inFlight -= 1;
    // At most one round: a waiter that queues again is placed behind later ones.
    for (let left = this.#waiters.size; left > 0 && this.hasCapacity; left -= 1) {
      this.#waiters.next()?.wake();
    }
  }

  /** Returns `false` if the queue is full and no other caller has more waiting calls. */
  enqueue(waiter: Waiter): boolean {
    if (this.queueCapacity <= 0) {
      const last = this.#waiters.takeLastOfLongest(waiter.caller);
      if (last === undefined) return false;
      last.evict();
    }
    this.#waiters.add(waiter.caller, waiter);
    return true;
  }

  dequeue(waiter: Waiter): void {
    this.#waiters.remove(waiter.caller, waiter);
  }

  /** Makes waiting calls choose again; running calls continue. */
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

const ANTHROPIC_VERSION = '2023-06-01';
/** Anthropic reads a bearer token as one of OAuth. */
const ONLY_API_KEY = /(?:^|\.)anthropic\.com$/;

function headersOf({
  protocol,
  url,
  apiKey = '',
  headers = {},
}: EngineSettings): readonly string[] {
  const own = Object.entries(headers).flat();
  const bearer = apiKey === '' ? [] : ['authorization', `Bearer ${apiKey}`];
  if (protocol !== 'anthropic') return [...bearer, ...own];
  const isNamed = Object.keys(headers).some((name) => name.toLowerCase() === 'anthropic-version');
  return [
    ...(ONLY_API_KEY.test(URL.parse(url)?.hostname ?? '') ? [] : bearer),
    ...(apiKey === '' ? [] : ['x-api-key', apiKey]),
    ...(isNamed ? [] : ['anthropic-version', ANTHROPIC_VERSION]),
    ...own,
  ];
}

/**
 * The breaker opens if half of at least five calls within 10 s fail, so that one bad request with
 * three retries does not open it.
 */
const WINDOW_MS = 10_000;
const BREAKER: BreakerSettings = {
  openMs: 1_000,
  maxOpenMs: 30_000,
  window: { sizeMs: WINDOW_MS, minFailures: 5, failureShare: 0.5 },
};
/**
 * Number of distinct callers with failures from which an open breaker applies to all callers; fewer
 * may have caused the failures themselves.
 */
const MIN_CALLERS = 3;
/** Longest time for which a breaker is open; a failure with a certain cause outlasts it. */
const CERTAIN_MS = BREAKER.maxOpenMs + WINDOW_MS;
/** Pause of a replica that returns 429 without `Retry-After`. */
const PAUSE_MS = 1_000;
/** Upper bound of that pause, whatever `Retry-After` says. */
const MAX_PAUSE_MS = 30_000;

/**
 * A replica without calls for this time after a failure counts as ready again: a load balancer
 * that sends no requests to an unready server would otherwise keep it so.
 */
const FAILING_MS = 30_000;

/** Weight of the latest response in the moving average of latencies. */
const SHARE_OF_LAST = 0.2;

export class ReplicaState {
  readonly #model: string;
  readonly #clock: Clock;
  readonly #connectMs: number;
  readonly #breaker: CircuitBreaker;
  #inFlight = 0;
  #calls = 0;
  #failures = 0;
  /** Moving average in milliseconds; negative before the first response. */
  #firstByteMs = -1;
  #pausedUntilMs = 0;
  #isAlive = true;
  #failedAtMs = -Infinity;
  /** The latest call failed, and no request can have caused it. */
  #isDown = false;
  /** A call has succeeded since the breaker opened, although other calls failed. */
  #hasRecovered = false;
  /** Callers of the latest failures, at most as many as `MIN_CALLERS`. */
  #failedCallers: { readonly caller: string; atMs: number }[] = [];
  /** Until then an open breaker applies to all callers: no request caused the failure. */
  #certainUntilMs = 0;

  constructor(model: string, clock: Clock, connectMs: number) {
    this.#model = model;
    this.#clock = clock;
    this.#connectMs = connectMs;
    this.#breaker = new CircuitBreaker(clock, BREAKER);
  }

  /** Whether the breaker admits the caller and the replica is not paused. */
  isReadyFor(caller: string): boolean {
    if (this.#pausedUntilMs > 0 && this.#isPaused()) return false;
    return this.#breaker.canAdmit || this.#isFaultOfOthers(caller);
  }

  /**
   * Whether the replica may be used if no replica is ready: it is paused, or its breaker opened
   * although it responds. So one caller whose requests make an engine fail cannot block the model
   * for others.
   */
  isLastResortFor(caller: string): boolean {
    if (this.#breaker.canAdmit || this.#isAlive || this.#isFaultOfOthers(caller)) return true;
    // Only connections have failed, and that of the probe has not: its call may take minutes.
    return this.#isDown && this.#breaker.probesForMs > this.#connectMs;
  }

  /**
   * Whether calls can be expected to succeed. An open or half-open breaker counts as a failure,
   * unless the engine serves other callers than those whose requests have opened it.
   */
  get isWorking(): boolean {
    const isOpen = this.#breaker.state !== 'closed' && !this.#hasRecovered;
    if (!isOpen && !this.#isDown) return true;
    return this.#clock.monotonicMs() - this.#failedAtMs > FAILING_MS;
  }

  /** Whether the breaker opened on failures of a few other callers only. */
  #isFaultOfOthers(caller: string): boolean {
    return (
      this.#failedCallers.length > 0 &&
      this.#failedCallers.length < MIN_CALLERS &&
      this.#certainUntilMs <= this.#clock.monotonicMs() &&
      !this.#failedCallers.some((failed) => failed.caller === caller)
    );
  }

  #isPaused(): boolean {
    return this.#clock.monotonicMs() < this.#pausedUntilMs;
  }

  /** Milliseconds until the breaker lets a probe through. */
  get readyInMs(): number {
    return this.#breaker.opensInMs;
  }

  /** Starts a call; return the ticket with `succeed`, `fail` or `cancel`. */
  begin(): Ticket {
    this.#inFlight += 1;
    this.#calls += 1;
    return this.#breaker.admit();
  }

  /** The first byte of a success has arrived; its end may be minutes away. */
  responded(): void {
    this.#isAlive = true;
  }

  succeed(ticket: Ticket, firstByteMs: number): void {
    const before = this.#firstByteMs < 0 ? firstByteMs : this.#firstByteMs;
    this.#firstByteMs = before + (firstByteMs - before) * SHARE_OF_LAST;
    this.#inFlight -= 1;
    this.#hasRecovered = true;
    this.#isDown = false;
    this.#pausedUntilMs = 0;
    this.#breaker.settle(ticket, 'success');
  }

  fail(ticket: Ticket, caller: string, verdict: Verdict, retryAfterMs: number | null): void {
    this.#inFlight -= 1;
    const nowMs = this.#clock.monotonicMs();
    const isOverloaded = verdict.reason === 'overloaded';
    if (verdict.breaker === 'failure') {
      this.#isAlive = verdict.isAlive;
      this.#isDown = verdict.isCertain;
      this.#failedAtMs = nowMs;
      this.#recordFailure(caller, nowMs, verdict.isCertain);
    }
    if (isOverloaded)
      this.#pausedUntilMs = nowMs + Math.min(retryAfterMs ?? PAUSE_MS, MAX_PAUSE_MS);
    if (isOverloaded || verdict.breaker === 'failure') this.#failures += 1;
    const wasClosed = this.#breaker.state === 'closed';
    this.#breaker.settle(ticket, verdict.breaker);
    if (wasClosed) this.#hasRecovered = this.#breaker.state === 'closed';
  }

  /** Returns a ticket without a result: the connection was stale. */
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
      isHealthy: breaker === 'closed' && this.isWorking && !this.#isPaused(),
      breaker,
      inFlight: this.#inFlight,
      calls: this.#calls,
      failures: this.#failures,
      firstByteMs: this.#firstByteMs < 0 ? null : this.#firstByteMs,
    };
  }

  #recordFailure(caller: string, nowMs: number, isCertain: boolean): void {
    // A call of the server itself contains no caller input, so its failure is the engine's.
    if (isCertain || caller === '') this.#certainUntilMs = nowMs + CERTAIN_MS;
    // While the breaker is open, its recorded callers stay fixed.
    if (this.#breaker.state === 'closed')
      this.#failedCallers = this.#failedCallers.filter(({ atMs }) => nowMs - atMs < WINDOW_MS);
    const known = this.#failedCallers.find((failed) => failed.caller === caller);
    if (known !== undefined) known.atMs = nowMs;
    else if (this.#failedCallers.length < MIN_CALLERS)
      this.#failedCallers.push({ caller, atMs: nowMs });
  }
}

export class Target {
  readonly replica: Replica;
  readonly engine: EngineState;
  readonly state: ReplicaState;
  readonly weight: number;
  readonly order: number;
  readonly hash: number;
  /** Number of the choice that used it last: among equals the least recently used one wins. */
  lastChoice = 0;

  constructor(replica: Replica, engine: EngineState) {
    this.replica = replica;
    this.engine = engine;
    this.state = engine.replica(replica.model);
    this.weight = replica.weight ?? 1;
    this.order = replica.order ?? 0;
    this.hash = hashText(`${replica.engine}\n${replica.model}`);
  }

  /** Load with one more call, so that among idle replicas a heavier one is preferred. */
  get load(): number {
    return (this.engine.inFlight + 1) / this.weight;
  }

  isBetterThan(other: Target): boolean {
    if (this.order !== other.order) return this.order < other.order;
    const difference = this.load - other.load;
    return difference === 0 ? this.lastChoice < other.lastChoice : difference < 0;
  }
}

/** Calls per unit of weight by which a replica with affinity may exceed the least loaded one. */
const AFFINITY_SLACK = 8;

/** Parameters of a choice: caller, affinity key and targets already tried. */
export interface Chooser {
  readonly caller: string;
  readonly keyHash: number | null;
  readonly tried: ReadonlySet<Target> | null;
}

/** The current engines, and the cached routes of the replica lists. */
export class Router {
  readonly #engines: ReadonlyMap<string, EngineState>;
  readonly #routes = new WeakMap<readonly Replica[], readonly Target[]>();
  #choices = 0;

  constructor(engines: ReadonlyMap<string, EngineState>) {
    this.#engines = engines;
  }

  /** The replicas whose engines exist, in their order. */
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

  /** Returns a target, the engine to wait for if all usable targets are full, or null. */
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
    if (engine.hasCapacity) {
      if (keyHash !== null) (open ??= []).push(target);
      if (best === null || target.isBetterThan(best)) best = target;
    } else if (full === null || engine.queueCapacity > full.queueCapacity) full = engine;
  }
  if (best === null || keyHash === null) return best ?? full;
  // The first in the key's order among those with the same `order` as the least loaded one.
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

/** Weighted rendezvous hashing: -weight / ln(u), with u uniform in (0, 1) from key and replica. */
function rendezvousScore(keyHash: number, target: Target): number {
  const uniform = (mix(keyHash ^ target.hash) + 0.5) / 4_294_967_296;
  return -target.weight / Math.log(uniform);
}

/** FNV-1a over UTF-16 units, finished by `mix`. Not cryptographic. */
export function hashText(text: string): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < text.length; index += 1) {
    hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193);
  }
  return mix(hash);
}

/** The 32-bit finalizer of MurmurHash3: every input bit affects every output bit. */
function mix(value: number): number {
  let hash = value;
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}
