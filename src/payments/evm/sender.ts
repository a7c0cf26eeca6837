/**
 * Sends transactions from one gas key.
 *
 * Invariants: the id and the bytes of a transaction are in the database before a node receives them; gas
 * and fee never exceed the configured caps; a process assigns nonces and sends one transaction at a time,
 * and the database has the next nonce, so that several processes can share a key. The bytes of every nonce
 * are kept for a day: transactions that the node has lost are sent again before later ones, which could not
 * be mined without them.
 */
import { smaller } from '../../core/money.ts';
import { type Hex, keccak256, parseTransaction } from 'viem';
import { DAY_MS, SECOND_MS } from '../../core/clock.ts';
import { reasonOf } from '../../core/log.ts';
import { chainReason } from '../chain-log.ts';
import { storeSent } from '../gas.ts';
import type { Rebroadcast } from '../rail.ts';
import { MAX_WAITING, isExecutionFailure, isKnownTransaction, receiptOf } from './chain.ts';
import {
  type Fees,
  type GasKeyOptions,
  FeeReplacement,
  sentBy,
  signTransaction,
} from './fee-replacement.ts';

export interface Call {
  readonly to: Hex;
  readonly data: Hex;
}

type JournalCall = (transaction: Hex, raw: Hex) => Promise<void>;

interface Price extends Fees {
  readonly gas: bigint;
}

/** The simulation of a call failed, so it was not sent. */
export class RefusedError extends Error {
  override readonly name = 'RefusedError';
}

/** Attempts with a new nonce, if another process has used the same one. */
const MAX_TRIES = 4;
/** After this time the nonce of the chain is used: earlier transactions are mined or lost. */
const NUMBER_TRUST_MS = 60 * SECOND_MS;
const KEEP_BYTES_MS = DAY_MS;
/** A fee is raised by an eighth, so this many attempts raise it 100,000-fold. */
const MAX_ATTEMPTS = 100;
/** An estimate holds for one block only. */
const GAS_MARGIN_PERCENT = 125n;
const COLLISION = /nonce too low|replacement transaction underpriced|already (?:known|imported)/i;

export class EvmSender {
  readonly #options: GasKeyOptions;
  readonly #gasKey: string;
  readonly feeReplacement: FeeReplacement;
  #last: Promise<unknown> = Promise.resolve();
  /** A nonce was reserved and not used, possibly by a process that ended. */
  #hasUnusedNumber = true;

  constructor(options: GasKeyOptions) {
    this.#options = options;
    this.#gasKey = `eip155:${options.chainId}/${options.key.address.toLowerCase()}`;
    this.feeReplacement = new FeeReplacement(options, this.#gasKey, () => this.#marketFees());
  }

  get address(): Hex {
    return this.#options.key.address;
  }

  /**
   * Signs a call, calls `journal` and broadcasts. Rejects with `RefusedError` if the chain would reject the
   * call, and with another error if it was not sent or may not have been sent.
   */
  async send(call: Call, journal: JournalCall): Promise<Hex> {
    const result = this.#last.then(() => this.#send(call, journal));
    this.#last = result.catch(() => undefined);
    return await result;
  }

  /**
   * Sends stored bytes again, or those with a higher fee that replaced them. Returns `reverted` if a block
   * has them without effect, and `dead` if another transaction has used the nonce.
   */
  async rebroadcast(stored: Hex): Promise<Rebroadcast> {
    const { client } = this.#options;
    const raw = await this.#latestOf(stored);
    try {
      await client.sendRawTransaction({ serializedTransaction: raw });
      return 'sent';
    } catch (error) {
      if (!COLLISION.test(reasonOf(error))) throw error;
      const transaction = keccak256(raw);
      if ((await receiptOf(client, transaction))?.status === 'reverted') return 'reverted';
      return (await isKnownTransaction(client, transaction)) ? 'sent' : 'dead';
    }
  }

  /** The ids of the transactions that have the gas nonce of this one. Never rejects. */
  async attemptsOf(transaction: Hex): Promise<readonly Hex[]> {
    const rows = await this.#options.store
      .query<{ tx_id: Hex }>(
        `SELECT other.tx_id AS tx_id FROM payments_gas one JOIN payments_gas other
           ON other.network = one.network AND other.payer = one.payer AND other.number = one.number
         WHERE one.tx_id = $1 ORDER BY other.sent_ms DESC LIMIT $2`,
        [transaction, MAX_ATTEMPTS],
      )
      .catch(() => []); // without the database, only the transaction itself is known
    return rows.map(({ tx_id: id }) => id);
  }

  async #send(call: Call, journal: JournalCall): Promise<Hex> {
    const { client, key, chainId, log } = this.#options;
    const price = await this.#price(call);
    for (let tries = 1; ; tries += 1) {
      const nonce = await this.#nextNumber();
      const raw = signTransaction(key, {
        ...call,
        ...price,
        type: 'eip1559',
        chainId,
        nonce,
        value: 0n,
      });
      const transaction = keccak256(raw);
      try {
        await journal(transaction, raw);
        await this.#keepBytes(nonce, raw);
      } catch (error) {
        // The transaction was not sent. Reuse its nonce: a gap would block all later transactions.
        await this.#forgetNumber().catch(() => undefined); // repeated with the next one
        throw error;
      }
      try {
        await client.sendRawTransaction({ serializedTransaction: raw });
        return transaction;
      } catch (error) {
        await this.#forgetNumber();
        const isCollision = COLLISION.test(reasonOf(error));
        // After a lost response the repeated request is a collision too.
        if (isCollision && (await isKnownTransaction(client, transaction))) return transaction;
        if (!isCollision || tries === MAX_TRIES) throw error;
        log.info({ tries }, 'Another transaction used the nonce; trying the next one');
      }
    }
  }

