/**
 * The blocks that the tags `finalized` and `safe` mean on one network, the same for all nodes and
 * processes. They never go back for a caller: the number is the highest one that a majority of the
 * nodes reports. The nodes are polled only while callers use the tag.
 */
import { type Clock, SECOND_MS } from '../core/clock.ts';
import { type Network, type Tag, TAGS } from './catalogue.ts';
import type { ServedHeads } from './served-heads.ts';
import type { Upstream } from './upstream.ts';

/** A number is polled again after this time. */
const POLL_MS = 3 * SECOND_MS;
/** A request waits for a poll if the number is older. */
const KNOWN_MS = 10 * SECOND_MS;
/** Longest time to wait for the nodes while no number is known. */
const FIRST_WAIT_MS = 5 * SECOND_MS;
/** A number is used for this time although the nodes do not confirm it. */
const SERVED_MS = 30 * SECOND_MS;

interface TagHeadsParts {
  readonly network: Network;
  readonly nodes: readonly Upstream[];
  readonly heads: ServedHeads;
  readonly clock: Clock;
}

/** The head of the network. */
interface Head {
  readonly served: number | undefined;
  isSound(node: Upstream): boolean;
  inTime(work: Promise<unknown>, waitMs?: number): Promise<void>;
}

interface State {
  polledAtMs: number;
  knownAtMs: number;
  polling: Promise<void> | undefined;
}

const newState = (): State => ({
  polledAtMs: -Infinity,
  knownAtMs: -Infinity,
  polling: undefined,
});

export class TagHeads {
  readonly #parts: TagHeadsParts;
  readonly #head: Head;
  readonly #states: Readonly<Record<Tag, State>> = { finalized: newState(), safe: newState() };

  constructor(parts: TagHeadsParts, head: Head) {
    this.#parts = parts;
    this.#head = head;
  }

  /** Returns a promise to wait for if the body contains a tag: polls for its number. */
  prepare(body: Buffer): Promise<unknown> | undefined {
    if (this.#parts.network.family !== 'evm') return undefined;
    const tags = TAGS.filter((tag) => body.includes(`"${tag}"`));
    return tags.length === 0 ? undefined : Promise.all(tags.map((tag) => this.#prepare(tag)));
  }

  /** The number of a tag; `undefined` if it is unknown. */
  served(tag: Tag): number | undefined {
    const { clock, heads } = this.#parts;
    if (clock.monotonicMs() - this.#states[tag].knownAtMs > SERVED_MS) return undefined;
    return heads.current(this.#key(tag));
  }

  async #prepare(tag: Tag): Promise<void> {
    const { clock, heads } = this.#parts;
    const state = this.#states[tag];
    const nowMs = clock.monotonicMs();
    if (nowMs - state.polledAtMs >= POLL_MS) {
      state.polledAtMs = nowMs;
      state.polling = this.#poll(tag, state).finally(() => {
        state.polling = undefined;
      });
    }
    if (nowMs - state.knownAtMs > KNOWN_MS && state.polling !== undefined)
      await this.#head.inTime(state.polling, this.#waitMs(tag));
    await heads.prepare(this.#key(tag));
  }

  async #poll(tag: Tag, state: State): Promise<void> {
    const { clock, heads, nodes } = this.#parts;
    const sound = nodes.filter((node) => node.isOpen() && this.#head.isSound(node));
    const highest = this.#head.served ?? Infinity;
    const numbers: number[] = [];
    const polls = sound.map(async (node) => {
      const number = (await node.verify()) ? (await node.blockAt(tag))?.number : undefined;
      if (number !== undefined && Number.isSafeInteger(number) && number <= highest)
        numbers.push(number);
    });
    await this.#head.inTime(Promise.all(polls), this.#waitMs(tag));
    numbers.sort((one, other) => other - one);
    // Without a majority, the lowest number is one that all of these nodes report.
    const number = numbers[Math.floor(nodes.length / 2)] ?? numbers.at(-1);
    if (number === undefined) return;
    await heads.offer(this.#key(tag), number);
    state.knownAtMs = clock.monotonicMs();
  }

  #waitMs(tag: Tag): number | undefined {
    return this.served(tag) === undefined ? FIRST_WAIT_MS : undefined;
  }

  #key(tag: Tag): string {
    return `${this.#parts.network.slug} ${tag}`;
  }
}
