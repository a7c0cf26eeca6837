/** An EVM chain with USDC in the world. */
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
import { Chain } from './chain.ts';
import { world } from './world.ts';

export const USDC = '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913';
const BLOCK_MS = 2_000;
export const FINAL_DEPTH = 20;
/** The receiver of all payments. */
export const PAY_TO: Hex = '0x1111111111111111111111111111111111111111';
/** Pays refunds to wallets. */
export const REFUND_KEY: Hex = `0x${'33'.repeat(32)}`;
const TREASURY = privateKeyToAddress(REFUND_KEY).toLowerCase();
/** All payments of the simulation are offered so. */
export const OFFER = {
  network: 'eip155:8453',
  asset: USDC,
  payTo: PAY_TO,
  extra: { name: 'USD Coin', version: '2' },
};

/** The state after a block. Addresses are in lower case. */
interface State {
  readonly balances: Map<string, bigint>;
  /** Used or cancelled authorizations. */
  readonly used: Set<string>;
  /** Next transaction of each sender. */
  readonly nonces: Map<string, number>;
}

interface Log {
  readonly topics: readonly Hex[];
  readonly data: Hex;
}

interface Transaction {
  readonly hash: Hex;
  readonly from: string;
  readonly nonce: number;
  readonly to: string;
  readonly data: Hex;
  readonly maxFeePerGas: bigint;
}

/** An authorization that its wallet cancels, and the payment that this replaces. */
interface Cancellation {
  readonly from: Hex;
  readonly nonce: Hex;
  readonly rival?: Transaction;
}

export interface Mined extends Transaction {
  /** `undefined` for one that has failed. */
  readonly logs: readonly Log[] | undefined;
  readonly cancellation?: Cancellation;
}

export interface Block extends State {
  readonly number: number;
  readonly hash: Hex;
  readonly parentHash: Hex;
  readonly seconds: number;
  readonly mined: readonly Mined[];
}

export class EvmChain extends Chain<Block, Transaction> {
  /** Authorizations that end in the next block. */
  readonly #cancelled: Cancellation[] = [];

  constructor() {
    super('the chain', BLOCK_MS, FINAL_DEPTH);
    this.#add([], { balances: new Map(), used: new Set(), nonces: new Map() });
    this.open(PAY_TO, TREASURY);
  }

  start(): void {
    this.produceRegularly();
  }

  /** Some transactions are lost, and some payers cancel. */
  protected override drop({ mined }: Block): void {
    for (const { logs, cancellation, ...transaction } of mined) {
      // The cancellation is lost, and the payment arrives again.
      const waiting = cancellation === undefined ? transaction : cancellation.rival;
      const fate = cancellation === undefined ? world().random.between(1, 4) : 1;
      if (fate <= 2 && waiting !== undefined) this.pool.set(waiting.hash, waiting);
      if (fate !== 3 || !logs?.length) continue;
      const { args } = decodeFunctionData({ abi: TOKEN_ABI, data: transaction.data });
      const [from, nonce] = [args?.[0], args?.[5]] as [Hex, Hex]; // of a transfer
      if (from.toLowerCase() !== TREASURY) this.cancel({ from, nonce, rival: transaction });
    }
  }

  /** Cancels an authorization in the next block, if it is not used before. */
  cancel(cancellation: Cancellation): void {
    world().note(`${cancellation.from} cancels`);
    this.#cancelled.push(cancellation);
  }

  protected override produce(): void {
    const { random } = world();
    const state = copyOf(this.head);
    const mined: Mined[] = [];
    for (const cancellation of this.#cancelled.splice(0)) {
      const { from, nonce } = cancellation;
      if (state.used.has(placeOf(from, nonce))) continue;
      state.used.add(placeOf(from, nonce));
      const topics = topicsOf('AuthorizationCanceled', { authorizer: from, nonce });
      const hash = toHex(random.bytes(32));
      const call = { hash, from, nonce: 0, to: USDC, data: '0x', maxFeePerGas: 0n } as const;
      mined.push({ ...call, logs: [{ topics, data: '0x' }], cancellation });
    }
    const waiting = [...this.pool.values()].sort((one, other) => one.nonce - other.nonce);
    for (const transaction of waiting) {
      const next = state.nonces.get(transaction.from) ?? 0;
      if (transaction.nonce < next) this.pool.delete(transaction.hash);
      if (transaction.nonce !== next || random.once(4)) continue;
      this.pool.delete(transaction.hash);
      state.nonces.set(transaction.from, next + 1);
      const logs = logsAfter(transaction.data, state);
      const isPayment = logs?.[1]?.topics[2] === pad(PAY_TO);
      if (isPayment) this.payments.set(logs[0]!.topics[2]!, BigInt(logs[1]!.data));
      mined.push({ ...transaction, logs });
    }
    this.#add(mined, state);
  }

  #add(mined: readonly Mined[], state: State): void {
    const hash = toHex(world().random.bytes(32));
    const parentHash = this.blocks.at(-1)?.hash ?? hash;
    const number = this.blocks.length;
    this.blocks.push({ number, hash, parentHash, seconds: world().seconds, mined, ...state });
  }
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

/** Runs `transferWithAuthorization` on `state`, or returns why the call fails. */
export function transfer(data: Hex, state: State): Log[] | string {
  if (data === '0x') return [];
  const { functionName, args } = decodeFunctionData({ abi: TOKEN_ABI, data });
  if (functionName !== 'transferWithAuthorization') return 'unknown function';
  const [from, to, value, validAfter, validBefore, nonce, v, r, s] = args;
  const signature = concat([r, s, numberToHex(v, { size: 1 })]);
  const typed = transferTypedData(OFFER, { from, to, value, validAfter, validBefore, nonce });
  const signer = recoverAddress(hexToBytes(hashTypedData(typed)), hexToBytes(signature));
  const { balances, used } = state;
  const [payer, receiver] = [from.toLowerCase(), to.toLowerCase()];
  const balance = balances.get(payer) ?? 0n;
  const { seconds } = world();
  const isInTime = seconds > Number(validAfter) && seconds < Number(validBefore);
  if (signer !== payer || !isInTime) return 'invalid authorization';
  if (used.has(placeOf(from, nonce))) return 'authorization is used';
  if (balance < value) return 'balance is too low';
  used.add(placeOf(from, nonce));
  balances.set(payer, balance - value);
  balances.set(receiver, (balances.get(receiver) ?? 0n) + value);
  const amount = encodeAbiParameters([{ type: 'uint256' }], [value]);
  return [
    { topics: topicsOf('AuthorizationUsed', { authorizer: from, nonce }), data: '0x' },
    { topics: topicsOf('Transfer', { from, to }), data: amount },
  ];
}

/** The logs of a transaction; `undefined` if it fails. */
export function logsAfter(data: Hex, state: State): Log[] | undefined {
  const logs = transfer(data, state);
  return typeof logs === 'string' ? undefined : logs;
}

export function copyOf({ balances, used, nonces }: State): State {
  return { balances: new Map(balances), used: new Set(used), nonces: new Map(nonces) };
}
