/** A node of the chain with JSON-RPC, for the calls that a payment needs. It can lag behind, lie or fail. */
import {
  type Hex,
  decodeFunctionData,
  encodeFunctionResult,
  getAddress,
  keccak256,
  numberToHex,
  parseTransaction,
  recoverTransactionAddress,
} from 'viem';
import {
  ABI,
  type Block,
  type Chain,
  FINAL_DEPTH,
  type Mined,
  Reverted,
  USDC,
  copyOf,
  placeOf,
  transfer,
  transferIfValid,
} from './chain.ts';
import { responseOf, serveHttp } from './http-wire.ts';
import { Machine, world } from './world.ts';

const CHAIN_ID = 8_453;
const BASE_FEE = 10_000_000n;
const GAS = 80_000n;
const RICH = 10n ** 20n;

/** An error that a node returns. */
class NodeError extends Error {
  readonly code: number;

  constructor(code: number, message: string) {
    super(message);
    this.code = code;
  }
}

interface Call {
  readonly to?: string;
  readonly data?: Hex;
  readonly input?: Hex;
}

interface Filter {
  readonly topics?: readonly (Hex | readonly Hex[] | null)[];
  readonly fromBlock: Hex;
  readonly toBlock: Hex;
}

export class ChainNode {
  readonly machine: Machine;
  readonly #chain: Chain;
  readonly #port: number;
  readonly url: string;
  /** The blocks of a node that lags behind, possibly of a branch that was dropped. */
  frozen: Block[] | undefined;
  /** Reports waiting transactions as mined, and mined ones as unknown. */
  doesLie = false;
  /** One call in so many fails; 0 for none. */
  failOnce = 0;

  constructor(chain: Chain, port: number) {
    this.#chain = chain;
    this.#port = port;
    this.url = `http://127.0.0.1:${port}/`;
    this.machine = new Machine(`node ${port}`);
  }

