/**
 * The rows of payments by people, of their events and of their refunds.
 *
 * Invariants: a row exists before its provider knows of the payment; `credited_nano` is what the ledger
 * has posted for the payment, and changes only in the transaction of the posting; `version` grows with
 * every change and every event, so that facts that were read before a change are not written after it.
 */
import { assert } from '../../core/assert.ts';
import { DAY_MS, HOUR_MS, MINUTE_MS } from '../../core/clock.ts';
import { type Nano, ZERO, larger, nano } from '../../core/money.ts';
import {
  LONGEST_PAUSE_MS,
  type LeaseOptions,
  LeasedTable,
  NO_LEASE,
  type Queryable,
  oneAtATime,
  placesFrom,
} from '../../db/db.ts';
import {
  type CardPayment,
  type CardRefund,
  PAYMENT,
  type ProviderName,
  REFUND,
} from './card-rows.ts';
import type { Notice, PaymentFacts } from './provider.ts';
import type { SavedCards } from './saved-cards.ts';

/** Events appear in the provider's list some time after they were created. */
export const EVENTS_OVERLAP_MS = 10 * MINUTE_MS;
const EVENTS_WITHIN_MS = DAY_MS;
/** A bank debit takes days. */
export const MAX_PROCESSING_CHECK_MS = 6 * HOUR_MS;

/** A change of the ledger by a payment; it runs in the transaction that changes the row. */
export interface CardEntry {
  readonly accountId: string;
  readonly provider: ProviderName;
  readonly amountNano: Nano;
  /** Unique, derived from the row. */
  readonly postingId: string;
  readonly note?: string | undefined;
}

export interface CardFeeEntry {
  readonly provider: ProviderName;
  readonly amountNano: bigint;
  readonly postingId: string;
  readonly note: string;
}

export interface CardPostings {
  /** Credits a payment. */
  readonly creditCard: (tx: Queryable, entry: CardEntry) => Promise<unknown>;
  /** Takes a credit back; returns the part that was spent already, which the account owes. */
  readonly reverseCard: (tx: Queryable, entry: CardEntry) => Promise<Nano>;
  /**
   * Debits unused credit before it is paid back; `false` if the account has less. With `takesSpent` the
   * account owes the rest.
   */
  readonly debitCardRefund: (
    tx: Queryable,
    entry: CardEntry,
    takesSpent: boolean,
  ) => Promise<boolean>;
  /** Posts a change of the fees of the provider, which can be negative. */
  readonly postCardFee: (tx: Queryable, entry: CardFeeEntry) => Promise<void>;
  readonly restoreCardRefund: (tx: Queryable, entry: CardEntry) => Promise<unknown>;
}

/** The change of the ledger by new facts. */
export interface Applied {
  readonly creditedNano: Nano;
  readonly reversedNano: Nano;
  /** The part of `reversedNano` that the account owes. */
  readonly owedNano: Nano;
}

interface CardTableParts extends LeaseOptions, CardPostings {
  readonly savedCards: SavedCards;
}

export class CardTable extends LeasedTable<CardPayment> {
  readonly #parts: CardTableParts;

  constructor(parts: CardTableParts) {
    super({
      ...parts,
      table: 'payments_card',
      columns: PAYMENT.columns,
      jobOf: PAYMENT.parse,
      longestPause: `CASE state WHEN 'processing' THEN ${MAX_PROCESSING_CHECK_MS}
        ELSE ${LONGEST_PAUSE_MS} END`,
      open: 'due_ms > 0',
    });
    this.#parts = parts;
  }

  async find(id: string): Promise<CardPayment | undefined> {
    const sql = `SELECT ${PAYMENT.columns} FROM payments_card WHERE id = $1`;
    return (await this.jobs(sql, [id]))[0];
  }

