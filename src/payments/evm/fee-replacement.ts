/**
 * Raises the fees of transactions that wait too long: the same call with the same nonce and higher fees, so
 * that the chain mines one of them and never both. Fills nonces that were reserved and not used.
 *
 * Invariants: the new bytes replace the old ones in the database before a node receives them, and only one
 * process writes them; fees stay below the configured cap. The log of the authorization, which is in both,
 * shows that one of them was mined.
 */
import {
  type Hex,
  type TransactionSerializable,
  keccak256,
  parseSignature,
  parseTransaction,
  serializeTransaction,
} from 'viem';
import { SECOND_MS } from '../../core/clock.ts';
import { larger, smaller } from '../../core/money.ts';
import { chainReason } from '../chain-log.ts';
import type { EvmKey } from '../evm-key.ts';
import { storeSent } from '../gas.ts';
import type { RailOptions, SentTransaction } from '../rail.ts';
import type { EvmClient, TransactionCounts } from './chain.ts';

/** 15 blocks of Base. */
const STUCK_AFTER_MS = 30 * SECOND_MS;
/** The lowest numbers block the others. */
const MAX_REPLACED = 16;
/** Nodes require 10 % more of both fees; 12.5 % is enough with any rounding. */
const BUMP_PER_MILLE = 1125n;

export interface Fees {
  readonly maxFeePerGas: bigint;
  readonly maxPriorityFeePerGas: bigint;
}

export interface GasKeyOptions extends Pick<RailOptions, 'store' | 'clock' | 'log'> {
  readonly client: EvmClient;
  readonly counts: TransactionCounts;
  readonly key: EvmKey;
  readonly chainId: number;
  readonly maxGas: bigint;
  readonly maxFeePerGas: bigint;
}

interface WaitingRow {
  readonly number: bigint;
  readonly raw_tx: Hex;
}

export class FeeReplacement {
  readonly #options: GasKeyOptions;
  readonly #gasKey: string;
  readonly #marketFees: () => Promise<Fees>;
  /** Lower numbers are mined. */
  #mined = 0;
  #running: Promise<void> | undefined;

  constructor(options: GasKeyOptions, gasKey: string, marketFees: () => Promise<Fees>) {
    this.#options = options;
    this.#gasKey = gasKey;
    this.#marketFees = marketFees;
  }

