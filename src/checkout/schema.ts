/** Schemas and descriptions of `/billing/checkout` and of the webhooks of payment providers. */
import * as z from 'zod';
import { type RouteDescription, jsonContent, jsonResponse } from '../http/describe.ts';
import { PROVIDER_NAMES } from '../payments/cards/cards.ts';

const MAX_USD = 100_000;

export const AmountUsd = z
  .number()
  .positive()
  .max(MAX_USD)
  .refine((usd) => /^\d+(?:\.\d{1,2})?$/.test(String(usd)), 'Must have at most 2 decimals');

const Provider = z.enum(PROVIDER_NAMES);

export const CreateCheckout = z
  .object({
    amountUsd: AmountUsd.describe('Amount to credit, in USD with whole cents; taxes are added.'),
    saveCard: z.boolean().default(false).describe('Save the card for `PUT /billing/auto-top-up`.'),
    provider: Provider.optional().describe('Default: the first one that is configured.'),
  })
  .meta({ id: 'CreateCheckoutRequest' });

const PAYMENT_SHAPE = {
  id: z.string().describe('Id of the payment, and of its entry in the statement.'),
  object: z.literal('checkout').describe('Kind of the object.'),
  provider: Provider.describe('The company that takes the payment.'),
  status: z
    .enum(['open', 'processing', 'paid', 'failed', 'expired'])
    .describe(
      'open: not paid yet; processing: the bank decides, which can take days; paid: credited; failed and expired: without a payment.',
    ),
  amountUsd: z.number().describe('Amount to credit, in USD.'),
  creditedUsd: z.number().describe('Credit of the payment, minus what went back to the payer.'),
  receiptUrl: z.string().nullable().describe('Receipt of the provider, or null.'),
  failure: z.string().nullable().describe('Reason of a failure, or null.'),
  createdAt: z.string().describe('ISO 8601, UTC.'),
};

export type CheckoutItem = z.infer<typeof CheckoutItem>;
export const CheckoutItem = z.strictObject(PAYMENT_SHAPE).meta({ id: 'Checkout' });

export type CreatedCheckout = z.infer<typeof CreatedCheckout>;
export const CreatedCheckout = z
  .strictObject({
    ...PAYMENT_SHAPE,
    url: z.string().describe('Page on which the payer pays. It expires after an hour.'),
  })
  .meta({ id: 'CreatedCheckout' });

const OPEN: CheckoutItem = {
  id: 'pay_019aa3f1c0de4b7e8c1d2e3f4a5b6c7d',
  object: 'checkout',
  provider: 'stripe',
  status: 'open',
  amountUsd: 25,
  creditedUsd: 0,
  receiptUrl: null,
  failure: null,
  createdAt: '2026-11-21T04:00:00.000Z',
};
const tag = 'Usage and billing';

export const CREATE_CHECKOUT: RouteDescription = {
  tag,
  summary: 'Start a card payment',
  about:
    'Returns the URL of a page on which a person pays by card. The account is credited when the provider reports the payment, also if the payer closes the page. At most 20 unpaid checkouts per account.',
  request: jsonContent(CreateCheckout, { amountUsd: 25 }),
  response: jsonResponse('Open `url` in a browser.', CreatedCheckout, {
    ...OPEN,
    url: 'https://checkout.stripe.com/c/pay/cs_test_a1b2c3',
  }),
  refusals: [
    'INVALID_REQUEST',
    'RATE_LIMIT_EXCEEDED',
    'CHECKOUT_NOT_CONFIGURED',
    'PAYMENT_PROVIDER_UNAVAILABLE',
  ],
};

export const GET_CHECKOUT: RouteDescription = {
  tag,
  summary: 'Get a card payment',
  parameters: [
    { name: 'id', in: 'path', about: 'Id of the payment.', example: OPEN.id, required: true },
  ],
  response: jsonResponse('State of the payment.', CheckoutItem, {
    ...OPEN,
    status: 'paid',
    creditedUsd: 25,
    receiptUrl: 'https://pay.stripe.com/receipts/payment/CAcaFwoV',
  }),
  refusals: ['PAYMENT_NOT_FOUND', 'CHECKOUT_NOT_CONFIGURED'],
};

const Received = z.strictObject({ received: z.literal(true).describe('The event was journaled.') });

export const STRIPE_WEBHOOK: RouteDescription = {
  tag,
  summary: 'Receive events of Stripe',
  about:
    'For Stripe only: the body must be signed in the header `Stripe-Signature`. Events are journaled, and the state of the payment is then read from Stripe.',
  request: jsonContent(z.record(z.string(), z.unknown()), { id: 'evt_1', type: 'charge.refunded' }),
  response: jsonResponse('The event was journaled, or needs no action.', Received, {
    received: true,
  }),
  refusals: ['INVALID_REQUEST', 'CHECKOUT_NOT_CONFIGURED'],
};

export const SHOP_WEBHOOK: RouteDescription = {
  tag,
  summary: 'Receive payments of the shop',
  about:
    "For the operator's own shop: the body must be signed as defined by Standard Webhooks. `payment.paid` reports the sum that was paid, `payment.returned` the sum of all that went back.",
  request: jsonContent(z.record(z.string(), z.unknown()), {
    type: 'payment.paid',
    data: { payment: 'order-118', account: 'acct_5c1d0e9f8a7b', paidUsd: '25.00' },
  }),
  response: jsonResponse('The report was journaled.', Received, { received: true }),
  refusals: [
    'INVALID_REQUEST',
    'ACCOUNT_NOT_FOUND',
    'PAYMENT_NOT_FOUND',
    'CHECKOUT_NOT_CONFIGURED',
  ],
};
