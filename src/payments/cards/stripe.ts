/**
 * Stripe as a payment provider: Checkout for payments, signed webhooks, refunds, disputes.
 *
 * Every object that is created at Stripe names its row in `metadata`. Requests that create something
 * have the id of the row as idempotency key, and after an interruption the object is searched first,
 * because Stripe deletes these keys after a day.
 */
import type { IncomingHttpHeaders } from 'node:http';
import { Stripe } from 'stripe';
import { Agent, fetch as undiciFetch } from 'undici';
import * as z from 'zod';
import type { Config } from '../../config/config.ts';
import { type Clock, HOUR_MS, MINUTE_MS, SECOND_MS } from '../../core/clock.ts';
import { Fault } from '../../core/faults.ts';
import { type Nano, ZERO, formatUsd, nano, smaller, usdToNano } from '../../core/money.ts';
import { connectorOf } from '../../net/connector.ts';
import type { CardPayment, CardRefund } from './card-rows.ts';
import type { SavedCard } from './saved-cards.ts';
import { FeeAccess, feesOf } from './stripe-fees.ts';
import {
  type ChargeResult,
  type CheckoutPage,
  type Notice,
  type ProviderEvent,
  type PaymentFacts,
  type PaymentProvider,
  type ProviderPayment,
  type RefundResult,
  belowMinimum,
} from './provider.ts';

export type StripeSettings = NonNullable<Config['payments']['stripe']>;

export interface StripeParts {
  readonly settings: StripeSettings;
  /** Address of this service. It separates its payments from others on the same Stripe account. */
  readonly publicUrl: string;
  /** Shown to the payer. */
  readonly serviceName: string;
  readonly proxy: string | undefined;
  readonly clock: Clock;
}

const TIMEOUT_MS = 20 * SECOND_MS;
const MAX_RESPONSE_BYTES = 8_000_000;
const MAX_CONNECTIONS = 8;
/** A webhook that is older is rejected as a replay. Stripe signs each delivery again. */
const TOLERANCE_SECONDS = 300;
/** How long the payer can pay on a page. */
export const PAGE_LIFE_MS = HOUR_MS;
/** Clocks can differ by this much in searches by time. */
const CLOCK_SLACK_MS = 10 * MINUTE_MS;
const PAGE_SIZE = 100;
/** Bound of a search. */
const MAX_LISTED = 10_000;
const NANO_PER_CENT = 10_000_000n;

/** The events that this service reads; the webhook in Stripe's dashboard needs the same list. */
export const STRIPE_EVENTS = [
  'checkout.session.completed',
  'checkout.session.async_payment_succeeded',
  'checkout.session.async_payment_failed',
  'checkout.session.expired',
  'payment_intent.succeeded',
  'payment_intent.payment_failed',
  'charge.refunded',
  'refund.updated',
  'refund.failed',
  'charge.dispute.created',
  'charge.dispute.updated',
  'charge.dispute.funds_withdrawn',
  'charge.dispute.funds_reinstated',
  'charge.dispute.closed',
] as const;

/** The ids in the object of an event, whatever its type and API version are. */
const EventObject = z.object({
  id: z.string(),
  object: z.string(),
  metadata: z.record(z.string(), z.string()).nullish(),
  payment_intent: z.union([z.string(), z.object({ id: z.string() })]).nullish(),
});

const PAYMENT_ID = 'farebox_payment';
const REFUND_ID = 'farebox_refund';
const SERVICE_URL = 'farebox_url';

/** Dispute states in which the bank has not taken the money, or has given it back. */
const WITHOUT_LOSS = new Set([
  'won',
  'prevented',
  'warning_needs_response',
  'warning_under_review',
  'warning_closed',
]);

/** States of a charge that no longer changes, or that the bank decides. */
const ENDED = new Set(['succeeded', 'processing', 'canceled']);

export function openStripe(parts: StripeParts): PaymentProvider {
  return new StripeProvider(parts);
}

