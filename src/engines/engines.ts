/**
 * The door to everything that runs models: calls with retries, failover, routing and breakers
 * over the configured engines, and what is known about their health.
 *
 * Invariants: nothing is retried once a sink has heard a byte; a change of settings swaps all
 * engines at once and cuts no running call; after `close` no call is running.
 * It does not know prices, accounts or what a request means.
 */
import { isDeepStrictEqual } from 'node:util';

import type { Clock } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import { InFlight } from '../core/in-flight.ts';
import type { Log } from '../core/log.ts';
import { reasonOf } from '../core/log.ts';
import { CallRun } from './call-run.ts';
import type { RunContext } from './call-run.ts';
import type {
  EngineAnswer,
  EngineCall,
  EngineFailure,
  EngineHead,
  EngineOutcome,
  EngineRun,
  EngineSettings,
  EngineSink,
  EngineStatus,
  ProbeResult,
  Replica,
  ReplicaStatus,
  WholeCall,
} from './contract.ts';
import { EngineState } from './engine-state.ts';
import { probeEngine } from './probe.ts';
import { hashText } from './routing.ts';
import type { Target } from './routing.ts';

export type {
  EngineAnswer,
  EngineCall,
  EngineFailure,
  EngineHead,
  EngineOutcome,
  EngineRun,
  EngineSettings,
  EngineSink,
  EngineStatus,
  EngineSuccess,
  EngineWork,
  FailureReason,
  ProbeResult,
  Replica,
  ReplicaStatus,
  WholeCall,
} from './contract.ts';

export interface EnginesOptions {
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  /** Asked about every call, for traces. */
  readonly observe?: CallObserver | undefined;
}

/** Gives further request headers for a call, and hears how it ended. */
export type CallObserver = (call: EngineCall) => ObservedCall | undefined;

export interface ObservedCall {
  /** Flat: name, value, name, value. */
  readonly headers: readonly string[];
  /** `undefined` when a bug ended the call. */
  ended(outcome: EngineOutcome | undefined): void;
}

export class Engines {
  readonly #options: EnginesOptions;
  readonly #context: RunContext;
  readonly #runs = new InFlight<CallRun>();
  readonly #retiring = new Set<EngineState>();
  #engines: ReadonlyMap<string, EngineState> = new Map();
  /** Dropped as a whole when the engines change. */
  #routes = new WeakMap<readonly Replica[], readonly Target[]>();
  #choices = 0;
  #isClosed = false;

  constructor(options: EnginesOptions) {
    this.#options = options;
    this.#context = {
      clock: options.clock,
      ids: options.ids,
      targetsOf: (replicas) => this.#targetsOf(replicas),
      nextChoice: () => (this.#choices += 1),
      ended: (run) => this.#runs.delete(run),
    };
  }