  async run(): Promise<void> {
    this.#running ??= this.#run().finally(() => {
      this.#running = undefined;
    });
    await this.#running;
  }

  async #run(): Promise<void> {
    if ((await this.#waiting()).length === 0) return;
    this.#mined = await this.#options.counts.mined();
    const rows = await this.#waiting();
    const [first] = rows;
    if (first === undefined) return;
    const market = await this.#marketFees();
    await this.#fillBelow(Number(first.number), market);
    for (const row of rows) await this.#raise(row, market);
  }

  async #waiting(): Promise<readonly WaitingRow[]> {
    const { store, clock } = this.#options;
    return await store.query<WaitingRow>(
      `SELECT number, raw_tx FROM payments_gas_transaction
       WHERE gas_key = $1 AND number >= $2 AND ${isStuck('$3', '$4')}
       ORDER BY number LIMIT $5`,
      [this.#gasKey, this.#mined, clock.nowMs(), STUCK_AFTER_MS, MAX_REPLACED],
    );
  }

  /**
   * Sends empty transactions with the nonces that no transaction has: a process that has ended had
   * reserved them, and the chain mines no later one before.
   */
  async #fillBelow(until: number, market: Fees): Promise<void> {
    const { client, key, chainId, maxGas, store, clock, log } = this.#options;
    const { address } = key;
    const pending = await this.#options.counts.pending();
    if (pending >= until) return;
    const empty = { to: address, value: 0n } as const;
    const gas = await client.estimateGas({ account: address, ...empty, ...market });
    if (gas > maxGas) throw new Error(`An empty transaction needs ${gas} gas`);
    // A node that is far behind reports a number that was used before.
    const end = Math.min(until, pending + MAX_REPLACED);
    for (let nonce = pending; nonce < end; nonce += 1) {
      const call = { ...empty, ...market, gas, type: 'eip1559', chainId, nonce } as const;
      const raw = signTransaction(key, call);
      const nowMs = clock.nowMs();
      const added = await store.query(
        `INSERT INTO payments_gas_transaction (gas_key, number, raw_tx, sent_ms)
         VALUES ($1, $2, $3, now_ms($4)) ON CONFLICT (gas_key, number) DO NOTHING RETURNING number`,
        [this.#gasKey, nonce, raw, nowMs],
      );
      if (added.length === 0) continue;
      log.warn({ number: nonce }, 'A gas nonce was lost: an empty transaction takes its place');
      await storeSent(store, sentBy(this.#gasKey, BigInt(nonce), raw, nowMs));
      await this.#broadcast(raw);
    }
  }

  async #raise(row: WaitingRow, market: Fees): Promise<void> {
    const { key, log, maxFeePerGas: cap } = this.#options;
    const old = parseTransaction(row.raw_tx);
    if (old.type !== 'eip1559') throw new Error('A stored transaction must have the type eip1559');
    const note = { number: Number(row.number), transaction: keccak256(row.raw_tx) };
    const { maxFeePerGas = 0n, maxPriorityFeePerGas = 0n } = old;
    const fees = raisedFees({ maxFeePerGas, maxPriorityFeePerGas }, market, cap);
    if (fees === undefined) {
      log.warn(note, 'A transaction waits at the highest fee: raise maxFeeGwei');
      // The node may have dropped it when the market fee rose.
      if (await this.#keep(row, row.raw_tx)) await this.#broadcast(row.raw_tx);
      return;
    }
    const { r: _r, s: _s, v: _v, yParity: _y, ...call } = old;
    const raw = signTransaction(key, { ...call, ...fees });
    if (!(await this.#keep(row, raw))) return;
    log.warn(
      { ...note, replacement: keccak256(raw), maxFeePerGas: fees.maxFeePerGas.toString() },
      'A transaction waited too long: its fee was raised',
    );
    await this.#broadcast(raw);
  }

  /** Writes the bytes to send; returns `false` if another process has written others. */
  async #keep(row: WaitingRow, raw: Hex): Promise<boolean> {
    const { store, clock } = this.#options;
    const nowMs = clock.nowMs();
    await storeSent(store, sentBy(this.#gasKey, row.number, raw, nowMs));
    const kept = await store.query(
      `UPDATE payments_gas_transaction SET raw_tx = $4, sent_ms = now_ms($5)
       WHERE gas_key = $1 AND number = $2 AND raw_tx = $3 AND ${isStuck('$5', '$6')}
       RETURNING number`,
      [this.#gasKey, row.number, row.raw_tx, raw, nowMs, STUCK_AFTER_MS],
    );
    return kept.length === 1;
  }

  async #broadcast(serializedTransaction: Hex): Promise<void> {
    const { client, log } = this.#options;
    try {
      await client.sendRawTransaction({ serializedTransaction });
    } catch (error) {
      // It is mined, or the node is unreachable; the next run tries again.
      log.info(
        { reason: chainReason(error) },
        'The node did not accept a transaction with a raised fee',
      );
    }
  }
}

/** A later time was written before the clock was set back. */
function isStuck(nowMs: string, afterMs: string): string {
  return `(sent_ms <= now_ms(${nowMs}) - ${afterMs} OR sent_ms > now_ms(${nowMs}))`;
}

/** `gasKey` is `<network>/<address>`. */
export function sentBy(gasKey: string, number: bigint, raw: Hex, sentMs: number): SentTransaction {
  const [network = '', payer = ''] = gasKey.split('/');
  return { transaction: keccak256(raw), network, payer, number, sentMs };
}

/** The signed bytes of a transaction. Deterministic. */
export function signTransaction(key: EvmKey, transaction: TransactionSerializable): Hex {
  const signature = key.sign(keccak256(serializeTransaction(transaction), 'bytes'));
  return serializeTransaction(transaction, parseSignature(signature));
}

/** The higher of the market fees and 12.5 % more than before; `undefined` above the cap. */
function raisedFees(old: Fees, market: Fees, cap: bigint): Fees | undefined {
  const leastFee = bumped(old.maxFeePerGas);
  const leastTip = bumped(old.maxPriorityFeePerGas);
  const maxFeePerGas = smaller(larger(leastFee, market.maxFeePerGas), cap);
  if (maxFeePerGas < leastFee || leastTip > maxFeePerGas) return undefined;
  const tip = larger(leastTip, market.maxPriorityFeePerGas);
  return { maxFeePerGas, maxPriorityFeePerGas: smaller(tip, maxFeePerGas) };
}

/** Rounded up: a tip of zero becomes one wei. */
function bumped(fee: bigint): bigint {
  return (fee * BUMP_PER_MILLE) / 1000n + 1n;
}
