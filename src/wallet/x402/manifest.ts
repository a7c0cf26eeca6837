/** `/.well-known/x402.json`: what can be paid for here, and how. */
import { z } from 'zod';
import { type RouteDescription, jsonContent } from '../../http/describe.ts';
import type { Route } from '../../http/route.ts';
import type { Payments } from '../../payments/payments.ts';
import { Open, Texts, Usd, WALLET } from './describe.ts';
import type { WalletRouteOptions } from './route-checks.ts';

const MANIFEST_AGE_SECONDS = 300;

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
      .array(
        z.strictObject({
          scheme: z.literal('exact').describe('The amount is paid as it stands.'),
          network: z.string().describe('CAIP-2, such as `eip155:8453`.'),
          asset: z.string().describe('The contract, or on Solana the mint, of the token.'),
          amount: z.string().describe('Base units; USDC has 6 decimals.'),
          payTo: z.string().describe('The address that is paid.'),
          maxTimeoutSeconds: z.number().describe('How long the signature has to be good for.'),
          extra: Open.describe('What signing needs on this network.'),
        }),
      )
      .describe('Payment options of the least top-up, then of the smaller first payment.'),
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
  answers: [
    {
      status: 200,
      about: 'The x402 manifest of this server.',
      headers: ['no-store'],
      content: jsonContent(Manifest, {
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
        extensions: ['sign-in-with-x'],
        resources: [
          {
            url: 'https://api.example.com/api/v1/chat/completions',
            description: 'Chat',
            mimeType: 'application/json',
          },
        ],
      }),
    },
  ],
};

/** At the origin: what can be paid for here, and how. */
export function manifestRoute(
  { resources }: WalletRouteOptions,
  { requirements }: Payments,
): Route {
  return {
    method: 'GET',
    path: '/.well-known/x402.json',
    root: true,
    auth: 'public',
    describe: MANIFEST,
    handle: async (context) => {
      context.set('cache-control', `public, max-age=${MANIFEST_AGE_SECONDS}`);
      await context.json(200, requirements.manifest(resources()));
    },
  };
}
