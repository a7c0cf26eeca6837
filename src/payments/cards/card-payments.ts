/**
 * Turns payments by people into ledger postings that match the money at the provider.
 *
 * - A row is written before the provider is called.
 * - A webhook is verified and journaled; then the row is due. It never decides an amount.
 * - Work on a due row reads all facts of the payment from the provider, and posts the difference to what
 *   the ledger has already posted, in the transaction that writes the facts.
 * - Without webhooks, open rows are read again with growing pauses, and the events of the provider are
 *   listed every minute.
 */
import type { IncomingHttpHeaders } from 'node:http';
import { assert } from '../../core/assert.ts';
import { type Clock, DAY_MS, MINUTE_MS, SECOND_MS } from '../../core/clock.ts';
import { Fault, invalidField } from '../../core/faults.ts';
import { type Ids, sha256Hex } from '../../core/ids.ts';
import { type Log, reasonOf } from '../../core/log.ts';
import { type Nano, ZERO, formatUsd, larger, nano, smaller } from '../../core/money.ts';
import { JobWorker, LONGEST_PAUSE_MS, type Store } from '../../db/db.ts';
import type { CardPayment, CardRefund, ProviderName } from './card-rows.ts';
import {
  type Applied,
  type CardPostings,
  CardTable,
  EVENTS_OVERLAP_MS,
  MAX_PROCESSING_CHECK_MS,
} from './card-table.ts';
import type { PaymentFacts, PaymentProvider, RefundResult } from './provider.ts';
import {
  type AutoTopUp,
  type CardOwner,
  type SavedCardOptions,
  SavedCards,
} from './saved-cards.ts';

/** Steps at which tests end the process. */
export type CardStep =
  | 'opened'
  | 'page'
  | 'journaled'
  | 'charged'
  | 'read'
  | 'refunded'
  | 'applied';

export interface CardOptions
  extends CardPostings, Pick<SavedCardOptions, 'balancesOf' | 'isDisabled' | 'notifyDeclined'> {
  readonly store: Store;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly providers: ReadonlyMap<ProviderName, PaymentProvider>;
  readonly hasAccount: (id: string) => Promise<boolean>;
  readonly onStep?: ((step: CardStep) => Promise<void>) | undefined;
}

export interface NewCheckout {
  readonly accountId: string;
  readonly amountNano: Nano;
  readonly savesCard: boolean;
  readonly provider?: ProviderName | undefined;
  /** Page of this service to which the payer returns. */
  readonly returnUrl: string;
}

export interface RefundOptions {
  /** The operator's id of the refund: a second refund with it is not possible. */
  readonly reference?: string;
  /** Also pays credit back that was spent: the account then owes it. */
  readonly takesSpent?: boolean;
}

export interface Checkout {
  readonly payment: CardPayment;
  readonly url: string;
}

const LEASE_MS = 30 * SECOND_MS;
const TICK_MS = 5 * SECOND_MS;
const MAX_RUNNING = 8;
/** Unpaid pages of one account. */
const MAX_OPEN = 20;
const FIRST_CHECK_MS = 30 * SECOND_MS;
/** Some hours; afterwards an event of the payment reads its fee. */
const MAX_FEE_CHECKS = 20;
/** Longer than the provider repeats an event. */
const EVENTS_KEPT_MS = 40 * DAY_MS;
const MAX_REFUNDED = 100;
const REFERENCE_DIGITS = 32;
const NANO_PER_CENT = 10_000_000n;

export class CardPayments {
  readonly table: CardTable;
  readonly savedCards: SavedCards;
  readonly #options: CardOptions;
  readonly #worker: JobWorker<CardPayment>;

