/** A node of the chain with JSON-RPC, for the calls that a payment needs. It can lag behind, lie or fail. */
import {
  type Hex,
  decodeFunctionData,
  domainSeparator,
  encodeFunctionResult,
  getAddress,
  keccak256,
  numberToHex,
  parseTransaction,
  recoverTransactionAddress,
} from 'viem';
import { TOKEN_ABI, tokenDomain } from '../../src/payments/evm/chain.ts';
import {
  type Block,
  type EvmChain,
  FINAL_DEPTH,
  type Mined,
  OFFER,
  USDC,
  copyOf,
  logsAfter,
  placeOf,
  transfer,
} from './evm-chain.ts';
import { RpcError, RpcNode } from './rpc-node.ts';
import { world } from './world.ts';

const CHAIN_ID = 8_453;
const BASE_FEE = 10_000_000;
const GAS = 80_000;
const RICH = 10n ** 20n;
/** A number of no block, and of more transactions than there are. */
const FAR = 1_000_000;
/** Begins the addresses of contracts with a code that is streamed. */
const CONTRACTS = '0x0000';
const LONG_CODE = `0x${'00'.repeat(600_000)}`;
/** Code of an error. */
const REJECTED = -32_000;

interface Call {
  readonly to?: string;
  readonly data?: Hex;
  readonly input?: Hex;
}

type Topics = Hex | readonly Hex[] | null;

interface Filter {
  readonly topics?: readonly Topics[];
  readonly fromBlock: Hex;
  readonly toBlock: Hex;
}

export class EvmNode extends RpcNode<Block, EvmChain> {
  protected override readonly asJson = (_name: string, value: unknown): unknown =>
    typeof value === 'number' || typeof value === 'bigint' ? numberToHex(value) : value;

  protected override readonly methods = {
    eth_chainId: () => CHAIN_ID,
    eth_blockNumber: () => this.head.number,
    eth_getBlockByNumber: (tag: string) => blockOf(this.#block(tag)),
    eth_getBalance: () => RICH,
    eth_getCode: (address: string) => {
      if (address.startsWith(CONTRACTS)) return LONG_CODE;
      return isToken(address) ? '0x01' : '0x';
    },
    eth_maxPriorityFeePerGas: () => BASE_FEE,
    eth_estimateGas: (call: Call) => (this.#view(call), GAS),
    eth_call: (call: Call) => this.#view(call),
    eth_getTransactionCount: (address: string, tag: string) =>
      this.#nonceOf(address.toLowerCase(), tag === 'pending'),
    eth_sendRawTransaction: (raw: Hex) => this.#accept(raw),
    eth_getTransactionByHash: (hash: Hex) => this.#transaction(hash),
    eth_getTransactionReceipt: (hash: Hex) => this.#receipt(hash),
    eth_getLogs: (filter: Filter) => this.#logs(filter),
  };

  #block(tag: string): Block | undefined {
    if (tag === 'latest' && this.doesLie) return { ...this.head, number: FAR };
    if (tag === 'latest') return this.head;
    const final = Math.max(0, this.head.number - FINAL_DEPTH);
    return this.blocks[tag === 'finalized' ? final : Number(tag)];
  }

  #view({ to = '', data, input }: Call): Hex {
    const call = data ?? input ?? '0x';
    if (!isToken(to)) return '0x';
    const { functionName, args } = decoded(call);
    if (functionName === 'DOMAIN_SEPARATOR') return domainSeparator({ domain: tokenDomain(OFFER) });
    if (functionName === 'authorizationState') {
      const result = this.doesLie !== this.head.used.has(placeOf(...args));
      return encodeFunctionResult({ abi: TOKEN_ABI, functionName, result });
    }
    if (functionName === 'balanceOf') {
      const result = this.head.balances.get(args[0].toLowerCase()) ?? 0n;
      return encodeFunctionResult({ abi: TOKEN_ABI, functionName, result });
    }
    const failure = transfer(call, copyOf(this.head));
    if (typeof failure === 'string') throw new RpcError(`execution reverted: ${failure}`);
    return '0x';
  }

