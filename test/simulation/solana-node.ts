/** A node of Solana with JSON-RPC, for the calls that a payment needs. */
import { RpcNode } from './rpc-node.ts';
import {
  BLOCKHASH_LIFE,
  FINAL_SLOTS,
  SOLANA_USDC,
  type Solana,
  type SolanaBlock,
  isValid,
  simulated,
} from './solana.ts';

const GENESIS = '5eykt4UsFv8P8NJdTREpY1vzqKqZKvdpKuc147dw2N9d';
const TOKEN_PROGRAM = 'TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA';
const MINT_BYTES = 82;
const TOKEN_ACCOUNT_BYTES = 165;
const AMOUNT_OFFSET = 64;
const RICH = 10_000_000_000;
const FEE = 5_000;
/** A slot and a height of the future. */
const FAR = 1_000_000;

interface Options {
  /** Default: finalized, which the kit omits. */
  readonly commitment?: 'processed' | 'confirmed' | 'finalized';
}

export class SolanaNode extends RpcNode<SolanaBlock, Solana> {
  protected override readonly methods = {
    getGenesisHash: () => GENESIS,
    getSlot: (options?: Options) => (this.doesLie ? FAR : this.#at(options).slot),
    getBlockHeight: (options?: Options) => (this.doesLie ? FAR : this.#at(options).height),
    getBlockTime: (slot: number) =>
      this.blocks.findLast((block) => block.slot <= slot)?.seconds ?? null,
    getBalance: () => this.#with(RICH),
    getLatestBlockhash: (options?: Options) => {
      const { blockhash, height } = this.#at(options);
      const lastValidBlockHeight = this.doesLie ? 1 : height + BLOCKHASH_LIFE;
      return this.#with({ blockhash, lastValidBlockHeight });
    },
    isBlockhashValid: (blockhash: string, options?: Options) =>
      this.#with(!this.doesLie && isValid(blockhash, this.#until(options))),
    getAccountInfo: (key: string) => this.#with(this.#account(key)),
    simulateTransaction: (wire: string) =>
      this.#with({ err: simulated(wire, this.blocks), logs: [], unitsConsumed: 1_000 }),
    sendTransaction: (wire: string) => this.chain.accept(wire),
    getSignatureStatuses: (ids: readonly string[]) => this.#with(ids.map((id) => this.#status(id))),
    getSignaturesForAddress: (account: string, { limit }: { readonly limit: number }) =>
      this.blocks
        .flatMap(({ slot, landed }) => landed.map((one) => ({ ...one, slot })))
        .filter(({ from }) => from === account)
        .toReversed()
        .slice(0, limit)
        .map(({ id, slot, hasFailed }) => ({ signature: id, slot, err: hasFailed ? {} : null })),
    getTransaction: (id: string, options?: Options) => this.#transaction(id, options),
  };

  #with(value: unknown): object {
    return { context: { slot: this.head.slot, apiVersion: '3.0.0' }, value };
  }

  /** The blocks that are as deep as the commitment. */
  #until({ commitment = 'finalized' }: Options = {}): readonly SolanaBlock[] {
    const depth = { processed: 0, confirmed: 1, finalized: FINAL_SLOTS }[commitment];
    return depth === 0 ? this.blocks : this.blocks.slice(0, -depth);
  }

  #at(options?: Options): SolanaBlock {
    return this.#until(options).at(-1) ?? this.blocks[0]!;
  }

  #account(key: string): object | null {
    const units = this.head.balances.get(key);
    if (units === undefined && key !== SOLANA_USDC) return null;
    const bytes = Buffer.alloc(units === undefined ? MINT_BYTES : TOKEN_ACCOUNT_BYTES);
    // The decimals of the mint, and the states of both.
    if (units === undefined) bytes.set([6, 1], 44);
    else bytes.writeBigUInt64LE(units, AMOUNT_OFFSET);
    if (units !== undefined) bytes[108] = 1;
    const data = [bytes.toString('base64'), 'base64'];
    const account = { lamports: RICH, owner: TOKEN_PROGRAM, executable: false, rentEpoch: 0 };
    return { ...account, space: bytes.length, data };
  }

  #find(id: string) {
    for (const block of this.blocks.toReversed()) {
      const landed = block.landed.find((one) => one.id === id);
      if (landed !== undefined) return { block, landed };
    }
    return undefined;
  }

  #status(id: string): object | null {
    const found = this.#find(id);
    const isWaiting = this.chain.pool.has(id);
    if (this.doesLie ? !isWaiting : found === undefined) return null;
    const { slot, height } = found?.block ?? this.head;
    const isFinal = this.doesLie || this.head.height - height >= FINAL_SLOTS;
    const isConfirmed = isFinal || this.head.height > height;
    return {
      slot,
      confirmations: isFinal ? null : this.head.height - height,
      err: found?.landed.hasFailed === true ? { InstructionError: [2, { Custom: 1 }] } : null,
      confirmationStatus: isFinal ? 'finalized' : isConfirmed ? 'confirmed' : 'processed',
      status: { Ok: null },
    };
  }

  #transaction(id: string, options?: Options): object | null {
    const found = this.#find(id);
    if (found === undefined || found.block.height > this.#at(options).height) return null;
    const { block, landed } = found;
    return {
      slot: block.slot,
      blockTime: block.seconds,
      transaction: [landed.wire, 'base64'],
      meta: { err: null, preBalances: [RICH], postBalances: [RICH - FEE] },
      version: 0,
    };
  }
}
