/** The settings of payments by people: `payments.stripe`. Amounts are decimal USD with whole cents. */
import { z } from 'zod';
import { flag, httpUrl, secret } from './setting-kinds.ts';

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