  #nonceOf(address: string, isPending: boolean): number {
    if (this.doesLie) return FAR;
    let next = this.head.nonces.get(address) ?? 0;
    if (!isPending) return next;
    const own = [...this.chain.pool.values()].filter(({ from }) => from === address);
    while (own.some(({ nonce }) => nonce === next)) next += 1;
    return next;
  }

  async #accept(raw: Hex): Promise<Hex> {
    const { random } = world();
    const { pool } = this.chain;
    const hash = keccak256(raw);
    const parsed = parseTransaction(raw);
    const sender = await recoverTransactionAddress({ serializedTransaction: raw as never });
    const from = sender.toLowerCase();
    const { nonce = 0, to, data = '0x', maxFeePerGas = 0n } = parsed;
    if (pool.has(hash)) throw new RpcError('already known', REJECTED);
    if (nonce < (this.head.nonces.get(from) ?? 0)) throw new RpcError('nonce too low', REJECTED);
    const same = [...pool.values()].find((one) => one.from === from && one.nonce === nonce);
    if (same !== undefined && maxFeePerGas * 10n < same.maxFeePerGas * 11n) {
      throw new RpcError('replacement transaction underpriced', REJECTED);
    }
    if (same !== undefined) pool.delete(same.hash);
    // Some nodes drop a transaction that they have accepted.
    if (!random.once(8)) pool.set(hash, { hash, from, nonce, to: to ?? '', data, maxFeePerGas });
    return hash;
  }

  #find(hash: Hex): { readonly block: Block; readonly mined: Mined } | undefined {
    for (const block of this.blocks) {
      const mined = block.mined.find((one) => one.hash === hash);
      if (mined !== undefined) return { block, mined };
    }
    const waiting = this.chain.pool.get(hash);
    if (!this.doesLie || waiting === undefined) return undefined;
    const logs = logsAfter(waiting.data, copyOf(this.head));
    return { block: this.head, mined: { ...waiting, logs } };
  }

  #transaction(hash: Hex): object | null {
    const found = this.#find(hash);
    const one = found?.mined ?? this.chain.pool.get(hash);
    if (one === undefined) return null;
    const { from, to, nonce, data: input } = one;
    return { hash, from, to, nonce, input, ...placeOfBlock(found?.block) };
  }

  #receipt(hash: Hex): object | null {
    const found = this.#find(hash);
    if (found === undefined) return null;
    const { block, mined } = found;
    return {
      transactionHash: hash,
      ...placeOfBlock(block),
      from: mined.from,
      to: mined.to,
      gasUsed: GAS,
      effectiveGasPrice: BASE_FEE,
      logs: logsOf(block, mined),
      status: mined.logs === undefined ? 0 : 1,
    };
  }

  #logs({ topics = [], fromBlock, toBlock }: Filter): object[] {
    const first = this.#block(fromBlock)?.number ?? Infinity;
    const last = (this.#block(toBlock) ?? this.head).number;
    return this.blocks
      .slice(first, last + 1)
      .flatMap((block) => block.mined.flatMap((mined) => logsOf(block, mined)))
      .filter((log) => topics.every((wanted, at) => isWanted(log.topics[at], wanted)));
  }
}

function isWanted(topic: string | undefined, wanted: Topics): boolean {
  return wanted === null || [wanted].flat().some((one) => isEqual(one, topic));
}

function isToken(address: string): boolean {
  return isEqual(address, USDC);
}

function isEqual(hex: string, other: string | undefined): boolean {
  return hex.toLowerCase() === other?.toLowerCase();
}

function decoded(data: Hex) {
  try {
    return decodeFunctionData({ abi: TOKEN_ABI, data });
  } catch {
    throw new RpcError('execution reverted: the contract has no such function');
  }
}

function blockOf(block: Block | undefined): object | null {
  if (block === undefined) return null;
  const { number, hash, parentHash, seconds: timestamp, mined } = block;
  const transactions = mined.map((one) => one.hash);
  return { number, hash, parentHash, timestamp, baseFeePerGas: BASE_FEE, transactions };
}

function placeOfBlock(block: Block | undefined) {
  return { blockHash: block?.hash ?? null, blockNumber: block?.number ?? null };
}

function logsOf(block: Block, { hash, logs = [] }: Mined) {
  const before = block.mined.findIndex((one) => one.hash === hash);
  const first = block.mined.slice(0, before).flatMap((one) => one.logs ?? []).length;
  return logs.map((log, at) => ({
    ...log,
    address: getAddress(USDC),
    ...placeOfBlock(block),
    transactionHash: hash,
    transactionIndex: 0,
    logIndex: first + at,
    removed: false,
  }));
}
