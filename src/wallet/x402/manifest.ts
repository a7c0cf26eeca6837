/** `/.well-known/x402.json`: what can be paid for here, and how. */
import { z } from 'zod';
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
    .describe('The amount is paid as it stands, or is the most that a request may take of it.'),
  network: z.string().describe('CAIP-2, such as `eip155:8453`.'),
  asset: z.string().describe('The contract, or on Solana the mint, of the token.'),
  amount: z.string().describe('Base units; USDC has 6 decimals.'),
  payTo: z.string().describe('The address that is paid.'),
  maxTimeoutSeconds: z.number().describe('How long the signature has to be good for.'),
  extra: Open.describe('What signing needs on this network.'),
});

const Manifest = z
  .strictObject({
    x402Version: z.literal(2).describe('Version of the x402 protocol.'),
    service: z.string().describe('Name of the service.'),
    origin: z.string().describe('Public origin of the service.'),
    topUp: z.string().describe('Address of the top-up.'),
    balance: z
      .string()
      .describe('Address of the balance of a wallet, with `{walletAddress}` in it.'),
    minimumTopUpUsd: Usd.describe('The smallest top-up, in USD.'),
    maximumTopUpUsd: Usd.describe('The largest top-up, in USD.'),
    firstPaymentUsd: Usd.describe(
      'USD. The smaller payment that each 402 offers too, for clients that refuse more.',
    ),
    accepts: z
      .array(PaymentOption)
      .describe('Payment options of the least top-up, then of the smaller first payment.'),
    refundPolicy: z
      .strictObject({
        unservedRequest: z
          .literal('credit-at-once')
          .describe('A paid request that is not served: the whole payment is credit of the payer.'),
        partlyServedRequest: z
          .literal('pays-what-was-delivered')
          .describe('An answer that ends early costs what had left; the rest is credit.'),
        restOfPayment: z
          .literal('credit-at-once')
          .describe('What a payment is more than its request cost.'),
        creditExpires: z.literal(false).describe('Credit stays until it is spent or paid back.'),
        creditToWallet: z
          .enum(['on-request', 'none'])
          .describe('Whether the operator pays unused credit back to the wallet that paid.'),
        creditToWalletNetworks: Texts.describe('On which networks, CAIP-2.'),
        receipt: z.string().optional().describe('Where a request has its signed receipt.'),
        keys: z.string().optional().describe('Where the keys of receipts are.'),
        docs: z.string().describe('For people.'),
      })
      .describe('What becomes of money that buys nothing. Each 402 names it too.'),
    extensions: Texts.describe('Extensions of the protocol that are known.'),
    resources: z
      .array(
        z.strictObject({
          url: z.string().describe('Its address.'),
          description: z.string().describe('What it is.'),
          mimeType: z.string().describe('What it answers with.'),
        }),
      )
      .describe('What can be paid for.'),
  })
  .meta({ id: 'X402Manifest' });

const MANIFEST: RouteDescription = {
  tag: 'Wallets',
  summary: 'What can be paid for',
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
      accepts: [
        {
          scheme: 'exact',
          network: 'eip155:8453',
          asset: '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913',
          amount: '5000000',
          payTo: WALLET,
          maxTimeoutSeconds: 300,
          extra: {
            name: 'USD Coin',
            version: '2',
            minimumTopUpUsd: 5,
            suggestedTopUpUsd: 10,
          },
        },
      ],
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
