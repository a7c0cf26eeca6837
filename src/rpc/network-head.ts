/**
 * The newest block of one network that most of its nodes have, and the nodes on another history.
 *
 * The head is the highest block that a majority of the nodes has, without the nodes that are more
 * than `distance` blocks ahead of it. Without a majority, a node that can show a recent block for
 * its head is trusted. The hashes of one block of all nodes are compared: nodes in the minority are
 * not used. Nodes are polled only while there are requests, and only if there are several.
 */
import { type Clock, SECOND_MS } from '../core/clock.ts';
import { isAny } from '../core/is-any.ts';
import type { Log } from '../core/log.ts';
import { isTag, type Network } from './catalogue.ts';
import type { ServedHeads } from './served-heads.ts';
import { TagHeads } from './tag-heads.ts';
import type { Upstream } from './upstream.ts';

const MIN_POLL_MS = SECOND_MS;
const MAX_POLL_MS = 3 * SECOND_MS;
/** Polls continue for this time after a request. */
const USED_MS = 60 * SECOND_MS;
/** A head that a node reported earlier is no longer known. */
const KNOWN_MS = 10 * SECOND_MS;
/** A head is returned for this time although the nodes do not confirm it, so that it does not go back. */
const SERVED_MS = 30 * SECOND_MS;
/** Longest time for which a request waits for the nodes to confirm the head. */
const WAIT_MS = SECOND_MS;
/** The same while no head is known: the head of a single node could be ahead of the later one. */
const FIRST_WAIT_MS = 10 * SECOND_MS;
/** Part of that time in which most nodes must report their heads. */
const FIRST_POLL_MS = 5 * SECOND_MS;
const COMPARE_MS = 10 * SECOND_MS;
/** A node that had another block is used again after this time if most nodes are unknown since. */
const FORKED_MS = 60 * SECOND_MS;
/** A block is recent up to this age, or this number of block times. */
const RECENT_MS = 120 * SECOND_MS;
const RECENT_BLOCKS = 30;

export interface NetworkHeadParts {
  readonly network: Network;
  readonly nodes: readonly Upstream[];
  /** Blocks by which the nodes of a majority may differ. */
  readonly distance: number;
  readonly heads: ServedHeads;
  readonly clock: Clock;
  readonly log: Log;
}

export class NetworkHead {
  readonly #parts: NetworkHeadParts;
  readonly #pollMs: number;
  readonly #tags: TagHeads;
  #forked: ReadonlySet<Upstream> = new Set();
  #ahead: ReadonlySet<Upstream> = new Set();
  #usedAtMs = -Infinity;
  #polledAtMs = -Infinity;
  /** When a head was last found. */
  #knownAtMs = -Infinity;
  #comparedAtMs = -Infinity;
  /** When the blocks of most nodes were last compared. */
  #judgedAtMs = -Infinity;
  #polling: Promise<void> | undefined;
  #cancelTimer: (() => void) | undefined;

  constructor(parts: NetworkHeadParts) {
    this.#parts = parts;
    this.#tags = new TagHeads(parts, this);
    this.#pollMs = Math.min(MAX_POLL_MS, Math.max(MIN_POLL_MS, parts.network.blockTimeMs / 4));
  }

  /** Returns a promise to wait for before the nodes are used; `undefined` if there is no need. */
  prepare(): Promise<void> | undefined {
    const { clock, heads, network, nodes } = this.#parts;
    if (nodes.length < 2) return undefined;
    const nowMs = clock.monotonicMs();
    this.#usedAtMs = nowMs;
    this.#pollLater();
    if (nowMs - this.#knownAtMs < KNOWN_MS) return heads.prepare(network.slug);
    if (this.#polling === undefined && nowMs - this.#polledAtMs < MIN_POLL_MS) return undefined;
    const waitMs = this.served === undefined ? FIRST_WAIT_MS : WAIT_MS;
    return this.inTime(this.#poll(), waitMs).then(() => heads.prepare(network.slug));
  }

  /** The head that callers see; `undefined` if it is unknown. */
  get served(): number | undefined {
    const { clock, heads, network } = this.#parts;
    if (clock.monotonicMs() - this.#knownAtMs > SERVED_MS) return undefined;
    return heads.current(network.slug);
  }

  /** Returns a promise to wait for before the tags in the body are used. */
  prepareTags(body: Buffer): Promise<unknown> | undefined {
    return this.#tags.prepare(body);
  }

  /** The number that a tag means for callers; `undefined` for another text, or if it is unknown. */
  numberOf(tag: string): number | undefined {
    if (tag === 'latest' || tag === 'pending') return this.served;
    return isTag(tag) ? this.#tags.served(tag) : undefined;
  }

  /** The highest block that a node of the network may have; -1 if unknown. */
  get highest(): number {
    const { served } = this;
    return served === undefined ? -1 : served + this.#parts.distance;
  }

  /** Polls the nodes soon, because a caller polls the head. */
  refresh(): void {
    if (this.#parts.clock.monotonicMs() - this.#polledAtMs >= MIN_POLL_MS) void this.#poll();
  }

  /**
   * Returns a promise to wait for if no node is known to have a block up to the head that callers
   * see: another process found that head.
   */
  find(block: number): Promise<void> | undefined {
    const { nodes } = this.#parts;
    if (nodes.length < 2) return undefined;
    const has = (node: Upstream): boolean => (node.head ?? 0) >= block && this.isSound(node);
    if (nodes.some(has)) return undefined;
    const open = nodes.filter((node) => node.isOpen());
    const polls = open.map((node) => node.pollHead().then(() => has(node)));
    return this.inTime(isAny(polls), FIRST_POLL_MS);
  }

  /** Whether a node is on the history of the majority, and reports a head that can be true. */
  isSound(node: Upstream): boolean {
    return !this.#forked.has(node) && !this.#ahead.has(node);
  }

  close(): void {
    this.#usedAtMs = -Infinity;
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
  }

  #pollLater(): void {
    this.#cancelTimer ??= this.#parts.clock.after(this.#pollMs, () => {
      this.#cancelTimer = undefined;
      if (this.#parts.clock.monotonicMs() - this.#usedAtMs > USED_MS) return;
      this.refresh();
      this.#pollLater();
    });
  }

  #poll(): Promise<void> {
    this.#polling ??= this.#pollAll().finally(() => {
      this.#polling = undefined;
    });
    return this.#polling;
  }

