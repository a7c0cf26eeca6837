/**
 * Saved cards and automatic top-ups: an account whose balance is below its limit is charged, one charge
 * at a time and up to a maximum per month. The charge is a row of `payments_card` before the provider
 * receives it. A declined card is tried again after growing pauses; then the top-ups stop.
 */
import * as z from 'zod';
import { type Clock, HOUR_MS, monthBounds } from '../../core/clock.ts';
import type { Ids } from '../../core/ids.ts';
import { type Nano, ZERO, larger, nano } from '../../core/money.ts';
import {
  Flag,
  type Queryable,
  type Store,
  Whole,
  maybe,
  oneAtATime,
  rowShape,
} from '../../db/db.ts';
import { type CardPayment, PROVIDER_NAMES } from './card-rows.ts';

const MaybeAmount = maybe(z.bigint().transform(nano));

const OWNER = rowShape({
  accountId: z.string(),
  provider: z.enum(PROVIDER_NAMES),
  /** The provider's ids of the payer and of the saved card. */
  customer: z.string(),
  method: z.string(),
  /** Text for the owner, such as `visa •••• 4242`. */
  label: z.string(),
  /** The balance below which the card is charged; `undefined`: never. */
  keepNano: MaybeAmount,
  chargeNano: MaybeAmount,
  monthlyNano: MaybeAmount,
  failures: Whole,
  nextTryMs: Whole,
  /** No charge until the settings or the card change. */
  isStopped: Flag,
  /** Reason why the card is not charged at present. */
  problem: maybe(z.string()),
});
export type CardOwner = ReturnType<typeof OWNER.parse>;

export type SavedCard = Pick<CardOwner, 'customer' | 'method' | 'label'>;

/** Settings of automatic top-ups. */
export interface AutoTopUp {
  readonly keepNano: Nano;
  readonly chargeNano: Nano;
  readonly monthlyNano: Nano;
}

/** A charge that did not succeed, for a message to the owner. */
export interface Declined {
  readonly accountId: string;
  readonly paymentId: string;
  readonly amountNano: Nano;
  readonly reason: string;
  /** The time of the next charge; `undefined` if the top-ups have stopped. */
  readonly nextTryMs: number | undefined;
}

export interface SavedCardOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly ids: Ids;
  /** Posted balances of accounts. */
  readonly balancesOf: (
    accountIds: readonly string[],
    tx: Queryable,
  ) => Promise<ReadonlyMap<string, Nano>>;
  /** Whether the operator has disabled an account. */
  readonly isDisabled: (accountId: string, tx: Queryable) => Promise<boolean>;
  /** Queues a message to the owner of the account. */
  readonly notifyDeclined: (tx: Queryable, declined: Declined) => Promise<void>;
}

const PAGE_ROWS = 200;
/** Pauses after the first, second, … decline; after the last one, the top-ups stop. */
const PAUSES_MS = [HOUR_MS, 6 * HOUR_MS, 24 * HOUR_MS];
/** A pause that is longer than any was written before the clock was set back. `$2` is the time. */
const PAUSE_IS_OVER = `(next_try_ms <= now_ms($2)
  OR next_try_ms > now_ms($2) + ${Math.max(...PAUSES_MS)})`;
/** Payments that have taken, or may still take, money from the card. */
const CHARGED = `kind = 'automatic' AND state IN ('open', 'processing', 'paid')`;

export class SavedCards {
  readonly #options: SavedCardOptions;

  constructor(options: SavedCardOptions) {
    this.#options = options;
  }

