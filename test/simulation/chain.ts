/** The common part of the chains of the world: blocks, waiting transactions, payments and reorganisations. */
import { Machine, world } from './world.ts';

const TREASURY_UNITS = 1_000_000_000_000n;

interface ChainBlock {
  /** Units of USDC by account. */
  readonly balances: Map<string, bigint>;
}

export abstract class Chain<Block extends ChainBlock, Waiting> {
  readonly blocks: Block[] = [];
  readonly pool = new Map<string, Waiting>();
  /** Units of each payment that any branch has ever contained. */
  protected readonly payments = new Map<string, bigint>();
  /** Accounts that receive all payments, and that pays refunds. */
  #receiver = '';
  #treasury = '';
  readonly #machine: Machine;
  readonly #blockMs: number;
  readonly #finalDepth: number;

  constructor(name: string, blockMs: number, finalDepth: number) {
    this.#machine = new Machine(name);
    this.#blockMs = blockMs;
    this.#finalDepth = finalDepth;
  }

  /** Adds a block with some of the transactions that wait. */
  protected abstract produce(): void;
  /** Decides what becomes of the transactions of a block that a reorganisation drops. */
  protected abstract drop(block: Block): void;

  protected produceRegularly(): void {
    const next = (): void => {
      this.produce();
      world().schedule(this.#blockMs, next, this.#machine);
    };
    world().schedule(this.#blockMs, next, this.#machine);
  }

  protected open(receiver: string, treasury: string): void {
    this.#receiver = receiver;
    this.#treasury = treasury;
    this.mint(receiver, 0n);
    this.mint(treasury, TREASURY_UNITS);
  }

  /** Gives an account so many units, in all blocks. */
  mint(account: string, units: bigint): void {
    for (const { balances } of this.blocks) balances.set(account, units);
  }

  get head(): Block {
    return this.blocks.at(-1)!;
  }

  /** Units of payments in the chain. */
  get received(): bigint {
    return this.head.balances.get(this.#receiver)!;
  }

  get refunded(): bigint {
    return TREASURY_UNITS - this.head.balances.get(this.#treasury)!;
  }

  /** Units of all payments, also of those that were dropped. */
  get everReceived(): bigint {
    return [...this.payments.values()].reduce((sum, units) => sum + units, 0n);
  }

  hasEverReceived(payment: string): boolean {
    return this.payments.has(payment);
  }

  /** Another branch replaces the newest blocks, and is `longerBy` blocks longer. */
  reorganise(depth: number, longerBy = 0): void {
    const { length } = this.blocks;
    const dropped = this.blocks.splice(Math.max(length - depth, length - this.#finalDepth + 1, 1));
    world().note(`${this.#machine.name} drops ${dropped.length} blocks`);
    for (const block of dropped) this.drop(block);
    for (let left = dropped.length + longerBy; left > 0; left -= 1) this.produce();
  }
}