  start(): void {
    this.machine.run(() => {
      serveHttp(this.#port, ({ body }, socket) => {
        void this.#respond(body.toString('utf8')).then((reply) =>
          socket.write(responseOf(200, 'application/json', reply)),
        );
      });
    });
  }

  async #respond(body: string): Promise<string> {
    const {
      id,
      method,
      params = [],
    } = JSON.parse(body) as {
      readonly id: unknown;
      readonly method: string;
      readonly params?: readonly unknown[];
    }; // sent by our server
    const { random } = world();
    try {
      if (this.failOnce > 0 && random.once(this.failOnce))
        throw new NodeError(-32_603, 'overloaded');
      const result = await this.#call(method, params);
      return JSON.stringify({ jsonrpc: '2.0', id, result });
    } catch (error) {
      const code = error instanceof NodeError ? error.code : 3;
      const isKnown = error instanceof NodeError || error instanceof Reverted;
      if (!isKnown) world().fail(error instanceof Error ? error : new Error(String(error)));
      const message =
        error instanceof Reverted ? `execution reverted: ${error.message}` : String(error);
      return JSON.stringify({ jsonrpc: '2.0', id, error: { code, message } });
    }
  }

  get #blocks(): readonly Block[] {
    return this.frozen ?? this.#chain.blocks;
  }

  get #head(): Block {
    return this.#blocks.at(-1)!;
  }

  #block(tag: string): Block | undefined {
    const newest = this.#blocks.length - 1;
    if (tag === 'latest' || tag === 'pending') return this.#head;
    if (tag === 'finalized' || tag === 'safe')
      return this.#blocks[Math.max(0, newest - FINAL_DEPTH)];
    return this.#blocks[Number(tag)];
  }

  async #call(method: string, params: readonly unknown[]): Promise<unknown> {
    const [first, second] = params as [string, string?]; // the first is a text in most methods
    switch (method) {
      case 'eth_chainId':
        return numberToHex(CHAIN_ID);
      case 'eth_blockNumber':
        return numberToHex(this.#head.number);
      case 'eth_getBlockByNumber':
        return blockOf(this.#block(first));
      case 'eth_getBalance':
        return numberToHex(RICH);
      case 'eth_getCode':
        return first.toLowerCase() === USDC.toLowerCase() ? '0x01' : '0x';
      case 'eth_gasPrice':
      case 'eth_maxPriorityFeePerGas':
        return numberToHex(BASE_FEE);
      case 'eth_estimateGas':
        this.#view(params[0] as Call);
        return numberToHex(GAS);
      case 'eth_call':
        return this.#view(params[0] as Call);
      case 'eth_getTransactionCount':
        return numberToHex(this.#nonceOf(first.toLowerCase(), second === 'pending'));
      case 'eth_sendRawTransaction':
        return this.#accept(first as Hex);
      case 'eth_getTransactionByHash':
        return this.#transaction(first as Hex);
      case 'eth_getTransactionReceipt':
        return this.#receipt(first as Hex);
      case 'eth_getLogs':
        return this.#logs(params[0] as Filter);
      default:
        throw new NodeError(-32_601, `the method ${method} does not exist`);
    }
  }

  #view({ to, data, input }: Call): Hex {
    const call = data ?? input ?? '0x';
    if (to?.toLowerCase() !== USDC.toLowerCase()) return '0x';
    const { state } = this.#head;
    const { functionName, args } = decoded(call);
    const result = (value: never): Hex =>
      encodeFunctionResult({ abi: ABI, functionName, result: value });
    switch (functionName) {
      case 'decimals':
        return result(6 as never);
      case 'name':
        return result('USD Coin' as never);
      case 'version':
        return result('2' as never);
      case 'balanceOf':
        return result((state.balances.get(args[0].toLowerCase()) ?? 0n) as never);
      case 'authorizationState':
        return result((this.doesLie !== state.used.has(placeOf(...args))) as never);
      case 'transferWithAuthorization':
        transfer(call, copyOf(state));
        return '0x';
    }
  }

  #nonceOf(address: string, isPending: boolean): number {
    let next = this.#head.state.nonces.get(address) ?? 0;
    if (!isPending) return next;
    const waiting = new Set(
      [...this.#chain.pool.values()]
        .filter(({ from }) => from === address)
        .map(({ nonce }) => nonce),
    );
    while (waiting.has(next)) next += 1;
    return next;
  }

  async #accept(raw: Hex): Promise<Hex> {
    const { random } = world();
    const { pool } = this.#chain;
    const hash = keccak256(raw);
    const parsed = parseTransaction(raw);
    const sender = await recoverTransactionAddress({ serializedTransaction: raw as never });
    const from = sender.toLowerCase();
    const { nonce = 0, to, data = '0x', maxFeePerGas = 0n } = parsed;
    if (pool.has(hash)) throw new NodeError(-32_000, 'already known');
    if (nonce < (this.#head.state.nonces.get(from) ?? 0))
      throw new NodeError(-32_000, 'nonce too low');
    const same = [...pool.values()].find((one) => one.from === from && one.nonce === nonce);
    if (same !== undefined && maxFeePerGas * 10n < same.maxFeePerGas * 11n) {
      throw new NodeError(-32_000, 'replacement transaction underpriced');
    }
    if (same !== undefined) pool.delete(same.hash);
    // Some nodes drop a transaction that they have accepted.
    if (!random.once(8)) pool.set(hash, { hash, from, nonce, to: to ?? '', data, maxFeePerGas });
    return hash;
  }

  #find(hash: Hex): { readonly block: Block; readonly mined: Mined } | undefined {
    for (const block of this.#blocks) {
      const mined = block.mined.find((one) => one.hash === hash);
      if (mined !== undefined) return { block, mined };
    }
    const waiting = this.#chain.pool.get(hash);
    if (!this.doesLie || waiting === undefined) return undefined;
    const logs = transferIfValid(waiting.data, copyOf(this.#head.state));
    return { block: this.#head, mined: { ...waiting, logs } };
  }

  #transaction(hash: Hex): object | null {
    const found = this.#find(hash);
    const one = found?.mined ?? this.#chain.pool.get(hash);
    if (one === undefined) return null;
    return {
      hash,
      from: one.from,
      to: one.to,
      nonce: numberToHex(one.nonce),
      input: one.data,
      value: '0x0',
      gas: numberToHex(GAS),
      type: '0x2',
      maxFeePerGas: numberToHex(one.maxFeePerGas),
      maxPriorityFeePerGas: '0x0',
      chainId: numberToHex(CHAIN_ID),
      blockHash: found?.block.hash ?? null,
      blockNumber: found === undefined ? null : numberToHex(found.block.number),
      transactionIndex: found === undefined ? null : '0x0',
    };
  }

  #receipt(hash: Hex): object | null {
    const found = this.#find(hash);
    if (found === undefined) return null;
    const { block, mined } = found;
    return {
      transactionHash: hash,
      transactionIndex: '0x0',
      blockHash: block.hash,
      blockNumber: numberToHex(block.number),
      from: mined.from,
      to: mined.to,
      cumulativeGasUsed: numberToHex(GAS),
      gasUsed: numberToHex(GAS),
      effectiveGasPrice: numberToHex(BASE_FEE),
      contractAddress: null,
      logs: logsOf(block, mined),
      logsBloom: '0x',
      status: mined.logs === undefined ? '0x0' : '0x1',
      type: '0x2',
    };
  }

  #logs({ topics = [], fromBlock, toBlock }: Filter): object[] {
    const [from, to] = [
      this.#block(fromBlock)?.number ?? Infinity,
      this.#block(toBlock) ?? this.#head,
    ];
    return this.#blocks
      .filter(({ number }) => number >= from && number <= to.number)
      .flatMap((block) => block.mined.flatMap((mined) => logsOf(block, mined)))
      .filter((log) =>
        topics.every(
          (wanted, at) =>
            wanted === null ||
            [wanted].flat().some((one) => one.toLowerCase() === log.topics[at]?.toLowerCase()),
        ),
      );
  }
}

function decoded(data: Hex) {
  try {
    return decodeFunctionData({ abi: ABI, data });
  } catch {
    throw new Reverted('the contract has no such function');
  }
}

function blockOf(block: Block | undefined): object | null {
  if (block === undefined) return null;
  return {
    number: numberToHex(block.number),
    hash: block.hash,
    parentHash: block.parentHash,
    timestamp: numberToHex(block.seconds),
    baseFeePerGas: numberToHex(BASE_FEE),
    transactions: block.mined.map(({ hash }) => hash),
  };
}

function logsOf(block: Block, { hash, logs }: Mined) {
  const before = block.mined.slice(
    0,
    block.mined.findIndex((one) => one.hash === hash),
  );
  const first = before.reduce((sum, one) => sum + (one.logs?.length ?? 0), 0);
  return (logs ?? []).map((log, at) => ({
    ...log,
    address: getAddress(USDC),
    blockHash: block.hash,
    blockNumber: numberToHex(block.number),
    transactionHash: hash,
    transactionIndex: '0x0',
    logIndex: numberToHex(first + at),
    removed: false,
  }));
}
