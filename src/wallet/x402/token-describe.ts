/** What the routes of a wallet's tokens say of themselves. */
import { z } from 'zod';
import { type RouteDescription, jsonContent } from '../../http/describe.ts';
import { answer, success, WALLET } from './describe.ts';

const Decimal = z
  .string()
  .regex(/^\d{1,7}(?:\.\d{1,9})?$/, 'Must be an amount such as 0.50, with at most 9 decimals')
  .optional();

export const TokenQuery = z.object({
  usdLimit: Decimal.describe(
    'Most USD that the token may spend in its life; without it, no limit.',
  ),
  diemLimit: Decimal.describe(
    'Most daily credit (DIEM) that the token may spend in its life; without it, no limit.',
  ),
});

const TOKEN_ID = 'wallet-token-0f1e2d3c4b5a69788796a5b4';
const TokenLimit = z
  .strictObject({
    limit: z.string().describe('Most that the token may spend in its life, decimal text.'),
    spent: z.string().describe('What it has spent, decimal text.'),
  })
  .nullable()
  .describe('The limit and what is spent of it; null without a limit.');

export const TOKEN_LIST: RouteDescription = {
  tag: 'Wallets',
  summary: 'List the tokens of a wallet',
  about: 'Tokens of the wallet that signed which can still be used, newest first. Takes a sign-in.',
  response: answer(
    'The tokens, without their secrets.',
    success(
      'WalletTokenList',
      z.array(
        z.strictObject({
          id: z.string().describe('Names the token; no secret.'),
          createdAt: z.string().describe('ISO 8601, UTC.'),
          expiresAt: z.string().describe('Until when it can be used; ISO 8601, UTC.'),
          usd: TokenLimit.describe('Its limit in USD; null without one.'),
          diem: TokenLimit.describe('Its limit in daily credit; null without one.'),
        }),
      ),
      [
        {
          id: TOKEN_ID,
          createdAt: '2026-11-21T04:00:00.000Z',
          expiresAt: '2026-11-21T05:00:00.000Z',
          usd: { limit: '0.5000', spent: '0.0312' },
          diem: null,
        },
      ],
    ),
  ),
};

export const TOKEN_REVOKE: RouteDescription = {
  tag: 'Wallets',
  summary: 'Revoke a token of a wallet',
  about:
    'Takes a sign-in of the wallet. Requests that run finish; other processes of the server refuse the token within three seconds.',
  parameters: [
    {
      name: 'id',
      in: 'path',
      about: 'The `id` of the token, from its making or the list.',
      example: TOKEN_ID,
    },
  ],
  response: answer(
    'Revoked.',
    jsonContent(
      z
        .strictObject({ success: z.literal(true).describe('It can be used no more.') })
        .meta({ id: 'WalletTokenRevoked' }),
      {
        success: true,
      },
    ),
  ),
};

export const WALLET_TOKEN: RouteDescription = {
  tag: 'Wallets',
  summary: 'Get a token for a wallet',
  about:
    'For clients that cannot sign each request, such as the OpenAI SDKs: one sign-in gives a short-lived Bearer token, with a spend limit if you like. A request beyond the limit is a 402 with the code `API_KEY_USD_SPEND_LIMIT_EXCEEDED` or `API_KEY_DIEM_SPEND_LIMIT_EXCEEDED`.',
  query: TokenQuery,
  response: {
    status: 200,
    about: 'The token.',
    headers: ['no-store'],
    content: success(
      'WalletToken',
      z.strictObject({
        walletAddress: z.string().describe('The wallet that signed.'),
        id: z.string().describe('Names the token in the list; no secret.'),
        token: z
          .string()
          .describe('The secret, for `Authorization: Bearer`. It is shown here once.'),
        tokenType: z.literal('Bearer').describe('How it is sent.'),
        expiresAt: z.string().describe('Until when it can be used; ISO 8601, UTC.'),
      }),
      {
        walletAddress: WALLET,
        id: TOKEN_ID,
        token: 'eyJ…',
        tokenType: 'Bearer',
        expiresAt: '2026-11-21T05:00:00.000Z',
      },
    ),
  },
};
