/**
 * Which replica takes a call. Lower `order` first; within an order the least loaded by weight, or,
 * with an affinity key, the first in the key's rendezvous order that is not overloaded, so that
 * one conversation meets one prompt cache and a lost replica moves only its own keys.
 */
import type { Replica } from './contract.ts';
import type { EngineState } from './engine-state.ts';
import type { ReplicaState } from './replica-state.ts';

export interface Target {
  readonly replica: Replica;
  readonly engine: EngineState;
  readonly state: ReplicaState;
  readonly weight: number;
  readonly order: number;
  /** Of engine and model, for rendezvous hashing. */
  readonly hash: number;
  /** Number of the choice that took it last: among equals the longest unused one wins. */
  lastChoice: number;
}

/** How many calls per unit of weight a keyed replica may be ahead of the least loaded one. */
const AFFINITY_SLACK = 8;

export type Choice =
  | { readonly kind: 'target'; readonly target: Target }
  /** All that could take it are full. */
  | { readonly kind: 'full'; readonly engine: EngineState }
  | { readonly kind: 'none' };

const NONE: Choice = { kind: 'none' };

/** Who asks, and for which cache. */
export interface Chooser {
  readonly caller: string;
  /** Null without affinity. */
  readonly keyHash: number | null;
}

/** Chooses among the targets that `skip` does not hold. */
export function choose(
  targets: readonly Target[],
  skip: ReadonlySet<Target> | null,
  chooser: Chooser,
): Choice {
  const ready = pick(targets, skip, chooser, isReady);
  return ready.kind === 'none' ? pick(targets, skip, chooser, isLastResort) : ready;
}

type Usable = (target: Target, caller: string) => boolean;

function isReady(target: Target, caller: string): boolean {
  return target.state.isReadyFor(caller);
}

function isLastResort(target: Target, caller: string): boolean {
  return target.state.isLastResortFor(caller);
}

function pick(
  targets: readonly Target[],
  skip: ReadonlySet<Target> | null,
  chooser: Chooser,
  isUsable: Usable,
): Choice {
  let best: Target | null = null;
  let full: EngineState | null = null;
  for (const target of targets) {
    if (skip?.has(target) === true || !isUsable(target, chooser.caller)) continue;
    if (!target.engine.hasRoom) {
      if (full === null || target.engine.queueRoom > full.queueRoom) full = target.engine;
    } else if (best === null || isBetter(target, best)) best = target;
  }
  if (best === null) return full === null ? NONE : { kind: 'full', engine: full };
  const { keyHash, caller } = chooser;
  if (keyHash === null) return { kind: 'target', target: best };
  return { kind: 'target', target: pickByKey(targets, skip, { keyHash, caller }, isUsable, best) };
}

/** The first in the key's order among those of the same order as `least` that have room. */
function pickByKey(
  targets: readonly Target[],
  skip: ReadonlySet<Target> | null,
  { keyHash, caller }: Chooser & { readonly keyHash: number },
  isUsable: Usable,
  least: Target,
): Target {
  const ceiling = loadOf(least) + AFFINITY_SLACK;
  let best = least;
  let bestScore = -1;
  for (const target of targets) {
    if (target.order !== least.order || skip?.has(target) === true) continue;
    if (!target.engine.hasRoom || loadOf(target) > ceiling || !isUsable(target, caller)) continue;
    const score = rendezvousScore(keyHash, target);
    if (score > bestScore) {
      best = target;
      bestScore = score;
    }
  }
  return best;
}

function isBetter(a: Target, b: Target): boolean {
  if (a.order !== b.order) return a.order < b.order;
  const difference = loadOf(a) - loadOf(b);
  return difference === 0 ? a.lastChoice < b.lastChoice : difference < 0;
}

/** With one more call: so a heavier replica is ahead of a lighter one when both are idle. */
function loadOf(target: Target): number {
  return (target.engine.inFlight + 1) / target.weight;
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
