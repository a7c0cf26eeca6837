/**
 * Calls to the configured engines with retries, failover, routing and breakers, and the health of
 * the engines.
 *
 * Invariants: a call is not retried once its sink has received a byte; a change of settings
 * replaces all engines at once and interrupts no running call; after `close` no call is running.
 * This module does not know prices, accounts or the meaning of a request.
 */
import { isDeepStrictEqual } from 'node:util';
import { assert } from '../core/assert.ts';
import type { Clock } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import { InFlight } from '../core/in-flight.ts';
import { isAny } from '../core/is-any.ts';
import { type Log, reasonOf } from '../core/log.ts';
import { Origins } from '../net/origins.ts';
import type {
  EngineResponse,
  EngineCall,
  EngineFailure,
  EngineOutcome,
  EngineSettings,
  EngineSink,
  EngineStatus,
  ProbeResult,
  Replica,
  ReplicaStatus,
  WholeCall,
} from './contract.ts';
import { EngineRun, type RunContext } from './engine-run.ts';
import { EngineState, Router } from './engine-state.ts';
import { type ChatPath, type ChatProbe, isReachable, probeChat, probeEngine } from './probe.ts';

export type * from './contract.ts';
export { CHAT_PATHS } from './contract.ts';
export type { EngineRun } from './engine-run.ts';

export interface EnginesOptions {
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  /** Called for every call, for traces. */
  readonly observe?: CallObserver | undefined;
}

/** Returns further request headers for a call, and is notified of its end. */
export type CallObserver = (call: EngineCall) => ObservedCall | undefined;

export interface ObservedCall {
  readonly headers: readonly string[];
  /** `undefined` if a bug ended the call. */
  ended(outcome: EngineOutcome | undefined): void;
}

const CLOSE_POLL_MS = 20;
const JSON_TYPES = ['application/json'];
const NO_ENGINES: ReadonlyMap<string, EngineState> = new Map();

export class Engines {
  readonly #options: EnginesOptions;
  readonly #context: RunContext;
  readonly #retiring = new Set<EngineState>();
  readonly #origins: Origins;
  #engines = NO_ENGINES;
  #isClosed = false;

