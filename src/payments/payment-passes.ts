/**
 * Passes record which request opened a payment: the payment serves that request and its retries.
 *
 * A signed payment is public once it is on the chain, so its header proves nothing. Only the payer has the
 * two proofs of a retry, which are never on the chain: the idempotency key of the request that opened the
 * payment, and the secret of its response (`PAYMENT-CLAIM`). A pass serves one request, once; a caller
 * without proof signs in. A signed ceiling that moved nothing has only a pass, which marks it as spent.
 */
import { type Clock, DAY_MS } from '../core/clock.ts';
import type { Store } from '../db/db.ts';
import { isSameMac, macOf } from './secrets.ts';

/** The parts of a request that are never on the chain. */
export interface RetryProof {
  readonly claim: string | undefined;
  readonly idempotencyKey: string | undefined;
  /** Path of the request; an idempotency key counts only with its path. */
  readonly path: string;
  /** The address of the caller, as limits by address count it. */
  readonly clientAddress: string;
}

export const NO_PROOF: RetryProof = {
  claim: undefined,
  idempotencyKey: undefined,
  path: '',
  clientAddress: '',
};

/** The time for which responses are stored under an idempotency key. */
const PASS_MS = DAY_MS;
/** An observer can guess shorter keys, which are counters and words. */
const MIN_KEY_CHARS = 16;

/** Values of the column `used`. */
const UNUSED = 0;
const USED = 1;
/** Tokens of a signed ceiling are being moved for a request, so it serves no other one. */
const MOVING = 2;
const REPLACE = 'key_hash = $2, used = $3, created_ms = $4';

export class PaymentPasses {
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #secret: string;

  constructor(store: Store, clock: Clock, secret: string) {
    this.#store = store;
    this.#clock = clock;
    this.#secret = secret;
  }

  /** Records the request that opened the payment. The pass of a top-up is spent, because it sells nothing. */
  async open(
    paymentKey: string,
    proof: RetryProof,
    kind: 'top-up' | 'request' | 'ceiling',
  ): Promise<void> {
    const used = { 'top-up': USED, request: UNUSED, ceiling: MOVING }[kind];
    await this.#put(paymentKey, proof, used, REPLACE);
  }

  async isRetry(paymentKey: string, proof: RetryProof): Promise<boolean> {
    const [row] = await this.#store.query<{ key_hash: string | null }>(
      'SELECT key_hash FROM payments_pass WHERE payment_key = $1 AND created_ms > $2',
      [paymentKey, this.#clock.nowMs() - PASS_MS],
    );
    if (row === undefined) return false;
    if (proof.claim !== undefined && isSameMac(proof.claim, this.claimOf(paymentKey))) return true;
    const hash = this.#keyHash(paymentKey, proof);
    return hash !== undefined && row.key_hash !== null && isSameMac(hash, row.key_hash);
  }

  /** Spends the pass; `false` if it was spent before. */
  async use(paymentKey: string): Promise<boolean> {
    const rows = await this.#store.query(
      'UPDATE payments_pass SET used = 1 WHERE payment_key = $1 AND used <> 1 RETURNING payment_key',
      [paymentKey],
    );
    return rows.length === 1;
  }

  /** Opens and spends the pass of a payment that moves nothing; `false` if it was spent before. */
  async spend(paymentKey: string, proof: RetryProof): Promise<boolean> {
    return await this.#put(paymentKey, proof, USED, `${REPLACE} WHERE payments_pass.used = 0`);
  }

  /**
   * Reserves a ceiling whose tokens are about to be moved: a concurrent request cannot spend it without
   * moving any. Returns `false` if it has served a request.
   */
  async reserve(paymentKey: string, proof: RetryProof): Promise<boolean> {
    return await this.#put(paymentKey, proof, MOVING, 'used = $3 WHERE payments_pass.used <> 1');
  }

  /** Ends the reservation of a ceiling that was not sent to the chain. */
  async unreserve(paymentKey: string): Promise<void> {
    await this.#store.query(
      `DELETE FROM payments_pass WHERE payment_key = $1 AND used = $2
       AND NOT EXISTS (SELECT 1 FROM payments_topup WHERE payments_topup.payment_key = $1)`,
      [paymentKey, MOVING],
    );
  }

  async isSpent(paymentKey: string): Promise<boolean> {
    const rows = await this.#store.query(
      'SELECT 1 AS one FROM payments_pass WHERE payment_key = $1 AND used = 1',
      [paymentKey],
    );
    return rows.length === 1;
  }

  /** The secret in the response to the request that opened the payment. */
  claimOf(paymentKey: string): string {
    return this.#digest('claim', paymentKey);
  }

  async prune(): Promise<void> {
    await this.#store.query('DELETE FROM payments_pass WHERE created_ms <= $1', [
      this.#clock.nowMs() - PASS_MS,
    ]);
  }

  /** Returns `false` if the pass exists and the condition of `onConflict` does not hold. */
  async #put(
    paymentKey: string,
    proof: RetryProof,
    used: number,
    onConflict: string,
  ): Promise<boolean> {
    const rows = await this.#store.query(
      `INSERT INTO payments_pass (payment_key, key_hash, used, created_ms) VALUES ($1, $2, $3, $4)
       ON CONFLICT (payment_key) DO UPDATE SET ${onConflict} RETURNING payment_key`,
      [paymentKey, this.#keyHash(paymentKey, proof) ?? null, used, this.#clock.nowMs()],
    );
    return rows.length === 1;
  }

  #keyHash(paymentKey: string, { path, idempotencyKey }: RetryProof): string | undefined {
    if (idempotencyKey === undefined || idempotencyKey.length < MIN_KEY_CHARS) return undefined;
    return this.#digest('key', paymentKey, path, idempotencyKey);
  }

  #digest(...words: readonly string[]): string {
    return macOf(this.#secret, JSON.stringify(words));
  }
}
