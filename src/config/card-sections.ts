/** The settings of payments by people: `payments.stripe` and `payments.shop`. Amounts are decimal USD with whole cents. */
import * as z from 'zod';
import { baseUrl, flag, httpUrl, secret } from './setting-kinds.ts';

const MAX_USD = 100_000;
const CENTS = /^\d+(?:\.\d{1,2})?$/;

export const CentsUsd = z
  .number()
  .positive()
  .max(MAX_USD)
  .refine((usd) => CENTS.test(String(usd)), 'Must have at most 2 decimals');

export const StripeSection = z
  .strictObject({
    secretKey: secret().describe(
      'Secret or restricted key of the Stripe account, `sk_…` or `rk_…`.',
    ),
    webhookSecret: secret().describe(
      'Signing secret of the webhook endpoint `/payments/stripe`, `whsec_…`.',
    ),
    currency: z
      .string()
      .refine(
        (currency) => currency === 'usd',
        'Must be "usd": the ledger is kept in USD, and a payment in another currency could not be credited exactly',
      )
      .default('usd')
      .describe('Currency of the payments. The ledger is kept in USD, so only `usd` is accepted.'),
    minimumUsd: CentsUsd.min(0.5).default(5).describe('Minimum amount of a payment, in USD.'),
    maximumUsd: CentsUsd.default(1_000).describe('Maximum amount of a payment, in USD.'),
    taxes: flag(false).describe(
      'Let Stripe Tax add the tax of the payer to the amount. The tax is not credited.',
    ),
    apiUrl: httpUrl()
      .default('https://api.stripe.com')
      .describe('URL of the Stripe API: another one for a gateway or a test server.'),
  })
  .refine(({ minimumUsd, maximumUsd }) => minimumUsd <= maximumUsd, {
    message: 'Must not be below "minimumUsd"',
    path: ['maximumUsd'],
  });

export const ShopSection = z.strictObject({
  checkoutUrl: baseUrl().describe(
    'Page of your shop that takes a payment. The server adds a query.',
  ),
  webhookSecret: secret()
    .refine(isWebhookSecret, 'Must be the base64 text of at least 16 bytes, with or without whsec_')
    .describe(
      'Secret of the webhooks that your shop sends to `/payments/shop`, and of the query of `checkoutUrl`: `whsec_` and base64.',
    ),
  minimumUsd: CentsUsd.default(5).describe('Minimum amount of a payment, in USD.'),
  maximumUsd: CentsUsd.default(1_000).describe('Maximum amount of a payment, in USD.'),
});

const MIN_SECRET_BYTES = 16;

function isWebhookSecret(secret: string): boolean {
  const text = secret.replace(/^whsec_/, '');
  return /^[\w+/=-]+$/.test(text) && Buffer.from(text, 'base64').length >= MIN_SECRET_BYTES;
}
