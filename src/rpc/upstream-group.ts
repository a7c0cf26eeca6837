/**
 * The nodes of one network, and the order in which they are used.
 *
 * A caller stays with one node for a few seconds, so that one operation does not mix the state of
 * several nodes. Nodes that lag, are paused, fail or lack the method are used last. Heads are polled only while
 * there is traffic and more than one node.
 */
import type { Clock } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import { isAny } from '../core/is-any.ts';
import type { Network, NodeKind } from './catalogue.ts';
import type { NodeFigures, RpcFigures } from './node-figures.ts';
import type { Call } from './parse-request.ts';
import type { Upstream } from './upstream.ts';

/** Time for which a caller stays with its last node. */
const STICKY_MS = 5_000;
const MAX_STICKY = 10_000;
const MIN_POLL_MS = 5_000;
const MAX_POLL_MS = 30_000;
/** Minimum share of its weight that a slow node keeps. */
const MIN_LATENCY_SHARE = 0.1;

interface Sticky {
  readonly upstream: Upstream;
  readonly untilMs: number;
}

interface GroupDependencies {
  readonly clock: Clock;
  readonly ids: Ids;
  readonly figures: RpcFigures;
}

interface Selection {
  readonly caller: string;
  readonly calls: readonly Call[];
  readonly preferred: Upstream | undefined;
}

export class UpstreamGroup {
  readonly network: Network;
  readonly cacheFigures: NodeFigures;
  readonly #upstreams: readonly Upstream[];
  readonly #clock: Clock;
  readonly #ids: Ids;
  readonly #sticky = new Map<string, Sticky>();
  readonly #hasBundler: boolean;
  #polledAtMs = Number.NEGATIVE_INFINITY;

  constructor(
    network: Network,
    upstreams: readonly Upstream[],
    { clock, ids, figures }: GroupDependencies,
  ) {
    this.network = network;
    this.cacheFigures = figures.of(network.slug);
    this.#upstreams = upstreams;
    this.#clock = clock;
    this.#ids = ids;
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
    if (chosen.length < 2) return chosen;
    if (kind === 'node') this.#pollHeads(chosen);
    const sticky = this.#sticky.get(stickyKey(kind, caller));
    const isSticky = sticky !== undefined && sticky.untilMs > this.#clock.monotonicMs();
    const selection = { caller, calls, preferred: isSticky ? sticky.upstream : undefined };
    return this.#order(chosen, selection);
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
    await Promise.all(this.#upstreams.map(async (upstream) => upstream.close()));
  }

  #order(open: readonly Upstream[], selection: Selection): Upstream[] {
    const best = Math.max(...open.map((one) => one.head ?? 0));
    const fastest = Math.min(...open.map((one) => one.latencyMs ?? Infinity));
    const ranked = open.map((upstream) => {
      const rank = this.#rankOf(upstream, best, selection);
      // Sampling without replacement: sorting by u^(1/w) equals weighted draws.
      const weight = upstream.settings.weight * factorOf(upstream, fastest);
      const key = Math.max(this.#ids.fraction(), Number.MIN_VALUE) ** (1 / weight);
      return { upstream, rank: upstream === selection.preferred && rank < 2 ? -1 : rank, key };
    });
    ranked.sort((a, b) => a.rank - b.rank || b.key - a.key);
    return ranked.map((one) => one.upstream);
  }

  /** 0 healthy, 1 lagging, 2 paused after a fault, 3 syncing, 4 without a method of the calls. */
  #rankOf(upstream: Upstream, best: number, { caller, calls }: Selection): number {
    const { missingMethods, slowMethods } = upstream;
    if (missingMethods.hasAny)
      for (const { method } of calls) if (missingMethods.has(method.name)) return 4;
    const lag = upstream.head === undefined ? 0 : best - upstream.head;
    if (lag > this.network.syncingBlocks) return 3;
    if (upstream.isPaused) return 2;
    if (slowMethods.hasAny)
      for (const { method } of calls) if (slowMethods.isPaused(method.name, caller)) return 2;
    return lag > this.network.laggingBlocks ? 1 : 0;
  }

  #pollHeads(open: readonly Upstream[]): void {
    const nowMs = this.#clock.monotonicMs();
    const pollMs = Math.min(MAX_POLL_MS, Math.max(MIN_POLL_MS, this.network.blockTimeMs));
    if (nowMs - this.#polledAtMs < pollMs) return;
    this.#polledAtMs = nowMs;
    for (const upstream of open) if (upstream.isVerified) void upstream.pollHead();
  }
}

function factorOf({ latencyMs = 0, faultShare }: Upstream, fastest: number): number {
  const speed = latencyMs <= 0 ? 1 : Math.max(MIN_LATENCY_SHARE, fastest / latencyMs);
  return speed * (1 - faultShare * 0.9);
}

function stickyKey(kind: NodeKind, caller: string): string {
  return kind === 'node' ? caller : `bundler ${caller}`;
}
