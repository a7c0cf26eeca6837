/**
 * The single use of sign-in nonces: one row a (wallet, nonce), written by a conditional insert, so
 * that two processes that share the database, or one that was restarted, accept a proof once.
 *
 * The insert need not be flushed before the request goes on: it is in the write-ahead log before
 * any charge of the same request, and that charge is flushed before an answer leaves.
 */
import type { Clock } from '../../kernel/clock.ts';
import type { Store } from '../../store/store.ts';

export class SignInNonces {
  readonly #store: Store;
  readonly #clock: Clock;

  constructor(store: Store, clock: Clock) {
    this.#store = store;
    this.#clock = clock;
  }

  /** `false` when the wallet has used the nonce before. */
  async consume(wallet: string, nonce: string, expiresMs: number): Promise<boolean> {
    const rows = await this.#store.transaction(
      async (tx) =>
        await tx.query(
          `INSERT INTO payments_nonce (wallet, nonce, expires_ms) VALUES ($1, $2, $3)
           ON CONFLICT (wallet, nonce) DO NOTHING RETURNING nonce`,
          [wallet, nonce, Math.ceil(expiresMs)],
        ),
      { durable: false },
    );
    return rows.length === 1;
  }

  /** Deletes what is too old to be presented again. */
  async prune(): Promise<void> {
    await this.#store.query('DELETE FROM payments_nonce WHERE expires_ms < $1', [
      this.#clock.nowMs(),
    ]);
  }
}
