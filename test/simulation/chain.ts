/** An EVM chain with USDC in the world: blocks, a pool of transactions, and reorganisations. */
import {
  type Hex,
  concat,
  decodeFunctionData,
  encodeAbiParameters,
  encodeEventTopics,
  hashTypedData,
  hexToBytes,
  numberToHex,
  pad,
  toHex,
} from 'viem';
import { privateKeyToAddress } from 'viem/accounts';
import { TOKEN_ABI, transferTypedData } from '../../src/payments/evm/chain.ts';
import { recoverAddress } from '../../src/payments/sign-in/signatures.ts';
import { RpcError } from './rpc-node.ts';
import { Machine, world } from './world.ts';

export const USDC = '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913';
const BLOCK_MS = 2_000;
export const FINAL_DEPTH = 20;
/** The receiver of all payments. */
export const PAY_TO: Hex = '0x1111111111111111111111111111111111111111';
/** Pays refunds to wallets. */
export const REFUND_KEY: Hex = `0x${'33'.repeat(32)}`;
const TREASURY = privateKeyToAddress(REFUND_KEY);
const TREASURY_UNITS = 1_000_000_000_000n;
/** All payments of the simulation are offered so. */
export const OFFER = {
  network: 'eip155:8453',
  asset: USDC,
  payTo: PAY_TO,
  extra: { name: 'USD Coin', version: '2' },
};

export interface State {
  readonly balances: Map<string, bigint>;
  /** Used or cancelled authorizations. */
  readonly used: Set<string>;
  /** Next transaction of each sender. */
  readonly nonces: Map<string, number>;
}

export interface Log {
  readonly topics: readonly Hex[];
  readonly data: Hex;
}

export interface Transaction {
  readonly hash: Hex;
  readonly from: string;
  readonly nonce: number;
  readonly to: string;
  readonly data: Hex;
  readonly maxFeePerGas: bigint;
}

/** The payment that a cancellation has replaced. */
type Rival = Transaction | 'none';

export interface Mined extends Transaction {
  /** `undefined` for one that has failed. */
  readonly logs: readonly Log[] | undefined;
  /** Only a cancellation has one. */
  readonly rival?: Rival;
}

export interface Block {
  readonly number: number;
  readonly hash: Hex;
  readonly parentHash: Hex;
  readonly seconds: number;
  readonly mined: readonly Mined[];
  readonly state: State;
}

export class Chain {
  readonly #machine = new Machine('chain');
  readonly pool = new Map<Hex, Transaction>();
  blocks: Block[] = [];

  constructor() {
    this.#add([], { balances: new Map(), used: new Set(), nonces: new Map() });
    this.mint(TREASURY, TREASURY_UNITS);
  }

