/** Schemas and descriptions of the routes of wallet tokens. */
import * as z from 'zod';
import { type RouteDescription, jsonContent } from '../../http/describe.ts';
import { ok, success, WALLET } from './describe.ts';

const Decimal = z
  .string()
  .regex(/^\d{1,7}(?:\.\d{1,9})?$/, 'Must be an amount such as 0.50, with at most 9 decimals')
  .optional();

export const TokenQuery = z.object({
  usdLimit: Decimal.describe('Maximum USD that the token can spend; default: no limit.'),
  diemLimit: Decimal.describe(
    'Maximum daily credit (DIEM) that the token can spend; default: no limit.',
  ),
});

const TOKEN_ID = 'wallet-token-0f1e2d3c4b5a69788796a5b4';
const TokenLimit = z
  .strictObject({
    limit: z.string().describe('Maximum that the token can spend, decimal text.'),
    spent: z.string().describe('Spent amount, decimal text.'),
  })
  .nullable();

export const TOKEN_LIST: RouteDescription = {
  tag: 'Wallets',
  summary: 'List the tokens of a wallet',
  about: 'The valid tokens of the wallet, newest first. Requires a sign-in.',
  response: ok(
    'The tokens, without their secrets.',
    success(
      'WalletTokenList',
      z.array(
        z.strictObject({
          id: z.string().describe('Id of the token, which is not a secret.'),
          createdAt: z.string().describe('ISO 8601, UTC.'),
          expiresAt: z.string().describe('Expiry; ISO 8601, UTC.'),
          usd: TokenLimit.describe('Limit in USD; null without a limit.'),
          diem: TokenLimit.describe('Limit in daily credit; null without a limit.'),
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
    'Requires a sign-in of the wallet. Running requests finish; other processes of the server reject the token within three seconds.',
  parameters: [{ name: 'id', in: 'path', about: 'Id of the token.', example: TOKEN_ID }],
  response: ok(
    'The token is revoked.',
    jsonContent(
      z
        .strictObject({ success: z.literal(true).describe('The token is revoked.') })
        .meta({ id: 'WalletTokenRevoked' }),
      { success: true },
    ),
  ),
};

export const WALLET_TOKEN: RouteDescription = {
  tag: 'Wallets',
  summary: 'Get a token for a wallet',
  about:
    'For clients that cannot sign each request, such as the OpenAI SDKs: one sign-in returns a short-lived Bearer token with an optional spend limit. A request beyond the limit is a 402 with the code `API_KEY_USD_SPEND_LIMIT_EXCEEDED` or `API_KEY_DIEM_SPEND_LIMIT_EXCEEDED`.',
  query: TokenQuery,
  response: {
    status: 200,
    about: 'The token.',
    headers: ['no-store'],
    content: success(
      'WalletToken',
      z.strictObject({
        walletAddress: z.string().describe('The wallet that signed.'),
        id: z.string().describe('Id of the token, which is not a secret.'),
        token: z
          .string()
          .describe('The secret for `Authorization: Bearer`, which is shown only here.'),
        tokenType: z.literal('Bearer').describe('Authentication scheme.'),
        expiresAt: z.string().describe('Expiry; ISO 8601, UTC.'),
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