  constructor(options: CardOptions) {
    this.#options = options;
    const { clock, ids, log } = options;
    this.savedCards = new SavedCards(options);
    const { savedCards } = this;
    this.table = new CardTable({
      ...options,
      savedCards,
      owner: ids.hex(8),
      leaseMs: LEASE_MS,
    });
    this.#worker = new JobWorker({
      name: 'card payments',
      tickMs: TICK_MS,
      claim: (running) => this.table.claim(MAX_RUNNING - running.length, running),
      run: (payment) => this.#work(payment),
      renew: {
        everyMs: LEASE_MS / 3,
        lease: ({ id }) => this.table.extendLease(id),
      },
      clock,
      log,
    });
  }

  get providers(): ReadonlyMap<ProviderName, PaymentProvider> {
    return this.#options.providers;
  }

  /** `alone`: no other process works on this database. */
  start(alone: boolean): void {
    this.#worker.start(alone ? () => this.table.freeAll() : undefined);
    this.#worker.nudge();
  }

  async stop(): Promise<void> {
    await this.#worker.stop();
    for (const provider of this.providers.values()) await provider.close();
  }

  /** Opens a page on which the payer pays. Throws a Fault. */
  async checkout(wanted: NewCheckout): Promise<Checkout> {
    const { clock, ids, log, onStep } = this.#options;
    const provider = this.#providerFor(wanted);
    const { accountId, amountNano, savesCard, returnUrl } = wanted;
    requireAmount(provider, amountNano, 'amountUsd');
    const nowMs = clock.nowMs();
    const payment = await this.table.open(
      {
        id: `pay_${ids.ordered(nowMs)}`,
        provider: provider.name,
        kind: 'checkout',
        accountId,
        amountNano,
        savesCard,
      },
      FIRST_CHECK_MS,
      MAX_OPEN,
    );
    if (payment === undefined) throw tooManyOpen();
    await onStep?.('opened');
    try {
      const { reference, url } = await provider.openPage(payment, returnUrl);
      await onStep?.('page');
      await this.table.opened(payment.id, reference);
      return { payment, url };
    } catch (error) {
      // The row stays: the page may exist, and a payment on it is credited.
      log.warn({ paymentId: payment.id, reason: reasonOf(error) }, 'No payment page was opened');
      throw new Fault('PAYMENT_PROVIDER_UNAVAILABLE', { cause: error });
    }
  }

  /** Verifies a webhook and journals its event. Throws a Fault for an invalid signature. */
  async receive(name: ProviderName, body: Buffer, headers: IncomingHttpHeaders): Promise<void> {
    const { clock, onStep, log } = this.#options;
    const notice = this.#provider(name).readWebhook(body, headers, clock.nowMs());
    if (notice === undefined) return;
    const { accountId } = notice.report ?? {};
    if (accountId !== undefined && !(await this.#options.hasAccount(accountId))) {
      throw new Fault('ACCOUNT_NOT_FOUND');
    }
    const isNew = await this.table.journal(name, notice);
    log.debug({ event: notice.eventId, type: notice.type, isNew }, 'A payment event was received');
    // A shop reports to one service only, and repeats a report that was rejected.
    if (isNew === undefined && notice.report !== undefined) throw new Fault('PAYMENT_NOT_FOUND');
    await onStep?.('journaled');
    this.#worker.nudge();
  }

  /** Journals events whose webhooks did not arrive, and deletes old ones. For one process a minute. */
  async reconcile(): Promise<void> {
    const nowMs = this.#options.clock.nowMs();
    for (const provider of this.providers.values()) {
      let sinceMs = await this.table.eventsSince(provider.name);
      // By the times of the events: the clock of this machine can be wrong.
      for await (const event of provider.events(sinceMs - EVENTS_OVERLAP_MS)) {
        if (event.notice !== undefined) await this.table.journal(provider.name, event.notice);
        sinceMs = Math.max(sinceMs, event.createdMs);
      }
      await this.table.eventsRead(provider.name, sinceMs);
    }
    await this.table.pruneEvents(nowMs - EVENTS_KEPT_MS);
    this.#worker.nudge();
  }

  /** Charges the saved cards of accounts whose balance is too low. For one process a minute. */
  async topUp(): Promise<void> {
    if ((await this.savedCards.charge()) > 0) this.#worker.nudge();
  }

  /** Sets the automatic top-ups of an account. Throws a Fault without a saved card that can be charged. */
  async configureTopUp(accountId: string, settings: AutoTopUp): Promise<void> {
    const owner = await this.savedCards.find(accountId);
    const provider = owner && this.providers.get(owner.provider);
    if (provider === undefined) throw new Fault('NO_SAVED_CARD');
    if (provider.chargesCards !== true) {
      throw new Fault('NO_SAVED_CARD', { message: provider.chargesCards });
    }
    const { chargeNano, keepNano } = settings;
    // The smallest and the largest charge.
    requireAmount(provider, chargeNano, 'chargeUsd');
    requireAmount(provider, larger(chargeNano, keepNano), 'keepUsd');
    if (!(await this.savedCards.configure(accountId, settings))) throw new Fault('NO_SAVED_CARD');
    await this.topUp();
  }

  /** Ends the automatic top-ups of an account and deletes its saved card. */
  async deleteCard(owner: CardOwner): Promise<void> {
    const { log } = this.#options;
    await this.savedCards.remove(owner.accountId);
    try {
      await this.providers.get(owner.provider)?.deleteCard(owner);
    } catch (error) {
      // Farebox no longer charges it. The operator can delete it at the provider.
      log.warn({ reason: reasonOf(error) }, 'A saved card was not deleted at its provider');
    }
  }

  /** Reads the facts of one payment now. Does nothing if another process does so. */
  async check(id: string): Promise<void> {
    await this.table.withLease(id, (payment) => this.#work(payment), '1 = 1');
  }

  /**
   * Pays unused credit back to the cards that it came from, newest payment first. `all` takes what
   * is left of all payments, up to `availableNano`. Throws a Fault if nothing was debited.
   */
  async refund(
    accountId: string,
    wanted: Nano | 'all',
    availableNano: Nano,
    { reference, takesSpent = false }: RefundOptions = {},
  ): Promise<readonly CardRefund[]> {
    const { ids, clock } = this.#options;
    const payments = await this.table.refundable(accountId, MAX_REFUNDED);
    const limit = wanted === 'all' ? availableNano : wanted;
    let left: Nano = nano(limit - (limit % NANO_PER_CENT));
    const parts: Omit<CardRefund, 'state' | 'failure'>[] = [];
    for (const { id: paymentId, provider, creditedNano, refundedNano } of payments) {
      if (this.providers.get(provider)?.canRefund !== true) continue;
      const amountNano = smaller(left, nano(creditedNano - refundedNano));
      if (amountNano <= 0n) continue;
      const id =
        reference === undefined
          ? `refund_${ids.ordered(clock.nowMs())}`
          : refundId(reference, parts.length);
      parts.push({ id, paymentId, accountId, amountNano });
      left = nano(left - amountNano);
    }
    const isTooLittle = parts.length === 0 || (wanted !== 'all' && left > 0n);
    if (isTooLittle || !(await this.table.openRefunds(parts, takesSpent)))
      throw tooLittleLeft(accountId, limit);
    await this.#options.onStep?.('opened');
    for (const { paymentId } of parts) await this.check(paymentId);
    return await Promise.all(parts.map(({ id }) => this.refundState(id)));
  }

  /** Continues and returns the refunds with this reference; empty if there are none. */
  async refundsBy(reference: string): Promise<readonly CardRefund[]> {
    const ids = Array.from({ length: MAX_REFUNDED }, (_, at) => refundId(reference, at));
    const found = await this.table.refundsWith(ids);
    for (const { state, paymentId } of found) if (state === 'open') await this.check(paymentId);
    return await this.table.refundsWith(ids);
  }

  async refundState(id: string): Promise<CardRefund> {
    const refund = await this.table.refund(id);
    if (refund === undefined) throw new Fault('PAYMENT_NOT_FOUND', { message: 'Refund not found' });
    return refund;
  }

  /** Never rejects: the row is due again after an error. */
  async #work(payment: CardPayment): Promise<void> {
    const { log, onStep } = this.#options;
    const { id } = payment;
    try {
      const facts = await this.#factsOf(payment);
      await onStep?.('read');
      const applied = await this.table.apply(payment, facts, nextCheckInMs(payment, facts));
      // An event arrived meanwhile.
      if (applied === undefined) return await this.table.rest(id);
      await onStep?.('applied');
      this.#report(payment, facts, applied);
    } catch (error) {
      log.warn(
        { paymentId: id, reason: reasonOf(error) },
        'The state of a card payment is unknown',
      );
      const pauseMs = Math.min(SECOND_MS * 2 ** payment.attempts, LONGEST_PAUSE_MS);
      await this.table.postpone(id, pauseMs);
    }
  }

  /** Makes the open refunds of a payment, then reads its facts. */
  async #factsOf(payment: CardPayment): Promise<PaymentFacts> {
    const provider = this.#provider(payment.provider);
    const refunds = await this.table.refundsOf(payment.id);
    const results = new Map<string, RefundResult>();
    for (const refund of refunds) {
      if (refund.state !== 'open') continue;
      results.set(refund.id, await provider.refund(payment, refund));
      await this.#options.onStep?.('refunded');
    }
    let known = payment;
    if (payment.kind === 'automatic' && payment.state === 'open') {
      const charged = await provider.chargeCard(payment, () => this.savedCards.mayCharge(payment));
      await this.#options.onStep?.('charged');
      if ('failure' in charged) return { ...NOT_CHARGED, ...charged };
      known = { ...payment, intent: charged.intent };
    }
    const facts = await provider.facts(known, refunds);
    return { ...facts, refunds: new Map([...results, ...facts.refunds]) };
  }

  #report({ id: paymentId, accountId }: CardPayment, facts: PaymentFacts, applied: Applied): void {
    const { log } = this.#options;
    const { creditedNano, reversedNano, owedNano } = applied;
    if (creditedNano > 0n) {
      const amountUsd = formatUsd(creditedNano);
      log.info({ paymentId, accountId, amountUsd }, 'A card payment was credited');
    }
    if (reversedNano > 0n) {
      const amountUsd = formatUsd(reversedNano);
      const note = { paymentId, accountId, amountUsd, owedUsd: formatUsd(owedNano) };
      log.warn(
        { ...note, reason: facts.returnReason },
        owedNano > 0n
          ? 'A card payment was returned after it was spent: the account cannot spend until it has paid the debt'
          : 'A card payment was returned: its credit was reversed',
      );
    }
  }

  #provider(name: ProviderName): PaymentProvider {
    const provider = this.providers.get(name);
    assert(provider !== undefined, `the payment provider ${name} is not configured`);
    return provider;
  }

  #providerFor({ provider: name }: NewCheckout): PaymentProvider {
    const [first] = this.providers.values();
    const provider = name === undefined ? first : this.providers.get(name);
    if (provider !== undefined) return provider;
    throw new Fault('CHECKOUT_NOT_CONFIGURED');
  }
}