  /** Payments with credit that is not paid back, newest first. */
  async refundable(accountId: string, limit: number): Promise<CardPayment[]> {
    const sql = `SELECT ${PAYMENT.columns} FROM payments_card
      WHERE account_id = $1 AND credited_nano > refunded_nano
      ORDER BY created_ms DESC, id DESC LIMIT $2`;
    return await this.jobs(sql, [accountId, limit]);
  }

  /** Rows since a time in the order of their ids, for an audit. */
  async page(sinceMs: number, after: string, limit: number): Promise<CardPayment[]> {
    const sql = `SELECT ${PAYMENT.columns} FROM payments_card
      WHERE id > $2 AND created_ms >= $1 ORDER BY id LIMIT $3`;
    return await this.jobs(sql, [sinceMs, after, limit]);
  }

  /** Inserts an open row, due after `pauseMs`, unless its account has `limit` of them. */
  async open(
    payment: Pick<
      CardPayment,
      'id' | 'provider' | 'kind' | 'accountId' | 'amountNano' | 'savesCard'
    >,
    pauseMs: number,
    limit: number,
  ): Promise<CardPayment | undefined> {
    const { id, provider, kind, accountId, amountNano, savesCard } = payment;
    const nowMs = this.clock.nowMs();
    return await this.store.transaction(async (tx) => {
      await oneAtATime(tx, this.store.dialect, `payments_card ${accountId}`);
      const rows = await tx.query(
        `INSERT INTO payments_card (id, provider, kind, account_id, state, amount_nano, saves_card,
           due_ms, created_ms, updated_ms)
         SELECT $1, $2, $3, $4, 'open', $5, $6, now_ms($8) + $7, $8, $8 WHERE
           (SELECT count(*) FROM payments_card WHERE account_id = $4 AND state = 'open') < $9
         RETURNING ${PAYMENT.columns}`,
        [id, provider, kind, accountId, amountNano, savesCard ? 1 : 0, pauseMs, nowMs, limit],
      );
      return rows.map(PAYMENT.parse)[0];
    });
  }

  async opened(id: string, reference: string): Promise<void> {
    await this.store.query(
      'UPDATE payments_card SET reference = $2, version = version + 1 WHERE id = $1',
      [id, reference],
    );
  }

  /** Ends a row that its provider has rejected. */
  async rejected(id: string, failure: string): Promise<void> {
    await this.store.query(
      `UPDATE payments_card SET state = 'failed', failure = $2, due_ms = 0, version = version + 1
       WHERE id = $1 AND state = 'open'`,
      [id, failure],
    );
  }

  /**
   * Makes a payment due and stores the event, in one transaction; returns whether it was new, and
   * `undefined` for an unknown payment.
   */
  async journal(provider: ProviderName, notice: Notice): Promise<boolean | undefined> {
    const { eventId, type, createdMs, paymentId = null, intent = null, report = {} } = notice;
    // The response with the reference may have been lost.
    const reference = notice.reference ?? null;
    const nowMs = this.clock.nowMs();
    return await this.store.transaction(async (tx) => {
      await this.#insertReported(tx, provider, notice);
      const [found] = await tx.query<{ id: string }>(
        `SELECT id FROM payments_card WHERE provider = $1 AND (id = $2 OR intent = $3)`,
        [provider, paymentId, intent],
      );
      if (found === undefined) return undefined;
      const added = await tx.query(
        `INSERT INTO payments_card_event (id, payment_id, type, created_ms, received_ms)
         VALUES ($1, $2, $3, $4, $5) ON CONFLICT (id) DO NOTHING RETURNING id`,
        [eventId, found.id, type, createdMs, nowMs],
      );
      if (added.length === 0) return false;
      await tx.query(
        `UPDATE payments_card SET due_ms = now_ms($2), attempts = 0, version = version + 1,
           paid_nano = CASE WHEN paid_nano < $3 THEN $3 ELSE paid_nano END,
           returned_nano = CASE WHEN returned_nano < $4 THEN $4 ELSE returned_nano END,
           receipt_url = COALESCE($5, receipt_url), reference = COALESCE(reference, $6)
         WHERE id = $1`,
        [
          found.id,
          nowMs,
          report.paidNano ?? 0n,
          report.returnedNano ?? 0n,
          report.receiptUrl ?? null,
          reference,
        ],
      );
      return true;
    });
  }

