/**
 * The nodes of one network, and the order in which they are used.
 *
 * A caller stays with one node for a few seconds, so that one operation does not mix the state of
 * several nodes. Nodes that lag, are paused, fail or lack the method are used last. Nodes on another
 * history, and nodes that do not have a block of the calls up to the head that callers see, are not used.
 */
import type { Clock } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import { isAny } from '../core/is-any.ts';
import type { Capabilities } from './capabilities.ts';
import type { Network, NodeKind } from './catalogue.ts';
import { Hedges } from './hedges.ts';
import { NetworkHead, type NetworkHeadParts } from './network-head.ts';
import type { NodeFigures, RpcFigures } from './node-figures.ts';
import type { Call } from './parse-request.ts';
import type { Upstream } from './upstream.ts';

/** Time for which a caller stays with its last node. */
const STICKY_MS = 5_000;
const MAX_STICKY = 10_000;
/** Minimum share of its weight that a slow node keeps. */
const MIN_LATENCY_SHARE = 0.1;

interface Sticky {
  readonly upstream: Upstream;
  readonly untilMs: number;
}

interface GroupDependencies extends Pick<NetworkHeadParts, 'clock' | 'heads' | 'log'> {
  readonly ids: Ids;
  readonly figures: RpcFigures;
  /** Default: by network. */
  readonly headDistance?: number | undefined;
  readonly hedgeShare: number;
}

/** The state of one node as this process sees it. */
export interface NodeStatus {
  readonly name: string;
  readonly kind: NodeKind;
  /** `last`: used after the other nodes; `disabled`: not used now. */
  readonly state: 'ready' | 'last' | 'disabled';
  readonly head: number | null;
  readonly lag: number | null;
  /** The oldest block whose state and logs the node has; `null` if no limit is known. */
  readonly oldestState: number | null;
  readonly oldestLogs: number | null;
  readonly missingMethods: string[];
  readonly calls: number;
  readonly failures: number;
  readonly hedges: number;
  readonly p95Ms: number | null;
}

interface Selection {
  readonly caller: string;
  readonly calls: readonly Call[];
  readonly preferred: Upstream | undefined;
  /** The highest block that the calls name, up to the head that callers see; or that head. */
  readonly highest: number;
}

export class UpstreamGroup {
  readonly network: Network;
  readonly cacheFigures: NodeFigures;
  readonly head: NetworkHead;
  readonly hedges: Hedges;
  readonly #upstreams: readonly Upstream[];
  readonly #clock: Clock;
  readonly #ids: Ids;
  readonly #sticky = new Map<string, Sticky>();
  readonly #hasBundler: boolean;

  constructor(
    network: Network,
    upstreams: readonly Upstream[],
    { clock, ids, figures, heads, log, headDistance, hedgeShare }: GroupDependencies,
  ) {
    this.network = network;
    this.cacheFigures = figures.of(network.slug);
    this.#upstreams = upstreams;
    this.#clock = clock;
    this.#ids = ids;
    const nodes = upstreams.filter(({ settings }) => settings.kind === 'node');
    this.hedges = new Hedges(hedgeShare);
    const distance = headDistance ?? network.syncingBlocks;
    this.head = new NetworkHead({ network, nodes, distance, heads, clock, log });
    this.#hasBundler = upstreams.some((upstream) => upstream.settings.kind === 'bundler');
  }

  /** The kind of node for a method: without a bundler, plain nodes are used. */
  kindFor(kind: NodeKind): NodeKind {
    return kind === 'bundler' && this.#hasBundler ? 'bundler' : 'node';
  }

  /** The nodes available for `calls` now, best first; may be empty. */
  candidates(kind: NodeKind, caller: string, calls: readonly Call[]): readonly Upstream[] {
    const [first, second] = this.#upstreams;
    if (first !== undefined && second === undefined) {
      return first.settings.kind === kind && first.isOpen() ? this.#upstreams : [];
    }
    const open = this.#upstreams.filter((one) => one.settings.kind === kind && one.isOpen());
    if (open.length < 2) return open;
    // Nodes with an open breaker are tested by own requests while there are others.
    const sound = open.filter((one) => !one.isOut);
    if (sound.length > 0) for (const one of open) if (one.isOut) void one.verify();
    const chosen = sound.length > 0 ? sound : open;
    if (chosen.length < 2 && kind === 'bundler') return chosen;
    const sticky = this.#sticky.get(stickyKey(kind, caller));
    const isSticky = sticky !== undefined && sticky.untilMs > this.#clock.monotonicMs();
    const preferred = isSticky ? sticky.upstream : undefined;
    if (kind === 'bundler') return this.#order(chosen, { caller, calls, preferred, highest: 0 });
    const named = this.#namedBlock(calls);
    const highest = named ?? this.head.served ?? 0;
    const able = chosen.filter(
      (node) => this.head.isSound(node) && (node.head ?? Infinity) >= (named ?? 0),
    );
    const ordered = this.#order(able, { caller, calls, preferred, highest });
    const { served = 0 } = this.head;
    if (!calls.some(({ blocks }) => blocks?.isNewest)) return ordered;
    // An older state is better than no response.
    const isBehind = ({ head = Infinity }: Upstream): boolean => head < served;
    return [...ordered.filter((node) => !isBehind(node)), ...ordered.filter(isBehind)];
  }

  /** Returns a promise to wait for if no node is known to have a block that the calls name. */
  prepare(calls: readonly Call[]): Promise<void> | undefined {
    if (this.#upstreams.length < 2) return undefined;
    const isNewest = calls.some(({ blocks }) => blocks?.isNewest);
    const named = isNewest ? this.head.served : this.#namedBlock(calls);
    return named === undefined ? undefined : this.head.find(named);
  }

  /** The highest block that the calls name, up to the head that callers see. */
  #namedBlock(calls: readonly Call[]): number | undefined {
    const { served = 0 } = this.head;
    const named = highestOf(calls);
    return named === undefined ? undefined : Math.min(named, served);
  }

