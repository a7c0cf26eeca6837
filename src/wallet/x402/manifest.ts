/** `/.well-known/x402.json`: the paid resources and the payment options. */
import * as z from 'zod';
import { type RouteDescription, jsonResponse } from '../../http/describe.ts';
import type { Route } from '../../http/route.ts';
import { MANIFEST_PATH, type Payments } from '../../payments/payments.ts';
import { Open, Texts, Usd, WALLET } from './describe.ts';
import type { WalletRouteOptions } from './route-checks.ts';

const MANIFEST_AGE_SECONDS = 300;

/** An entry of `accepts`. */
export const PaymentOption = z.strictObject({
  scheme: z
    .enum(['exact', 'upto'])
    .describe('`exact`: pays the amount; `upto`: pays the price of a request, at most the amount.'),
  network: z.string().describe('CAIP-2, such as `eip155:8453`.'),
  asset: z.string().describe('The contract, or on Solana the mint, of the token.'),
  amount: z.string().describe('Base units; USDC has 6 decimals.'),
  payTo: z.string().describe('Address of the receiver.'),
  maxTimeoutSeconds: z.number().describe('Validity of the signature.'),
  extra: Open.describe('Data for signing on this network.'),
});

const Manifest = z
  .strictObject({
    x402Version: z.literal(2).describe('Version of the x402 protocol.'),
    service: z.string().describe('Name of the service.'),
    origin: z.string().describe('Public origin of the service.'),
    topUp: z.string().describe('URL of the top-up.'),
    balance: z.string().describe('URL of the balance of a wallet, with `{walletAddress}`.'),
    minimumTopUpUsd: Usd.describe('The smallest top-up, in USD.'),
    maximumTopUpUsd: Usd.describe('The largest top-up, in USD.'),
    firstPaymentUsd: Usd.describe(
      'USD. The smaller payment in each 402, for clients that reject larger ones.',
    ),
    accepts: z
      .array(PaymentOption)
      .describe('Payment options of the smallest top-up and of the first payment.'),
    refundPolicy: z
      .strictObject({
        unservedRequest: z
          .literal('credit-at-once')
          .describe(
            'If a paid request is not served, the whole payment becomes credit of the payer.',
          ),
        partlyServedRequest: z
          .literal('pays-what-was-delivered')
          .describe('A response that ends early costs the part that was sent; the rest is credit.'),
        restOfPayment: z
          .literal('credit-at-once')
          .describe('The part of a payment above the cost of its request becomes credit.'),
        creditExpires: z.literal(false).describe('Credit does not expire.'),
        creditToWallet: z
          .enum(['on-request', 'none'])
          .describe('Whether the operator pays unused credit back to the wallet that paid.'),
        creditToWalletNetworks: Texts.describe('Networks of refunds, CAIP-2.'),
        receipt: z.string().optional().describe('URL of the signed receipt of a request.'),
        keys: z.string().optional().describe('URL of the keys of receipts.'),
        docs: z.string().describe('URL of the documentation.'),
      })
      .describe('Refund policy, which each 402 contains too.'),
    extensions: Texts.describe('Supported extensions of the protocol.'),
    resources: z
      .array(
        z.strictObject({
          url: z.string().describe('URL of the resource.'),
          description: z.string().describe('Description of the resource.'),
          mimeType: z.string().describe('Media type of the response.'),
        }),
      )
      .describe('Paid resources.'),
  })
  .meta({ id: 'X402Manifest' });

export const OPTION_SAMPLE = {
  scheme: 'exact',
  network: 'eip155:8453',
  asset: '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913',
  amount: '5000000',
  payTo: WALLET,
  maxTimeoutSeconds: 300,
  extra: { name: 'USD Coin', version: '2', minimumTopUpUsd: 5, suggestedTopUpUsd: 10 },
};

const MANIFEST: RouteDescription = {
  tag: 'Wallets',
  summary: 'Get the x402 manifest',
  response: jsonResponse(
    'The x402 manifest of this server.',
    Manifest,
    {
      x402Version: 2,
      service: 'Example',
      origin: 'https://api.example.com',
      topUp: 'https://api.example.com/api/v1/x402/top-up',
      balance: 'https://api.example.com/api/v1/x402/balance/{walletAddress}',
      minimumTopUpUsd: 5,
      maximumTopUpUsd: 1000,
      firstPaymentUsd: 1,
      accepts: [OPTION_SAMPLE],
      refundPolicy: {
        unservedRequest: 'credit-at-once',
        partlyServedRequest: 'pays-what-was-delivered',
        restOfPayment: 'credit-at-once',
        creditExpires: false,
        creditToWallet: 'on-request',
        creditToWalletNetworks: ['eip155:8453'],
        receipt: 'https://api.example.com/api/v1/usage/{requestId}/signed',
        keys: 'https://api.example.com/.well-known/did.json',
        docs: 'https://api.example.com/docs',
      },
      extensions: ['sign-in-with-x'],
      resources: [
        {
          url: 'https://api.example.com/api/v1/chat/completions',
          description: 'Chat',
          mimeType: 'application/json',
        },
      ],
    },
    'no-store',
  ),
};

export function manifestRoute(
  { resources }: WalletRouteOptions,
  { requirements }: Payments,
): Route {
  return {
    method: 'GET',
    path: MANIFEST_PATH,
    root: true,
    auth: 'public',
    describe: MANIFEST,
    handle: async (context) => {
      context.set('cache-control', `public, max-age=${MANIFEST_AGE_SECONDS}`);
      await context.json(200, requirements.manifest(resources()));
    },
  };
}
