/**
 * The public file of payments by people: `POST /billing/checkout` opens a page of a payment provider,
 * whose webhooks arrive here. `payments/cards/` turns payments into credit.
 */
import type { Windows } from '../billing/limits/limits.ts';
import type { ConfigInForce } from '../config/config.ts';
import { type Clock, isoTime } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { toUsdNumber, usdToNano } from '../core/money.ts';
import type { Store } from '../db/db.ts';
import type { RouteDescription } from '../http/describe.ts';
import { limitRequests } from '../http/limit-requests.ts';
import { readBody } from '../http/read-request.ts';
import type { RequestContext } from '../http/request-context.ts';
import { type Feature, type Route, get, post } from '../http/route.ts';
import { walletOfAccount } from '../identity/identity.ts';
import type { CardPayment, CardPayments, ProviderName } from '../payments/cards/cards.ts';
import { autoTopUpRoutes } from './auto-top-up.ts';
import { type CardRefundParts, cardRefundRoute } from './card-refunds.ts';
import {
  CREATE_CHECKOUT,
  type CheckoutItem,
  CreateCheckout,
  type CreatedCheckout,
  GET_CHECKOUT,
  SHOP_WEBHOOK,
  STRIPE_WEBHOOK,
} from './schema.ts';

export interface CheckoutParts extends CardRefundParts {
  readonly config: ConfigInForce;
  readonly store: Store;
  /** `undefined` without a configured provider: the routes then return 503. */
  readonly cards: CardPayments | undefined;
  readonly windows: Windows;
  readonly clock: Clock;
}

/** Each checkout is a request to the provider, whose own limit all accounts share. */
const CHECKOUTS_PER_MINUTE = 10;

export function checkoutFeature(parts: CheckoutParts): Feature {
  const { cards, store } = parts;
  return {
    routes: checkoutRoutes(parts),
    // A SQLite file has one server.
    start: () => cards?.start(store.dialect === 'sqlite'),
    leaderJob: async () => {
      // A provider that does not respond must not delay the charges.
      await cards?.topUp();
      await cards?.reconcile();
    },
    close: async () => cards?.stop(),
  };
}

function checkoutRoutes(parts: CheckoutParts): Route[] {
  const webhook = (name: ProviderName, describe: RouteDescription): Route =>
    post(`/payments/${name}`, 'public', describe, async (context) => {
      const cards = requireCards(parts);
      if (!cards.providers.has(name)) throw new Fault('CHECKOUT_NOT_CONFIGURED');
      await cards.receive(name, context.body, context.request.headers);
      await context.json(200, { received: true });
    });
  return [
    ...autoTopUpRoutes(() => requireCards(parts)),
    cardRefundRoute(() => requireCards(parts), parts),
    post('/billing/checkout', 'key-or-wallet', CREATE_CHECKOUT, (context) =>
      createCheckout(parts, context),
    ),
    get('/billing/checkout/:id', 'key-or-wallet', GET_CHECKOUT, async (context) => {
      const payment = await requireCards(parts).table.find(context.parameters['id'] ?? '');
      if (payment?.accountId !== context.caller.accountId) throw new Fault('PAYMENT_NOT_FOUND');
      await context.json(200, itemOf(payment));
    }),
    webhook('stripe', STRIPE_WEBHOOK),
    webhook('shop', SHOP_WEBHOOK),
  ];
}

async function createCheckout(parts: CheckoutParts, context: RequestContext): Promise<void> {
  const { amountUsd, saveCard, provider } = readBody(context, CreateCheckout);
  const cards = requireCards(parts);
  const { accountId } = context.caller;
  // Everybody can make new wallets, and keys of their accounts.
  const limited = walletOfAccount(accountId) === undefined ? accountId : context.countedAddress;
  await limitRequests(parts, `checkout|${limited}`, CHECKOUTS_PER_MINUTE);
  const { payment, url } = await cards.checkout({
    accountId,
    amountNano: usdToNano(amountUsd),
    savesCard: saveCard,
    provider,
    returnUrl: `${parts.config.current.publicUrl}/console/credit`,
  });
  context.set('cache-control', 'no-store');
  await context.json(200, { ...itemOf(payment), url } satisfies CreatedCheckout);
}

function requireCards({ cards }: CheckoutParts): CardPayments {
  if (cards !== undefined) return cards;
  throw new Fault('CHECKOUT_NOT_CONFIGURED');
}

function itemOf(payment: CardPayment): CheckoutItem {
  return {
    id: payment.id,
    object: 'checkout',
    provider: payment.provider,
    status: payment.state,
    amountUsd: toUsdNumber(payment.amountNano),
    creditedUsd: toUsdNumber(payment.creditedNano),
    receiptUrl: payment.receiptUrl ?? null,
    failure: payment.failure ?? null,
    createdAt: isoTime(payment.createdMs),
  };
}