  async #pollAll(): Promise<void> {
    const { clock, distance, heads, network, nodes } = this.#parts;
    this.#polledAtMs = clock.monotonicMs();
    const polls = nodes.filter((node) => node.isOpen()).map((node) => node.pollHead());
    await this.inTime(Promise.all(polls));
    const isMost = (): boolean => this.#known().length * 2 > nodes.length;
    if (this.served === undefined && !isMost())
      await this.inTime(isAny(polls.map((poll) => poll.then(isMost))), FIRST_POLL_MS);
    const waiting = heads.prepare(network.slug);
    if (waiting !== undefined) await waiting;
    if (clock.monotonicMs() - this.#comparedAtMs >= COMPARE_MS) await this.#compare();
    const known = this.#known().filter((node) => !this.#forked.has(node));
    const head = this.#majority(known) ?? (await this.#shownHead(known));
    if (head === undefined) return;
    for (const node of known) node.figures.lag.value = head - (node.head ?? head);
    this.#ahead = new Set(known.filter((node) => (node.head ?? 0) - head > distance));
    await heads.offer(network.slug, head);
    this.#knownAtMs = clock.monotonicMs();
  }

  /** Resolves with the work, or after the longest time to wait for it. */
  inTime(work: Promise<unknown>, waitMs = WAIT_MS): Promise<void> {
    return new Promise((resolve) => {
      const cancel = this.#parts.clock.after(waitMs, resolve);
      void work.finally(() => {
        cancel();
        resolve();
      });
    });
  }

  /** The nodes whose head is known, the highest first. */
  #known(): Upstream[] {
    const sinceMs = this.#parts.clock.monotonicMs() - KNOWN_MS;
    return this.#parts.nodes
      .filter(({ headAtMs }) => headAtMs >= sinceMs)
      .sort((one, other) => (other.head ?? 0) - (one.head ?? 0));
  }

  /** The highest block that more than half of the nodes have, without those far ahead of it. */
  #majority(known: readonly Upstream[]): number | undefined {
    const { nodes, distance } = this.#parts;
    const heads = known.map(({ head = 0 }) => head);
    return heads.find((low) => {
      const near = heads.filter((head) => head >= low && head - low <= distance);
      return near.length * 2 > nodes.length;
    });
  }

  /**
   * Without a majority: the highest head whose block is recent, otherwise the lowest one. On other
   * networks than EVM the highest one, because a node that lags is more likely than a wrong one.
   */
  async #shownHead(known: readonly Upstream[]): Promise<number | undefined> {
    const { clock, network } = this.#parts;
    if (network.family !== 'evm') return known[0]?.head;
    const recentMs = Math.max(RECENT_MS, RECENT_BLOCKS * network.blockTimeMs);
    for (const node of known) {
      const block = await node.blockAt(node.head ?? 0);
      const ageMs = clock.nowMs() - (block?.timestampMs ?? 0);
      if (Math.abs(ageMs) < recentMs) return node.head;
    }
    return known.at(-1)?.head;
  }

  /** Compares the hashes of a block that most nodes have. */
  async #compare(): Promise<void> {
    const { clock, distance, log, network, nodes } = this.#parts;
    const nowMs = clock.monotonicMs();
    this.#comparedAtMs = nowMs;
    const known = this.#known();
    const high = this.#majority(known);
    if (high === undefined && nowMs - this.#judgedAtMs > FORKED_MS) this.#forked = new Set();
    if (high === undefined || network.family !== 'evm') return;
    this.#judgedAtMs = nowMs;
    const near = known.filter(({ head = 0 }) => Math.abs(head - high) <= distance);
    const low = Math.min(...near.map(({ head = 0 }) => head));
    const blocks = await Promise.all(near.map((node) => node.blockAt(low)));
    const common = blocks.find((block) => {
      const same = blocks.filter((other) => block !== undefined && other?.hash === block.hash);
      return same.length * 2 > nodes.length;
    });
    const isOther = (index: number): boolean =>
      common !== undefined && blocks[index] !== undefined && blocks[index].hash !== common.hash;
    const forked = new Set(near.filter((_node, index) => isOther(index)));
    for (const node of forked) {
      if (this.#forked.has(node)) continue;
      const fields = { network: network.slug, upstream: node.settings.name, block: low };
      log.warn(fields, 'RPC upstream is not used: it has another block than most nodes');
    }
    this.#forked = forked;
  }
}