class StripeProvider implements PaymentProvider {
  readonly name = 'stripe';
  readonly canRefund = true;
  readonly minimumNano: Nano;
  readonly maximumNano: Nano;
  readonly chargesCards: true | string;
  readonly #parts: StripeParts;
  readonly #stripe: Stripe;
  readonly #agent: Agent;
  readonly #fees: FeeAccess;

  constructor(parts: StripeParts) {
    this.#parts = parts;
    this.#fees = new FeeAccess(parts.clock);
    const { settings, proxy } = parts;
    this.minimumNano = usdToNano(settings.minimumUsd);
    this.maximumNano = usdToNano(settings.maximumUsd);
    this.chargesCards = settings.taxes
      ? 'Automatic top-ups are not possible on this service, because taxes are calculated on the payment page'
      : true;
    const agent = new Agent({
      connections: MAX_CONNECTIONS,
      connect: connectorOf({ proxy }, TIMEOUT_MS, null),
      maxResponseSize: MAX_RESPONSE_BYTES,
    });
    this.#agent = agent;
    const { protocol, hostname, port } = new URL(settings.apiUrl);
    const isPlain = protocol === 'http:';
    // The types of Node's fetch and of undici's differ, but describe the same function.
    const fetchFn = ((url: string, init: object) =>
      undiciFetch(url, { ...init, dispatcher: agent })) as unknown as typeof fetch;
    this.#stripe = new Stripe(settings.secretKey, {
      httpClient: Stripe.createFetchHttpClient(fetchFn),
      host: hostname,
      port: port || (isPlain ? '80' : '443'),
      protocol: isPlain ? 'http' : 'https',
      timeout: TIMEOUT_MS,
      maxNetworkRetries: 1,
      telemetry: false,
    });
  }

  async openPage(payment: CardPayment, returnUrl: string): Promise<CheckoutPage> {
    const { settings, serviceName, clock } = this.#parts;
    const metadata = this.#metadataOf(payment);
    const session = await this.#stripe.checkout.sessions.create(
      {
        mode: 'payment',
        client_reference_id: payment.id,
        metadata,
        line_items: [
          {
            quantity: 1,
            price_data: {
              currency: settings.currency,
              unit_amount: centsOf(payment.amountNano),
              tax_behavior: 'exclusive',
              product_data: { name: `Credit for ${serviceName}` },
            },
          },
        ],
        payment_intent_data: {
          metadata,
          ...(payment.savesCard && { setup_future_usage: 'off_session' as const }),
        },
        automatic_tax: { enabled: settings.taxes },
        ...(payment.savesCard && { customer_creation: 'always' as const }),
        expires_at: Math.floor((clock.nowMs() + PAGE_LIFE_MS) / SECOND_MS),
        success_url: `${returnUrl}?checkout=${payment.id}`,
        cancel_url: returnUrl,
      },
      { idempotencyKey: payment.id },
    );
    if (session.url === null) throw new Error('Stripe returned a session without a URL');
    return { reference: session.id, url: session.url };
  }

  readWebhook(body: Buffer, headers: IncomingHttpHeaders, nowMs: number): Notice | undefined {
    const { settings } = this.#parts;
    let event: Stripe.Event;
    try {
      event = this.#stripe.webhooks.constructEvent(
        body,
        String(headers['stripe-signature'] ?? ''),
        settings.webhookSecret,
        TOLERANCE_SECONDS,
        undefined,
        nowMs,
      );
    } catch {
      // The message of the library contains the payload.
      throw new Fault('INVALID_REQUEST', {
        message:
          'The signature in the header Stripe-Signature is not valid for this body and time; check "payments.stripe.webhookSecret"',
      });
    }
    return noticeOf(event);
  }

  facts(payment: CardPayment, refunds: readonly CardRefund[]): Promise<PaymentFacts> {
    return this.#fees.read((hasFees) => this.#facts(payment, refunds, hasFees));
  }

  async #facts(
    payment: CardPayment,
    refunds: readonly CardRefund[],
    hasFees: boolean,
  ): Promise<PaymentFacts> {
    const { state, intent: intentId } = await this.#pageState(payment);
    if (intentId === undefined) return { ...NOTHING, state };
    const intent = await this.#stripe.paymentIntents.retrieve(intentId, {
      expand: [hasFees ? 'latest_charge.balance_transaction' : 'latest_charge', 'payment_method'],
    });
    const { id, status, currency, amount_received: received } = intent;
    if (status === 'processing') return { ...NOTHING, state: 'processing', intent: id };
    if (status !== 'succeeded') {
      // The payer can try another card while the page is open.
      const failure = state === 'failed' ? declineOf(intent) : undefined;
      return { ...NOTHING, state, intent: id, failure };
    }
    if (currency !== 'usd') throw new Error(`The payment ${id} is in ${currency}, not in usd`);
    const charge = typeof intent.latest_charge === 'string' ? null : intent.latest_charge;
    const [returned, { cents: disputed, balance }] = await Promise.all([
      this.#refundsAt(id, refunds, hasFees ? REFUND_BALANCE : []),
      this.#disputesAt(id),
    ]);
    const returnedCents = BigInt(returned.otherCents + disputed);
    // With taxes the payer has paid more than is credited: each cent returns its share of the credit.
    const paidNano = smaller(payment.amountNano, nanoOfCents(received));
    const share = received === 0 ? ZERO : nano((paidNano * returnedCents) / BigInt(received));
    return {
      state: 'paid',
      intent: id,
      paidNano,
      returnedNano: share,
      returnReason: disputed > 0 ? 'Disputed card payment' : 'Refunded card payment',
      isDisputed: disputed > 0,
      ...(hasFees ? feesOf(charge, [...returned.balance, ...balance]) : {}),
      receiptUrl: charge?.receipt_url ?? undefined,
      savedCard: savedCardOf(intent),
      refunds: returned.own,
    };
  }

  async refund(payment: CardPayment, refund: CardRefund): Promise<RefundResult> {
    const { intent: payment_intent } = payment;
    if (payment_intent === undefined) throw new Error('A payment without money has no refund');
    const { own } = await this.#refundsAt(payment_intent, [refund], []);
    const known = own.get(refund.id);
    if (known !== undefined) return known;
    const intent = await this.#stripe.paymentIntents.retrieve(payment_intent);
    // With taxes, the share of the tax is paid back too.
    const cents = (refund.amountNano * BigInt(intent.amount_received)) / payment.paidNano;
    const metadata = { ...this.#metadataOf(payment), [REFUND_ID]: refund.id };
    try {
      await this.#stripe.refunds.create(
        { payment_intent, amount: Number(cents), metadata, reason: 'requested_by_customer' },
        { idempotencyKey: refund.id },
      );
    } catch (error) {
      // Stripe rejected the request before it moved money, and rejects it again on a retry.
      if (!(error instanceof Stripe.errors.StripeInvalidRequestError)) throw error;
      return { state: 'failed', failure: `Stripe rejected the refund: ${error.message}` };
    }
    return { state: 'paid' };
  }

  async *events(sinceMs: number): AsyncIterable<ProviderEvent> {
    const list = this.#stripe.events.list({
      created: { gte: secondsOf(sinceMs) },
      types: [...STRIPE_EVENTS],
      limit: PAGE_SIZE,
    });
    // Without a bound: the newest come first, and those behind it would never be read. Stripe lists 30 days.
    for await (const event of list) {
      yield { createdMs: event.created * SECOND_MS, notice: noticeOf(event) };
    }
  }

  async *payments(sinceMs: number): AsyncIterable<ProviderPayment> {
    const created = { gte: secondsOf(sinceMs) };
    for await (const intent of this.#stripe.paymentIntents.list({ created, limit: PAGE_SIZE })) {
      const { [PAYMENT_ID]: paymentId, [SERVICE_URL]: url } = intent.metadata;
      if (intent.status !== 'succeeded' || paymentId === undefined) continue;
      if (url !== this.#parts.publicUrl) continue;
      yield { paymentId, intent: intent.id, paidNano: nanoOfCents(intent.amount_received) };
    }
  }

  async close(): Promise<void> {
    await this.#agent.destroy();
  }

  #metadataOf({ id }: CardPayment): Record<string, string> {
    return { [PAYMENT_ID]: id, [SERVICE_URL]: this.#parts.publicUrl };
  }

  async chargeCard(payment: CardPayment, mayCharge: () => Promise<boolean>): Promise<ChargeResult> {
    const [customer = '', payment_method = ''] = (payment.reference ?? '').split('/');
    let intent: Stripe.PaymentIntent | undefined;
    try {
      // Rejected too if the payer is missing.
      intent = await this.#chargeOf(payment, customer);
      if (intent === undefined && payment.amountNano < this.minimumNano) return belowMinimum(this);
      if (intent === undefined && !(await mayCharge())) return WITHDRAWN;
      intent ??= await this.#stripe.paymentIntents.create(
        {
          amount: centsOf(payment.amountNano),
          currency: this.#parts.settings.currency,
          customer,
          payment_method,
          off_session: true,
          confirm: true,
          description: `Credit for ${this.#parts.serviceName}`,
          metadata: this.#metadataOf(payment),
        },
        { idempotencyKey: payment.id },
      );
    } catch (error) {
      const { StripeCardError, StripeInvalidRequestError } = Stripe.errors;
      const isRejected = error instanceof StripeInvalidRequestError;
      if (isRejected) return { failure: `Stripe rejected the charge: ${error.message}` };
      if (!(error instanceof StripeCardError) || error.payment_intent === undefined) throw error;
      intent = error.payment_intent;
    }
    // A declined charge could be paid later with another card, when the account has been charged again.
    if (!ENDED.has(intent.status)) await this.#stripe.paymentIntents.cancel(intent.id);
    return { intent: intent.id };
  }

  async deleteCard({ method }: SavedCard): Promise<void> {
    await this.#stripe.paymentMethods.detach(method);
  }

  /** The charge of an automatic payment whose response was lost. */
  async #chargeOf(
    payment: CardPayment,
    customer: string,
  ): Promise<Stripe.PaymentIntent | undefined> {
    const gte = secondsOf(payment.createdMs - CLOCK_SLACK_MS);
    const list = this.#stripe.paymentIntents.list({ customer, created: { gte }, limit: PAGE_SIZE });
    for await (const intent of bounded(list)) {
      if (intent.metadata[PAYMENT_ID] === payment.id) return intent;
    }
    return undefined;
  }

  /** The payment of a page, and the state of the payment if its money has not arrived. */
  async #pageState(payment: CardPayment): Promise<Pick<PaymentFacts, 'state' | 'intent'>> {
    if (payment.state === 'paid') return { state: 'paid', intent: payment.intent };
    if (payment.kind === 'automatic') {
      const [customer = ''] = (payment.reference ?? '').split('/');
      const intent = payment.intent ?? (await this.#chargeOf(payment, customer))?.id;
      return { state: intent === undefined ? payment.state : 'failed', intent };
    }
    const session = await this.#sessionOf(payment);
    if (session === undefined) {
      const endMs = payment.createdMs + PAGE_LIFE_MS + CLOCK_SLACK_MS;
      return { state: this.#parts.clock.nowMs() > endMs ? 'expired' : 'open' };
    }
    const intent = idOf(session.payment_intent) ?? payment.intent;
    if (session.status === 'open') return { state: 'open', intent };
    return { state: session.status === 'expired' ? 'expired' : 'failed', intent };
  }

  async #sessionOf(payment: CardPayment): Promise<Stripe.Checkout.Session | undefined> {
    const { sessions } = this.#stripe.checkout;
    if (payment.reference !== undefined) return await sessions.retrieve(payment.reference);
    // The response that contained the id was lost.
    const gte = secondsOf(payment.createdMs - CLOCK_SLACK_MS);
    const lte = secondsOf(payment.createdMs + CLOCK_SLACK_MS);
    for await (const one of bounded(sessions.list({ created: { gte, lte }, limit: PAGE_SIZE }))) {
      if (one.client_reference_id === payment.id) return one;
    }
    return undefined;
  }

  /** The refunds of Farebox with their states, and the sum of all others. */
  async #refundsAt(payment_intent: string, refunds: readonly CardRefund[], expand: string[]) {
    const ids = new Set(refunds.map(({ id }) => id));
    const own = new Map<string, RefundResult>();
    const balance: Stripe.Refund['balance_transaction'][] = [];
    let otherCents = 0;
    for await (const one of bounded(
      this.#stripe.refunds.list({ payment_intent, limit: PAGE_SIZE, expand }),
    )) {
      balance.push(one.balance_transaction, one.failure_balance_transaction ?? null);
      const isFailed = one.status === 'failed' || one.status === 'canceled';
      const id = one.metadata?.[REFUND_ID];
      // A refund that the database does not know, for example after a restore, counts as one of others.
      if (id === undefined || !ids.has(id)) otherCents += isFailed ? 0 : one.amount;
      else if (isFailed) own.set(id, { state: 'failed', failure: one.failure_reason ?? 'failed' });
      else own.set(id, { state: 'paid' });
    }
    return { own, otherCents, balance };
  }

  async #disputesAt(payment_intent: string) {
    const balance: Stripe.BalanceTransaction[] = [];
    let cents = 0;
    for await (const { status, amount, balance_transactions: changes } of bounded(
      this.#stripe.disputes.list({ payment_intent, limit: PAGE_SIZE }),
    )) {
      if (!WITHOUT_LOSS.has(status)) cents += amount;
      balance.push(...changes);
    }
    return { cents, balance };
  }
}