  constructor(options: EnginesOptions) {
    const { clock, ids } = options;
    this.#options = options;
    this.#origins = new Origins(({ name }) => {
      const message =
        'An engine sent bytes that belong to no request; each further request to it uses a new connection';
      options.log.warn({ origin: name }, message);
    });
    this.#context = { clock, ids, running: new InFlight(), router: new Router(NO_ENGINES) };
  }

  /**
   * Applies the engines of a configuration. Engines with unchanged settings keep connections and
   * health. Throws a RangeError, without any change, if a URL is invalid or an id occurs twice.
   */
  update(settings: readonly EngineSettings[]): void {
    if (this.#isClosed) return;
    const next = new Map<string, EngineState>();
    for (const one of settings) {
      if (next.has(one.id)) throw new RangeError(`The engine "${one.id}" is configured twice`);
      const old = this.#engines.get(one.id);
      const isSame = old !== undefined && isDeepStrictEqual(old.settings, one);
      next.set(one.id, isSame ? old : new EngineState(one, this.#options.clock, this.#origins));
    }
    const before = this.#engines;
    this.#engines = next;
    this.#context.router = new Router(next);
    for (const [id, engine] of before) if (next.get(id) !== engine) this.#retire(engine);
  }

  /**
   * Starts a streaming call; without a sink a non-streaming call, whose response is its outcome.
   * The sink is never called before `run` has returned.
   */
  run(call: EngineCall, sink: EngineSink | null): EngineRun {
    const observed = this.#options.observe?.(call);
    const headers = observed && [...(call.headers ?? []), ...observed.headers];
    const run = new EngineRun(this.#context, call, sink, headers);
    if (observed !== undefined) {
      run.outcome.then(
        (outcome) => observed.ended(outcome),
        () => observed.ended(undefined), // the endpoint receives the error itself
      );
    }
    run.start();
    return run;
  }

  /** Makes a call and resolves to its complete response, at most `maxResponseBytes`. */
  collect(call: WholeCall): Promise<EngineResponse | EngineFailure> {
    // A run without a sink ends with its buffered response.
    return this.run(call, null).outcome as Promise<EngineResponse | EngineFailure>;
  }

  /** The same for a JSON response that `read` converts; `garbage` if `read` returns `undefined`. */
  async collectRead<T extends object>(
    call: EngineCall,
    read: (body: Buffer) => Promise<T | undefined>,
  ): Promise<(EngineResponse & { readonly read: T }) | EngineFailure> {
    let last: T | undefined;
    const isUsable = async (body: Buffer): Promise<boolean> => {
      last = await read(body);
      return last !== undefined;
    };
    const response = await this.collect({ accept: JSON_TYPES, ...call, isUsable });
    if (!response.ok) return response;
    assert(last !== undefined, 'a usable response was read');
    return { ...response, read: last };
  }

  /** Health and load of every engine and of every replica used since it was configured. */
  status(): readonly EngineStatus[] {
    return [...this.#engines.values()].map((engine) => engine.status());
  }

  /** Health of the replicas of one model, in their order, without unknown engines. */
  replicaStatus(replicas: readonly Replica[]): readonly ReplicaStatus[] {
    const targets = this.#context.router.targetsOf(replicas);
    return targets.map(({ state, replica }) => state.status(replica.engine));
  }

  /** True if a replica is expected to serve a call. Failing replicas are tried nevertheless. */
  isReady(replicas: readonly Replica[]): boolean {
    return this.#context.router.targetsOf(replicas).some(({ state }) => state.isWorking);
  }

  /**
   * Why a call to one of the replicas would fail without an attempt; `undefined` if it would be
   * attempted. An engine without an open connection is probed first. Never rejects.
   */
  async outageOf(replicas: readonly Replica[]): Promise<'unreachable' | 'overloaded' | undefined> {
    const targets = this.#context.router.targetsOf(replicas);
    const engines = new Set(
      targets.filter(({ state }) => state.isLastResortFor('')).map(({ engine }) => engine),
    );
    const free = [...engines].filter((one) => one.hasCapacity || one.queueCapacity > 0);
    if (engines.size > 0 && free.length === 0) return 'overloaded';
    const isReached = await isAny(free.map((engine) => isReachable(engine, this.#options.clock)));
    return isReached ? undefined : 'unreachable';
  }

  /** True if one of the replicas has spare capacity for low-priority work. */
  hasSpareCapacity(replicas: readonly Replica[]): boolean {
    return this.#context.router
      .targetsOf(replicas)
      .some(({ engine, state }) => engine.hasSpareCapacity && state.isReadyFor(''));
  }

  /** Removes the credentials of the engine from a message that it has sent. */
  withoutSecrets(engineId: string, message: string): string {
    return this.#engines.get(engineId)?.withoutSecrets(message) ?? message;
  }

  get running(): number {
    return this.#context.running.size;
  }

  /** Queries the models of an engine (`GET /models`). Never throws. */
  async probe(engineId: string): Promise<ProbeResult> {
    const engine = this.#engines.get(engineId);
    if (engine !== undefined) return probeEngine(engine, this.#options.clock);
    const message = `There is no engine "${engineId}"`;
    return { ok: false, latencyMs: 0, reason: 'unknown-engine', status: null, message };
  }

  /** Whether an engine serves a model behind a path; `unknown` if it does not say. Never throws. */
  async probeChat(engineId: string, path: ChatPath, model: string): Promise<ChatProbe> {
    const engine = this.#engines.get(engineId);
    return engine === undefined ? 'unknown' : probeChat(engine, path, model);
  }

  /** Aborts all running calls. */
  abort(): void {
    for (const run of this.#context.running.all()) run.abort();
  }

  /** Waits up to `graceMs` for running calls, then aborts them, and closes all sockets. */
  async close(graceMs = 0): Promise<void> {
    const { clock, running } = this.#context;
    this.#isClosed = true;
    this.#context.router = new Router(NO_ENGINES);
    const untilMs = clock.monotonicMs() + graceMs;
    while (running.size > 0 && clock.monotonicMs() < untilMs) await clock.sleep(CLOSE_POLL_MS);
    this.abort();
    const all = [...this.#engines.values(), ...this.#retiring];
    this.#engines = NO_ENGINES;
    await Promise.all(all.map((engine) => engine.pool.destroy()));
  }

  #retire(engine: EngineState): void {
    this.#retiring.add(engine);
    engine
      .retire()
      .catch((error: unknown) => {
        this.#options.log.warn({ reason: reasonOf(error) }, 'An engine did not retire cleanly');
      })
      .finally(() => this.#retiring.delete(engine));
  }
}