  /**
   * Takes the engines of a configuration. Engines whose settings stay the same keep connections
   * and health. Throws a RangeError, and changes nothing, when a URL is not valid or an id is
   * there twice.
   */
  update(settings: readonly EngineSettings[]): void {
    const next = new Map<string, EngineState>();
    for (const one of settings) {
      if (next.has(one.id)) throw new RangeError(`The engine "${one.id}" is there twice`);
      const old = this.#engines.get(one.id);
      const isSame = old !== undefined && isDeepStrictEqual(old.settings, one);
      next.set(one.id, isSame ? old : new EngineState(one, this.#options.clock));
    }
    const before = this.#engines;
    this.#engines = next;
    this.#routes = new WeakMap();
    for (const [id, engine] of before) if (next.get(id) !== engine) this.#retire(engine);
  }

  /** Starts a streamed call. The sink is never called before `run` has returned. */
  run(call: EngineCall, sink: EngineSink): EngineRun {
    return this.#start(call, (observed) => new CallRun(this.#context, observed, sink, STREAMED));
  }

  /** Makes a call and gives its whole answer, at most `maxResponseBytes` of it. */
  async collect(call: WholeCall): Promise<EngineAnswer | EngineFailure> {
    const collector = new Collector();
    const { isUsable } = call;
    const options = {
      isReplaceable: true,
      isUsable: isUsable === undefined ? null : () => isUsable(collector.body()),
    };
    const run = this.#start(
      call,
      (observed) => new CallRun(this.#context, observed, collector, options),
    );
    const outcome = await run.outcome;
    return outcome.ok ? { ...outcome, head: collector.head(), body: collector.body() } : outcome;
  }

  /** Health and load of every engine and of every replica that was used since it is configured. */
  status(): readonly EngineStatus[] {
    return [...this.#engines.values()].map((engine) => engine.status());
  }

  /** Health of the replicas of one model, in their order; unknown engines are left out. */
  replicaStatus(replicas: readonly Replica[]): readonly ReplicaStatus[] {
    return this.#targetsOf(replicas).map((target) => target.state.status(target.replica.engine));
  }

  /** Whether a call to one of the replicas would be tried now. */
  isReady(replicas: readonly Replica[]): boolean {
    return this.#targetsOf(replicas).some((target) => target.state.isLastResortFor(''));
  }

  /** Calls that have no outcome yet. */
  get running(): number {
    return this.#runs.size;
  }

  /** Asks an engine for its models (`GET /models`). Never throws. */
  async probe(engineId: string, signal?: AbortSignal): Promise<ProbeResult> {
    const engine = this.#engines.get(engineId);
    if (engine !== undefined) return probeEngine(engine, this.#options.clock, signal);
    const message = `There is no engine "${engineId}"`;
    return { ok: false, latencyMs: 0, reason: 'unknown-engine', status: null, message };
  }

  /** Waits up to `graceMs` for running calls, then ends them as `aborted`, and closes all sockets. */
  async close(graceMs = 0): Promise<void> {
    this.#isClosed = true;
    this.#routes = new WeakMap();
    const { clock } = this.#options;
    const untilMs = clock.monotonicMs() + graceMs;
    while (this.#runs.size > 0 && clock.monotonicMs() < untilMs) await clock.sleep(CLOSE_POLL_MS);
    for (const run of this.#runs.all()) run.abort();
    const all = [...this.#engines.values(), ...this.#retiring];
    this.#engines = new Map();
    await Promise.all(all.map((engine) => engine.pool.destroy()));
  }

  #start(call: EngineCall, make: (call: EngineCall) => CallRun): CallRun {
    const observed = this.#options.observe?.(call);
    const run = make(
      observed === undefined
        ? call
        : { ...call, headers: [...(call.headers ?? []), ...observed.headers] },
    );
    if (observed !== undefined) {
      run.outcome.then(
        (outcome) => observed.ended(outcome),
        () => observed.ended(undefined), // the flow hears the error itself
      );
    }
    this.#runs.add(run);
    run.start();
    return run;
  }

  #targetsOf(replicas: readonly Replica[]): readonly Target[] {
    let targets = this.#routes.get(replicas);
    if (targets === undefined) {
      targets = this.#isClosed ? [] : replicas.flatMap((replica) => this.#target(replica));
      this.#routes.set(replicas, targets);
    }
    return targets;
  }

  #target(replica: Replica): Target[] {
    const engine = this.#engines.get(replica.engine);
    if (engine === undefined) return [];
    const target: Target = {
      replica,
      engine,
      state: engine.replica(replica.model),
      weight: replica.weight ?? 1,
      order: replica.order ?? 0,
      hash: hashText(`${replica.engine}\n${replica.model}`),
      lastChoice: 0,
    };
    return [target];
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

const CLOSE_POLL_MS = 20;

const STREAMED = { isReplaceable: false, isUsable: null };

/** Takes a whole answer; a further head starts it anew. */
class Collector implements EngineSink {
  #head: EngineHead | null = null;
  #chunks: Buffer[] = [];

  onHead(head: EngineHead): void {
    this.#head = head;
    this.#chunks = [];
  }

  onChunk(chunk: Buffer): boolean {
    this.#chunks.push(chunk);
    return true;
  }

  head(): EngineHead {
    if (this.#head === null) throw new Error('The answer has no head yet');
    return this.#head;
  }

  body(): Buffer {
    const [first] = this.#chunks;
    if (first !== undefined && this.#chunks.length === 1) return first;
    const whole = Buffer.concat(this.#chunks);
    this.#chunks = [whole];
    return whole;
  }
}