  /** The largest request that nodes of the kind accept; `undefined` without a known limit. */
  requestLimitBytes(kind: NodeKind): number | undefined {
    let largest = 0;
    for (const upstream of this.#upstreams) {
      if (upstream.settings.kind !== kind) continue;
      const limit = upstream.requestLimitBytes;
      if (limit === undefined) return undefined;
      largest = Math.max(largest, limit);
    }
    return largest;
  }

  /** The current state of each node, for the operator. */
  status(): NodeStatus[] {
    const { served } = this.head;
    return this.#upstreams.map((node) => {
      const { capabilities, figures, head, settings, times } = node;
      const lag = served === undefined || head === undefined ? null : served - head;
      const p95Ms = times.p95Ms();
      return {
        name: settings.name,
        kind: settings.kind,
        state: this.#stateOf(node, lag ?? 0),
        head: head ?? null,
        lag,
        oldestState: capabilities.oldest('state') ?? null,
        oldestLogs: capabilities.oldest('logs') ?? null,
        missingMethods: capabilities.missing.all,
        ...figures.totals,
        p95Ms: p95Ms === undefined ? null : Math.round(p95Ms),
      };
    });
  }

  #stateOf(node: Upstream, lag: number): NodeStatus['state'] {
    if (!node.isOpen() || node.isOut || !this.head.isSound(node)) return 'disabled';
    return node.isPaused || lag > this.network.syncingBlocks ? 'last' : 'ready';
  }

  hasOpen(): boolean {
    return this.#upstreams.some((upstream) => upstream.isOpen());
  }

  async isResponding(): Promise<boolean> {
    const open = this.#upstreams.filter((upstream) => upstream.isOpen());
    return await isAny(open.map((upstream) => upstream.checkIdentity()));
  }

  stick(kind: NodeKind, caller: string, upstream: Upstream): void {
    if (this.#upstreams.length < 2) return;
    const key = stickyKey(kind, caller);
    const nowMs = this.#clock.monotonicMs();
    const before = this.#sticky.get(key);
    // Renewed only after half of the time, so that a busy caller does not write to the map for
    // every call.
    if (before?.upstream === upstream && before.untilMs - nowMs > STICKY_MS / 2) return;
    this.#sticky.delete(key);
    this.#sticky.set(key, { upstream, untilMs: nowMs + STICKY_MS });
    if (this.#sticky.size <= MAX_STICKY) return;
    const [oldest] = this.#sticky.keys();
    if (oldest !== undefined) this.#sticky.delete(oldest);
  }

  async close(): Promise<void> {
    this.head.close();
    await Promise.all(this.#upstreams.map(async (upstream) => upstream.close()));
  }

  #order(open: readonly Upstream[], selection: Selection): Upstream[] {
    const fastest = Math.min(...open.map((one) => one.latencyMs ?? Infinity));
    const ranked = open.map((upstream) => {
      const rank = this.#rankOf(upstream, selection);
      // Sampling without replacement: sorting by u^(1/w) equals weighted draws.
      const weight = upstream.settings.weight * factorOf(upstream, fastest);
      const key = Math.max(this.#ids.fraction(), Number.MIN_VALUE) ** (1 / weight);
      return { upstream, rank: upstream === selection.preferred && rank === 0 ? -1 : rank, key };
    });
    ranked.sort((a, b) => a.rank - b.rank || b.key - a.key);
    return ranked.map((one) => one.upstream);
  }

  /** 0 healthy, 1 lagging, 2 paused after a fault, 3 syncing, 4 without a method of the calls. */
  #rankOf(upstream: Upstream, { caller, calls, highest }: Selection): number {
    const { capabilities } = upstream;
    let rank = 0;
    if (capabilities.hasAny)
      for (const call of calls) rank = Math.max(rank, rankFor(capabilities, call, caller));
    const lag = upstream.head === undefined ? 0 : highest - upstream.head;
    if (rank > 3) return rank;
    if (lag > this.network.syncingBlocks) return 3;
    if (upstream.isPaused) return 2;
    if (rank > 0) return rank;
    return lag > 0 ? 1 : 0;
  }
}

/** 4 without the method or the block of the call, 2 if the method was slow, 0 otherwise. */
function rankFor(capabilities: Capabilities, { blocks, method }: Call, caller: string): number {
  const { missing, slow } = capabilities;
  if (missing.isPaused(method.name, caller)) return 4;
  if (blocks?.from !== undefined && blocks.from < (capabilities.oldest(method.history) ?? 0))
    return 4;
  return slow.isPaused(method.name, caller) ? 2 : 0;
}

/** The highest block that the calls name; `undefined` if none is named. */
function highestOf(calls: readonly Call[]): number | undefined {
  let highest: number | undefined;
  for (const { blocks } of calls) {
    const { from, to = from, isNewest } = blocks ?? {};
    if (isNewest) continue;
    if (to !== undefined && to > (highest ?? -1)) highest = to;
  }
  return highest;
}

function factorOf({ latencyMs = 0, faultShare }: Upstream, fastest: number): number {
  const speed = latencyMs <= 0 ? 1 : Math.max(MIN_LATENCY_SHARE, fastest / latencyMs);
  return speed * (1 - faultShare * 0.9);
}

function stickyKey(kind: NodeKind, caller: string): string {
  return kind === 'node' ? caller : `bundler ${caller}`;
}