const WITHDRAWN = { failure: 'The charge was withdrawn before it was made', isWithdrawn: true };
const REFUND_BALANCE = ['data.balance_transaction', 'data.failure_balance_transaction'];
const NOTHING = { paidNano: ZERO, returnedNano: ZERO, refunds: new Map<string, RefundResult>() };

function noticeOf({ id, type, created, data }: Stripe.Event): Notice | undefined {
  const object = EventObject.safeParse(data.object);
  if (!object.success) return undefined;
  const { id: objectId, object: kind, metadata, payment_intent } = object.data;
  const intent = kind === 'payment_intent' ? objectId : idOf(payment_intent ?? null);
  const reference = kind === 'checkout.session' ? objectId : undefined;
  const paymentId = metadata?.[PAYMENT_ID];
  if (intent === undefined && paymentId === undefined) return undefined;
  return { eventId: id, type, createdMs: created * SECOND_MS, paymentId, intent, reference };
}

/** Ends a list that is longer than any real one. */
async function* bounded<T>(list: AsyncIterable<T>): AsyncIterable<T> {
  let count = 0;
  for await (const one of list) {
    yield one;
    count += 1;
    if (count >= MAX_LISTED) return;
  }
}

function savedCardOf(intent: Stripe.PaymentIntent): SavedCard | undefined {
  const { customer, payment_method: method, setup_future_usage: usage } = intent;
  const customerId = idOf(customer);
  if (usage !== 'off_session' || customerId === undefined) return undefined;
  if (method === null || typeof method === 'string') return undefined;
  const { brand, last4 } = method.card ?? {};
  const label = last4 === undefined ? method.type : `${brand ?? 'card'} •••• ${last4}`;
  return { customer: customerId, method: method.id, label };
}

function declineOf({ last_payment_error: error }: Stripe.PaymentIntent): string {
  return error?.decline_code ?? error?.code ?? 'The payment was not completed';
}

function idOf(value: string | { readonly id: string } | null): string | undefined {
  return typeof value === 'string' ? value : value?.id;
}

/** Throws for an amount with a part of a cent. */
function centsOf(amount: Nano): number {
  if (amount % NANO_PER_CENT === 0n) return Number(amount / NANO_PER_CENT);
  throw new Error(`${formatUsd(amount)} USD is not an amount in whole cents`);
}

function nanoOfCents(cents: number): Nano {
  return nano(BigInt(cents) * NANO_PER_CENT);
}

function secondsOf(ms: number): number {
  return Math.floor(ms / SECOND_MS);
}
