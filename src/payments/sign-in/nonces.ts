/**
 * The single use of sign-in nonces: one row a (wallet, nonce), written by a conditional insert, so
 * that two processes that share the database, or one that was restarted, accept a proof once.
 *
 * The insert need not be flushed before the request goes on: it is in the write-ahead log before
 * any charge of the same request, and that charge is flushed before an answer leaves.
 */
import type { Clock } from '../../core/clock.ts';
import { Batcher, type Store } from '../../db/db.ts';

/** Proofs that one trip to the database uses up, at most. */
const MAX_BATCH = 128;

interface Use {
  /** Wallet and nonce: one order in all processes, so that two batches cannot wait for each other. */
  readonly key: string;
  readonly wallet: string;
  readonly nonce: string;
  readonly expiresMs: number;
}

export class SignInNonces {
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #uses: Batcher<Use, boolean>;

  constructor(store: Store, clock: Clock) {
    this.#store = store;
    this.#clock = clock;
    this.#uses = new Batcher((uses) => this.#consumeBatch(uses), {
      maxInFlight: 2,
      maxItems: MAX_BATCH,
    });
  }

  /** `false` when the wallet has used the nonce before. */
  async consume(wallet: string, nonce: string, expiresMs: number): Promise<boolean> {
    const key = `${wallet} ${nonce}`;
    return await this.#uses.add({ key, wallet, nonce, expiresMs: Math.ceil(expiresMs) });
  }

  async #consumeBatch(uses: readonly Use[]): Promise<readonly boolean[]> {
    const answers: boolean[] = [];
    const ordered = [...uses.entries()].sort(([, a], [, b]) => (a.key < b.key ? -1 : 1));
    await this.#store.transaction(
      async (tx) => {
        for (const [index, { wallet, nonce, expiresMs }] of ordered) {
          const rows = await tx.query(
            `INSERT INTO payments_nonce (wallet, nonce, expires_ms) VALUES ($1, $2, $3)
             ON CONFLICT (wallet, nonce) DO NOTHING RETURNING nonce`,
            [wallet, nonce, expiresMs],
          );
          answers[index] = rows.length === 1;
        }
      },
      { durable: false },
    );
    return answers;
  }

  async prune(): Promise<void> {
    await this.#store.query('DELETE FROM payments_nonce WHERE expires_ms < $1', [
      this.#clock.nowMs(),
    ]);
  }
}