  async find(accountId: string): Promise<CardOwner | undefined> {
    const sql = `SELECT ${OWNER.columns} FROM payments_card_owner WHERE account_id = $1`;
    return (await this.#options.store.query(sql, [accountId])).map(OWNER.parse)[0];
  }

  /** Sum of the charges of this month that have not failed. */
  async chargedThisMonth(accountId: string): Promise<Nano> {
    const { store, clock } = this.#options;
    const [row] = await store.query<{ total: bigint }>(
      `SELECT CAST(COALESCE(sum(amount_nano), 0) AS BIGINT) AS total FROM payments_card
       WHERE account_id = $1 AND created_ms >= $2 AND ${CHARGED}`,
      [accountId, monthBounds(clock.nowMs()).startMs],
    );
    return nano(row?.total ?? 0n);
  }

  /** Changes the settings and starts the top-ups again; `false` without a saved card. */
  async configure(accountId: string, settings: AutoTopUp): Promise<boolean> {
    const { keepNano, chargeNano, monthlyNano } = settings;
    const rows = await this.#options.store.query(
      `UPDATE payments_card_owner SET keep_nano = $2, charge_nano = $3, monthly_nano = $4,
         failures = 0, next_try_ms = 0, is_stopped = 0, problem = NULL
       WHERE account_id = $1 RETURNING account_id`,
      [accountId, keepNano, chargeNano, monthlyNano],
    );
    return rows.length === 1;
  }

  /** Deletes the saved card and the settings. */
  async remove(accountId: string): Promise<void> {
    const sql = 'DELETE FROM payments_card_owner WHERE account_id = $1';
    await this.#options.store.query(sql, [accountId]);
  }

  async save(tx: Queryable, payment: CardPayment, card: SavedCard): Promise<void> {
    const { customer, method, label } = card;
    await tx.query(
      `INSERT INTO payments_card_owner (account_id, provider, customer, method, label)
       VALUES ($1, $2, $3, $4, $5) ON CONFLICT (account_id) DO UPDATE SET provider = $2,
         customer = $3, method = $4, label = $5, failures = 0, next_try_ms = 0, is_stopped = 0,
         problem = NULL`,
      [payment.accountId, payment.provider, customer, method, label],
    );
  }

  async succeeded(tx: Queryable, { accountId }: CardPayment): Promise<void> {
    const sql = `UPDATE payments_card_owner SET failures = 0, problem = NULL WHERE account_id = $1`;
    await tx.query(sql, [accountId]);
  }

  async declined(tx: Queryable, payment: CardPayment, reason: string): Promise<void> {
    const { clock, notifyDeclined } = this.#options;
    const { accountId, id: paymentId, amountNano } = payment;
    const [row] = await tx.query<{ failures: bigint }>(
      `UPDATE payments_card_owner SET failures = failures + 1, problem = $2 WHERE account_id = $1
       RETURNING failures`,
      [accountId, reason],
    );
    // The card was deleted meanwhile.
    if (row === undefined) return;
    const pauseMs = PAUSES_MS[Number(row.failures) - 1];
    const nowMs = clock.nowMs();
    const nextTryMs = pauseMs === undefined ? undefined : nowMs + pauseMs;
    await tx.query(
      `UPDATE payments_card_owner SET next_try_ms = now_ms($2) + $3, is_stopped = $4
       WHERE account_id = $1`,
      [accountId, nowMs, pauseMs ?? 0, pauseMs === undefined ? 1 : 0],
    );
    await notifyDeclined(tx, { accountId, paymentId, amountNano, reason, nextTryMs });
  }

  /** Stops the top-ups after a dispute: the same card would be charged for the debt. */
  async disputed(tx: Queryable, { accountId }: CardPayment): Promise<void> {
    await tx.query(
      'UPDATE payments_card_owner SET is_stopped = 1, problem = $2 WHERE account_id = $1',
      [accountId, 'A payment of the account was disputed'],
    );
  }

  /**
   * Whether a charge that was inserted earlier may be made: its card is still the saved one, and neither
   * the settings nor the state of the account forbid it.
   */
  async mayCharge({ accountId, reference = '', createdMs }: CardPayment): Promise<boolean> {
    const { store, isDisabled } = this.#options;
    const [row] = await store.query(
      `SELECT account_id FROM payments_card_owner
       WHERE account_id = $1 AND customer || '/' || method = $2 AND is_stopped = 0
         AND monthly_nano >= (SELECT COALESCE(sum(amount_nano), 0) FROM payments_card
           WHERE account_id = $1 AND created_ms >= $3 AND ${CHARGED})`,
      [accountId, reference, monthBounds(createdMs).startMs],
    );
    return row !== undefined && !(await isDisabled(accountId, store));
  }

