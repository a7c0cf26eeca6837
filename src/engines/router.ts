/**
 * Which of several replicas takes a call. Lower `order` first; within an order the least loaded by
 * weight, or, with an affinity key, the first in the key's rendezvous order that is not overloaded, so
 * that one conversation meets one prompt cache and a lost replica moves only its own keys.
 */
import type { Replica } from './contract.ts';
import type { EngineState } from './engine-state.ts';
import type { ReplicaState } from './replica-state.ts';

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