  /** Inserts the row of a payment that the shop has started. */
  async #insertReported(
    tx: Queryable,
    provider: ProviderName,
    { paymentId, report }: Notice,
  ): Promise<void> {
    if (paymentId === undefined || report?.accountId === undefined) return;
    const nowMs = this.clock.nowMs();
    await tx.query(
      `INSERT INTO payments_card (id, provider, kind, account_id, state, amount_nano, saves_card,
         due_ms, created_ms, updated_ms)
       VALUES ($1, $2, 'shop', $3, 'open', $4, 0, now_ms($5), $5, $5) ON CONFLICT (id) DO NOTHING`,
      [paymentId, provider, report.accountId, report.paidNano ?? 0n, nowMs],
    );
  }

  async pruneEvents(beforeMs: number): Promise<void> {
    await this.store.query('DELETE FROM payments_card_event WHERE received_ms < $1', [beforeMs]);
  }

  /**
   * Writes facts and posts the difference to the ledger, in one transaction. The row is due again after
   * `pauseMs`, or at the next event if that is `undefined`. Returns `undefined` if the row was changed,
   * or an event arrived, after the facts were read.
   */
  async apply(
    payment: CardPayment,
    facts: PaymentFacts,
    pauseMs: number | undefined,
  ): Promise<Applied | undefined> {
    const targetNano = larger(ZERO, nano(facts.paidNano - facts.returnedNano));
    const changeNano = nano(targetNano - payment.creditedNano);
    const feeNano = facts.feeNano ?? payment.feeNano;
    const moreFeeNano = feeNano - payment.feeNano;
    return await this.store.transaction(async (tx) => {
      const changed = await tx.query(
        `UPDATE payments_card SET state = $3, intent = COALESCE($4, intent), paid_nano = $5,
           returned_nano = $6, credited_nano = $7, postings = postings + $8, version = version + 1,
           receipt_url = COALESCE($9, receipt_url), failure = $10,
           due_ms = CASE WHEN CAST($11 AS BIGINT) < 0 THEN 0 ELSE now_ms($12) + $11 END,
           attempts = attempts + 1, updated_ms = $12, fee_nano = $13,
           fee_postings = fee_postings + $14, ${NO_LEASE}
         WHERE id = $1 AND version = $2 RETURNING id`,
        [
          payment.id,
          payment.version,
          facts.state,
          facts.intent ?? null,
          facts.paidNano,
          facts.returnedNano,
          targetNano,
          changeNano === 0n ? 0 : 1,
          facts.receiptUrl ?? null,
          facts.failure ?? null,
          pauseMs ?? -1,
          this.clock.nowMs(),
          feeNano,
          moreFeeNano === 0n ? 0 : 1,
        ],
      );
      if (changed.length === 0) return undefined;
      if (moreFeeNano !== 0n) {
        const { id: note, provider, feePostings } = payment;
        const postingId = `${note}-fee-${feePostings}`;
        await this.#parts.postCardFee(tx, { provider, amountNano: moreFeeNano, postingId, note });
      }
      await this.#endRefunds(tx, payment, facts);
      await this.#changeCard(tx, payment, facts);
      return await this.#post(tx, payment, changeNano, facts.returnReason);
    });
  }

  /** Saves the card of a payment, and counts the results of charges. */
  async #changeCard(tx: Queryable, payment: CardPayment, facts: PaymentFacts): Promise<void> {
    const { savedCards } = this.#parts;
    const isReversed = facts.returnedNano > payment.returnedNano;
    if (isReversed && facts.isDisputed === true) await savedCards.disputed(tx, payment);
    if (facts.state === payment.state) return;
    const { savedCard, failure = 'failed', isWithdrawn = false } = facts;
    if (savedCard !== undefined && payment.savesCard) await savedCards.save(tx, payment, savedCard);
    if (payment.kind !== 'automatic') return;
    if (facts.state === 'paid') await savedCards.succeeded(tx, payment);
    if (facts.state === 'failed' && !isWithdrawn) await savedCards.declined(tx, payment, failure);
  }

  async #post(
    tx: Queryable,
    { id, accountId, provider, postings }: CardPayment,
    changeNano: Nano,
    note: string | undefined,
  ): Promise<Applied> {
    // The first credit has the id of the payment.
    const postingId = postings === 0 ? id : `${id}-${postings}`;
    const entry = { accountId, provider, postingId };
    if (changeNano > 0n) {
      await this.#parts.creditCard(tx, { ...entry, amountNano: changeNano });
      return { creditedNano: changeNano, reversedNano: ZERO, owedNano: ZERO };
    }
    const reversedNano = nano(0n - changeNano);
    const owedNano =
      reversedNano === 0n
        ? ZERO
        : await this.#parts.reverseCard(tx, { ...entry, amountNano: reversedNano, note });
    return { creditedNano: ZERO, reversedNano, owedNano };
  }

  async refundsOf(paymentId: string): Promise<CardRefund[]> {
    const sql = `SELECT ${REFUND.columns} FROM payments_card_refund WHERE payment_id = $1 ORDER BY id`;
    return (await this.store.query(sql, [paymentId])).map(REFUND.parse);
  }

  async refund(id: string): Promise<CardRefund | undefined> {
    return (await this.refundsWith([id]))[0];
  }

  async refundsWith(ids: readonly string[]): Promise<CardRefund[]> {
    const sql = `SELECT ${REFUND.columns} FROM payments_card_refund WHERE id IN (${placesFrom(1, ids)}) ORDER BY id`;
    return (await this.store.query(sql, ids)).map(REFUND.parse);
  }

  /**
   * Debits the account and inserts the refunds of some of its payments, in one transaction. Returns
   * `false`, without any change, if the account or a payment has too little left.
   */
  async openRefunds(
    refunds: readonly Omit<CardRefund, 'state' | 'failure'>[],
    takesSpent: boolean,
  ): Promise<boolean> {
    const nowMs = this.clock.nowMs();
    const tooLittle = new Error('Too little credit is left');
    const debit = async (tx: Queryable): Promise<boolean> => {
      for (const { id, paymentId, accountId, amountNano } of refunds) {
        const [payment] = await tx.query(
          `UPDATE payments_card SET refunded_nano = refunded_nano + $2, version = version + 1,
             due_ms = now_ms($3), attempts = 0
           WHERE id = $1 AND account_id = $4 AND credited_nano - refunded_nano >= $2
           RETURNING ${PAYMENT.columns}`,
          [paymentId, amountNano, nowMs, accountId],
        );
        if (payment === undefined) throw tooLittle;
        const { provider } = PAYMENT.parse(payment);
        const entry = { accountId, provider, amountNano, postingId: id };
        if (!(await this.#parts.debitCardRefund(tx, entry, takesSpent))) throw tooLittle;
        await tx.query(
          `INSERT INTO payments_card_refund (id, payment_id, account_id, amount_nano, state, created_ms)
           VALUES ($1, $2, $3, $4, 'open', $5)`,
          [id, paymentId, accountId, amountNano, nowMs],
        );
      }
      return true;
    };
    try {
      return await this.store.transaction(debit);
    } catch (error) {
      if (error === tooLittle) return false;
      throw error;
    }
  }

  /** Writes the states of refunds; a failed one becomes credit again. */
  async #endRefunds(tx: Queryable, payment: CardPayment, { refunds }: PaymentFacts): Promise<void> {
    const { provider, accountId } = payment;
    for (const [id, { state, failure }] of refunds) {
      const [changed] = await tx.query<{ amount_nano: bigint }>(
        `UPDATE payments_card_refund SET state = $2, failure = $3
         WHERE id = $1 AND state <> $2 AND state <> 'failed' RETURNING amount_nano`,
        [id, state, failure ?? null],
      );
      if (changed === undefined || state !== 'failed') continue;
      const amountNano = nano(changed.amount_nano);
      await tx.query('UPDATE payments_card SET refunded_nano = refunded_nano - $2 WHERE id = $1', [
        payment.id,
        amountNano,
      ]);
      const entry = { accountId, provider, amountNano, postingId: `${id}-back`, note: failure };
      await this.#parts.restoreCardRefund(tx, entry);
    }
  }

  /** Releases a row whose facts could not be read; it is due again after `pauseMs`. */
  async postpone(id: string, pauseMs: number): Promise<void> {
    const set = `${NO_LEASE}, due_ms = now_ms($3) + $4, attempts = attempts + 1`;
    await this.step(id, set, '', [this.clock.nowMs(), pauseMs]);
  }

  /**
   * The time from which the events of a provider are read: the one of the last event. It is
   * `EVENTS_WITHIN_MS` ago if none was read, or if a process whose clock was ahead has written it.
   */
  async eventsSince(provider: ProviderName): Promise<number> {
    const [row] = await this.store.query<{ events_since_ms: bigint }>(
      `INSERT INTO payments_card_provider (provider, events_since_ms) VALUES ($1, now_ms($2) - $3)
       ON CONFLICT (provider) DO UPDATE SET events_since_ms = CASE
         WHEN payments_card_provider.events_since_ms > now_ms($2) + $4 THEN now_ms($2) - $3
         ELSE payments_card_provider.events_since_ms END
       RETURNING events_since_ms`,
      [provider, this.clock.nowMs(), EVENTS_WITHIN_MS, EVENTS_OVERLAP_MS],
    );
    assert(row !== undefined, 'the row of a provider exists');
    return Number(row.events_since_ms);
  }

  async eventsRead(provider: ProviderName, untilMs: number): Promise<void> {
    await this.store.query(
      'UPDATE payments_card_provider SET events_since_ms = $2 WHERE provider = $1',
      [provider, untilMs],
    );
  }
}