  /** Inserts a charge for each account below its limit; returns their number. */
  async charge(): Promise<number> {
    const { store, clock, balancesOf } = this.#options;
    let count = 0;
    for (let after: string | undefined = ''; after !== undefined;) {
      const rows: readonly CardOwner[] = (
        await store.query(
          `SELECT ${OWNER.columns} FROM payments_card_owner
           WHERE account_id > $1 AND keep_nano IS NOT NULL AND is_stopped = 0
             AND ${PAUSE_IS_OVER}
           ORDER BY account_id LIMIT $3`,
          [after, clock.nowMs(), PAGE_ROWS],
        )
      ).map(OWNER.parse);
      const accountIds = rows.map(({ accountId }) => accountId);
      const balances = await balancesOf(accountIds, store);
      for (const { accountId, keepNano = ZERO } of rows) {
        const isLow = (balances.get(accountId) ?? ZERO) < keepNano;
        if (isLow && (await this.#open(accountId))) count += 1;
      }
      after = rows.length < PAGE_ROWS ? undefined : rows.at(-1)?.accountId;
    }
    return count;
  }

  /**
   * Inserts the row of a charge unless one is open, the maximum of the month is reached, or the account
   * is disabled: its owner could neither spend the credit nor end the charges.
   */
  async #open(accountId: string): Promise<boolean> {
    const { store, clock, ids, balancesOf, isDisabled } = this.#options;
    const nowMs = clock.nowMs();
    return await store.transaction(async (tx) => {
      await oneAtATime(tx, store.dialect, `payments_card ${accountId}`);
      const [row] = await tx.query(
        `SELECT ${OWNER.columns} FROM payments_card_owner
         WHERE account_id = $1 AND keep_nano IS NOT NULL AND is_stopped = 0 AND ${PAUSE_IS_OVER}
           AND NOT EXISTS (SELECT 1 FROM payments_card WHERE account_id = $1
             AND kind = 'automatic' AND state IN ('open', 'processing')) FOR UPDATE`,
        [accountId, nowMs],
      );
      if (row === undefined || (await isDisabled(accountId, tx))) return false;
      const owner = OWNER.parse(row);
      const { provider, customer, method, keepNano = ZERO, chargeNano = ZERO } = owner;
      // Read after the last charge has ended, so that it contains the credit of that charge.
      const balanceNano = (await balancesOf([accountId], tx)).get(accountId) ?? ZERO;
      if (balanceNano >= keepNano) return false;
      // At least so much that the balance reaches the limit.
      const amountNano = wholeCents(larger(chargeNano, nano(keepNano - balanceNano)));
      const rows = await tx.query(
        `INSERT INTO payments_card (id, provider, kind, account_id, state, amount_nano, saves_card,
           reference, due_ms, created_ms, updated_ms)
         SELECT $1, $2, 'automatic', $3, 'open', $4, 0, $5, now_ms($6), $6, $6 FROM payments_card_owner
         WHERE account_id = $3
           AND monthly_nano - $4 >= (SELECT COALESCE(sum(amount_nano), 0) FROM payments_card
             WHERE account_id = $3 AND created_ms >= $7 AND ${CHARGED})
         RETURNING id`,
        [
          `pay_${ids.ordered(nowMs)}`,
          provider,
          accountId,
          amountNano,
          `${customer}/${method}`,
          nowMs,
          monthBounds(nowMs).startMs,
        ],
      );
      return rows.length === 1;
    });
  }
}

const NANO_PER_CENT = 10_000_000n;

function wholeCents(amount: Nano): Nano {
  const rest = amount % NANO_PER_CENT;
  return rest === 0n ? amount : nano(amount - rest + NANO_PER_CENT);
}