  async #price(call: Call): Promise<Price> {
    try {
      const fees = await this.#marketFees();
      return { ...fees, gas: await this.#gas(call, fees) };
    } catch (error) {
      throw error instanceof RefusedError ? error : new Error(chainReason(error));
    }
  }

  /** The gas limit. A call that fails here is not sent, because the code of a contract wallet runs in it. */
  async #gas(call: Call, fees: Fees): Promise<bigint> {
    const { client, key, maxGas } = this.#options;
    const { address } = key;
    try {
      const estimate = await client.estimateGas({
        account: address,
        ...call,
        ...fees,
        gas: maxGas,
      });
      if (estimate > maxGas) {
        throw new RefusedError(`the call needs ${estimate} gas, more than the cap of ${maxGas}`);
      }
      return smaller((estimate * GAS_MARGIN_PERCENT) / 100n, maxGas);
    } catch (error) {
      if (!isExecutionFailure(error)) throw error;
      // Nodes return the same error if the key cannot pay for the gas limit.
      const balance = await client.getBalance({ address });
      if (balance < maxGas * fees.maxFeePerGas)
        throw new Error('The gas key cannot pay for the gas', { cause: error });
      throw new RefusedError('the chain rejects the call');
    }
  }

  /** Fees of the next block, at most the cap. Throws if the base fee alone is above it. */
  async #marketFees(): Promise<Fees> {
    const { client, maxFeePerGas: cap } = this.#options;
    const [block, tip] = await Promise.all([
      client.getBlock(),
      client.estimateMaxPriorityFeePerGas(),
    ]);
    const baseFee = block.baseFeePerGas ?? 0n;
    if (baseFee > cap) throw new Error(`The base fee of ${baseFee} wei is above the cap`);
    const maxFeePerGas = smaller(baseFee * 2n + tip, cap);
    return { maxFeePerGas, maxPriorityFeePerGas: smaller(tip, maxFeePerGas) };
  }

  /** The current bytes of a stored transaction, whose fee may have been raised. */
  async #latestOf(stored: Hex): Promise<Hex> {
    const before = parseTransaction(stored);
    const [row] = await this.#options.store.query<{ raw_tx: Hex }>(
      'SELECT raw_tx FROM payments_gas_transaction WHERE gas_key = $1 AND number = $2',
      [this.#gasKey, before.nonce ?? 0],
    );
    if (row === undefined) return stored;
    const { to, data } = parseTransaction(row.raw_tx);
    return to === before.to && data === before.data ? row.raw_tx : stored;
  }

  async #nextNumber(): Promise<number> {
    if (this.#hasUnusedNumber) await this.#forgetNumber();
    const { counts, store, clock } = this.#options;
    const pending = await counts.pending();
    // Also if the reply is lost.
    this.#hasUnusedNumber = true;
    const [row] = await store.query<{ next_nonce: bigint }>(
      `INSERT INTO payments_gas_nonce (gas_key, next_nonce, updated_ms) VALUES ($1, $2, now_ms($3))
       ON CONFLICT (gas_key) DO UPDATE SET
         next_nonce = CASE
           WHEN payments_gas_nonce.next_nonce >= $2 AND payments_gas_nonce.updated_ms > now_ms($3) - $4
           THEN payments_gas_nonce.next_nonce + 1 ELSE $2 END,
         updated_ms = now_ms($3)
       RETURNING next_nonce`,
      [this.#gasKey, pending + 1, clock.nowMs(), NUMBER_TRUST_MS],
    );
    const number = Number(row?.next_nonce ?? pending + 1) - 1;
    if (number > pending) await this.#fillGap(pending, number);
    this.#hasUnusedNumber = false;
    return number;
  }

  async #keepBytes(number: number, raw: Hex): Promise<void> {
    const { store, clock } = this.#options;
    const nowMs = clock.nowMs();
    await storeSent(store, sentBy(this.#gasKey, BigInt(number), raw, nowMs));
    await store.query(
      `INSERT INTO payments_gas_transaction (gas_key, number, raw_tx, sent_ms)
       VALUES ($1, $2, $3, now_ms($4))
       ON CONFLICT (gas_key, number) DO UPDATE SET raw_tx = excluded.raw_tx, sent_ms = excluded.sent_ms`,
      [this.#gasKey, number, raw, nowMs],
    );
    await store.query('DELETE FROM payments_gas_transaction WHERE sent_ms < now_ms($1) - $2', [
      nowMs,
      KEEP_BYTES_MS,
    ]);
  }

  /** Sends the transactions again that the node does not count and may have lost. */
  async #fillGap(fromNumber: number, untilNumber: number): Promise<void> {
    const { client, store, log } = this.#options;
    const rows = await store.query<{ raw_tx: Hex }>(
      `SELECT raw_tx FROM payments_gas_transaction
       WHERE gas_key = $1 AND number >= $2 AND number < $3 ORDER BY number LIMIT $4`,
      [this.#gasKey, fromNumber, untilNumber, MAX_WAITING],
    );
    for (const { raw_tx: serializedTransaction } of rows) {
      try {
        await client.sendRawTransaction({ serializedTransaction });
      } catch (error) {
        // Usually the node rejects the transaction because it already has it.
        log.debug({ reason: chainReason(error) }, 'The node did not accept a repeated transaction');
      }
    }
  }

  async #forgetNumber(): Promise<void> {
    this.#hasUnusedNumber = true;
    await this.#options.store.query(
      'UPDATE payments_gas_nonce SET next_nonce = 0 WHERE gas_key = $1',
      [this.#gasKey],
    );
    this.#hasUnusedNumber = false;
  }
}