function refundId(reference: string, part: number): string {
  return `refund_${sha256Hex(reference).slice(0, REFERENCE_DIGITS)}-${part}`;
}

const NOT_CHARGED: PaymentFacts = {
  state: 'failed',
  paidNano: ZERO,
  returnedNano: ZERO,
  refunds: new Map(),
};

function requireAmount(
  { minimumNano, maximumNano }: PaymentProvider,
  amountNano: Nano,
  field: string,
): void {
  if (amountNano >= minimumNano && amountNano <= maximumNano) return;
  throw invalidField(
    [field],
    `The amount must be from ${formatUsd(minimumNano, 2)} to ${formatUsd(maximumNano, 2)} USD`,
  );
}

function tooManyOpen(): Fault {
  return new Fault('RATE_LIMIT_EXCEEDED', {
    message: `The account has ${MAX_OPEN} unpaid checkouts; pay one of them, or wait an hour until they expire`,
    retryAfterSeconds: (10 * MINUTE_MS) / SECOND_MS,
  });
}

function tooLittleLeft(accountId: string, amountNano: Nano): Fault {
  return new Fault('INSUFFICIENT_BALANCE', {
    message: `The account ${accountId} has less than ${formatUsd(amountNano, 2)} USD of unused credit from card payments`,
  });
}

/** The pause until the next check; `undefined` if only an event makes the payment due again. */
function nextCheckInMs(
  { attempts }: CardPayment,
  { state, isFeePending }: PaymentFacts,
): number | undefined {
  const pauseMs = FIRST_CHECK_MS * 2 ** Math.min(attempts, 20);
  if (state === 'processing') return Math.min(pauseMs, MAX_PROCESSING_CHECK_MS);
  const isFeeOpen = isFeePending === true && attempts < MAX_FEE_CHECKS;
  return state === 'open' || isFeeOpen ? Math.min(pauseMs, LONGEST_PAUSE_MS) : undefined;
}