  start(): void {
    const next = (): void => {
      this.#mine();
      world().schedule(BLOCK_MS, next, this.#machine);
    };
    world().schedule(BLOCK_MS, next, this.#machine);
  }

  mint(address: string, units: bigint): void {
    this.head.state.balances.set(address.toLowerCase(), units);
  }

  /** Units that `address` has now. */
  balanceOf(address: string): bigint {
    return this.head.state.balances.get(address.toLowerCase()) ?? 0n;
  }

  /** Units of payments in the chain. */
  get received(): bigint {
    return this.balanceOf(PAY_TO);
  }

  /** Units of refunds. */
  get refunded(): bigint {
    return TREASURY_UNITS - this.balanceOf(TREASURY);
  }

  /** Units of all payments, also of those that were dropped. */
  get everReceived(): bigint {
    return [...this.#received.values()].reduce((sum, units) => sum + units, 0n);
  }

  hasEverReceived(nonce: Hex): boolean {
    return this.#received.has(nonce);
  }

  get head(): Block {
    return this.blocks.at(-1)!;
  }

  /** Replaces the newest blocks. Some of their transactions are lost, and some payers cancel. */
  reorganise(depth: number): void {
    const { random } = world();
    const from = Math.max(this.blocks.length - depth, this.blocks.length - FINAL_DEPTH + 1, 1);
    const dropped = this.blocks.splice(from);
    world().note(`the chain drops ${dropped.length} blocks`);
    for (const { mined } of dropped) {
      for (const { logs, rival, ...transaction } of mined) {
        // The cancellation is lost, and the payment arrives again.
        if (rival !== undefined && rival !== 'none') this.pool.set(rival.hash, rival);
        if (rival !== undefined) continue;
        const fate = random.between(1, 4);
        if (fate <= 2) this.pool.set(transaction.hash, transaction);
        if (fate === 3 && logs?.length) this.#cancel(transaction);
      }
    }
    for (let left = dropped.length; left >= 0; left -= 1) this.#mine();
  }

  #cancel(rival: Transaction): void {
    const { args } = decodeFunctionData({ abi: TOKEN_ABI, data: rival.data });
    const [from, nonce] = [args?.[0], args?.[5]] as [Hex, Hex]; // of a transfer
    if (from !== TREASURY) this.cancel(from, nonce, rival);
  }

  /** Cancels an authorization in the next block, if it is not used before. */
  cancel(from: Hex, nonce: Hex, rival: Rival = 'none'): void {
    world().note(`${from} cancels`);
    this.#cancelled.push({ from, nonce, rival });
  }

  readonly #cancelled: { readonly from: Hex; readonly nonce: Hex; readonly rival: Rival }[] = [];
  /** Units of each payment that any branch has ever contained, by nonce. */
  readonly #received = new Map<string, bigint>();

  #mine(): void {
    const { random } = world();
    const state = copyOf(this.head.state);
    const mined: Mined[] = [];
    for (const { from, nonce, rival } of this.#cancelled.splice(0)) {
      if (state.used.has(placeOf(from, nonce))) continue;
      state.used.add(placeOf(from, nonce));
      const topics = topicsOf('AuthorizationCanceled', { authorizer: from, nonce });
      const hash = toHex(random.bytes(32));
      const call = { hash, from, nonce: 0, to: USDC, data: '0x', maxFeePerGas: 0n } as const;
      mined.push({ ...call, logs: [{ topics, data: '0x' }], rival });
    }
    const waiting = [...this.pool.values()].sort((one, other) => one.nonce - other.nonce);
    for (const transaction of waiting) {
      const next = state.nonces.get(transaction.from) ?? 0;
      if (transaction.nonce < next) this.pool.delete(transaction.hash);
      if (transaction.nonce !== next || random.once(4)) continue;
      this.pool.delete(transaction.hash);
      state.nonces.set(transaction.from, next + 1);
      const logs = transferIfValid(transaction.data, state);
      const isPayment = logs?.[1]?.topics[2] === pad(PAY_TO);
      if (isPayment) this.#received.set(logs[0]!.topics[2]!, BigInt(logs[1]!.data));
      mined.push({ ...transaction, logs });
    }
    this.#add(mined, state);
  }

  #add(mined: readonly Mined[], state: State): void {
    const hash = toHex(world().random.bytes(32));
    const parentHash = this.blocks.at(-1)?.hash ?? hash;
    const number = this.blocks.length;
    this.blocks.push({ number, hash, parentHash, seconds: seconds(), mined, state });
  }
}

export function seconds(): number {
  return Math.floor(world().nowMs / 1_000);
}

export function placeOf(authorizer: string, nonce: string): string {
  return `${authorizer} ${nonce}`.toLowerCase();
}

function topicsOf(
  eventName: 'AuthorizationUsed' | 'AuthorizationCanceled' | 'Transfer',
  args: object,
): Hex[] {
  return encodeEventTopics({ abi: TOKEN_ABI, eventName, args }) as Hex[]; // none is optional
}

/** Runs `transferWithAuthorization` on `state`; returns `undefined` for a call that fails. */
export function transferIfValid(data: Hex, state: State): Log[] | undefined {
  try {
    return transfer(data, state);
  } catch (error) {
    if (error instanceof RpcError) return undefined;
    throw error;
  }
}

export function transfer(data: Hex, state: State): Log[] {
  if (data === '0x') return [];
  const { functionName, args } = decodeFunctionData({ abi: TOKEN_ABI, data });
  if (functionName !== 'transferWithAuthorization')
    throw new RpcError('execution reverted: unknown function');
  const [from, to, value, validAfter, validBefore, nonce, v, r, s] = args;
  const signature = concat([r, s, numberToHex(v, { size: 1 })]);
  const typed = transferTypedData(OFFER, { from, to, value, validAfter, validBefore, nonce });
  const signer = recoverAddress(hexToBytes(hashTypedData(typed)), hexToBytes(signature));
  const balance = state.balances.get(from.toLowerCase()) ?? 0n;
  const isInTime = seconds() > Number(validAfter) && seconds() < Number(validBefore);
  if (signer !== from.toLowerCase() || !isInTime)
    throw new RpcError('execution reverted: invalid authorization');
  if (state.used.has(placeOf(from, nonce)))
    throw new RpcError('execution reverted: authorization is used');
  if (balance < value) throw new RpcError('execution reverted: balance is too low');
  state.used.add(placeOf(from, nonce));
  state.balances.set(from.toLowerCase(), balance - value);
  const received = state.balances.get(to.toLowerCase()) ?? 0n;
  state.balances.set(to.toLowerCase(), received + value);
  return [
    { topics: topicsOf('AuthorizationUsed', { authorizer: from, nonce }), data: '0x' },
    {
      topics: topicsOf('Transfer', { from, to }),
      data: encodeAbiParameters([{ type: 'uint256' }], [value]),
    },
  ];
}

export function copyOf({ balances, used, nonces }: State): State {
  return { balances: new Map(balances), used: new Set(used), nonces: new Map(nonces) };
}