/** URLs of the receipts of payments, by the ids of the payments. */
export async function cardReceipts(
  store: Queryable,
  ids: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  const found = new Map<string, string>();
  for (let from = 0; from < ids.length; from += MAX_IDS) {
    const some = ids.slice(from, from + MAX_IDS);
    const rows = await store.query<{ id: string; receipt_url: string }>(
      `SELECT id, receipt_url FROM payments_card
       WHERE receipt_url IS NOT NULL AND id IN (${placesFrom(1, some)})`,
      some,
    );
    for (const { id, receipt_url } of rows) found.set(id, receipt_url);
  }
  return found;
}

const MAX_IDS = 500;

/** Sums of all rows, or of the ledger, for the comparison of both. */
export interface CardSums {
  readonly creditedNano: Nano;
  readonly refundedNano: Nano;
  readonly feeNano: Nano;
}

export async function cardSums(tx: Queryable, provider: ProviderName): Promise<CardSums> {
  const [row] = await tx.query<{ credited: bigint; refunded: bigint; fee: bigint }>(
    `SELECT COALESCE(sum(credited_nano), 0) AS credited, COALESCE(sum(refunded_nano), 0) AS refunded,
     COALESCE(sum(fee_nano), 0) AS fee FROM payments_card WHERE provider = $1`,
    [provider],
  );
  const { credited = 0n, refunded = 0n, fee = 0n } = row ?? {};
  return { creditedNano: nano(credited), refundedNano: nano(refunded), feeNano: nano(fee) };
}
