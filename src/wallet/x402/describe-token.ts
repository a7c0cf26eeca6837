/** What the endpoints of wallet tokens say of themselves. */
import { z } from 'zod';
import { type RouteDescription, jsonContent } from '../../http/describe.ts';

const WALLET = '0x52908400098527886E0F7030069857D2E4169EE7';

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
  .strictObject({ limit: z.string(), spent: z.string() })
  .nullable()
  .describe('The limit and what is spent of it; null without a limit.');

export const TOKEN_LIST: RouteDescription = {
  tag: 'Wallets',
  summary: 'List the tokens of a wallet',
  about: 'Tokens of the wallet that signed which can still be used, newest first. Takes a sign-in.',
  answers: [
    {
      status: 200,
      about: 'The tokens, without their secrets.',
      content: jsonContent(
        z
          .strictObject({
            success: z.literal(true),
            data: z.array(
              z.strictObject({
                id: z.string(),
                createdAt: z.string(),
                expiresAt: z.string(),
                usd: TokenLimit,
                diem: TokenLimit,
              }),
            ),
          })
          .meta({ id: 'WalletTokenList' }),
        {
          success: true,
          data: [
            {
              id: TOKEN_ID,
              createdAt: '2026-11-21T04:00:00.000Z',
              expiresAt: '2026-11-21T05:00:00.000Z',
              usd: { limit: '0.5000', spent: '0.0312' },
              diem: null,
            },
          ],
        },
      ),
    },
  ],
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
  answers: [
    {
      status: 200,
      about: 'Revoked.',
      content: jsonContent(
        z.strictObject({ success: z.literal(true) }).meta({ id: 'WalletTokenRevoked' }),
        { success: true },
      ),
    },
  ],
};

export const WALLET_TOKEN: RouteDescription = {
  tag: 'Wallets',
  summary: 'Get a token for a wallet',
  about:
    'For clients that cannot sign each request, such as the OpenAI SDKs: one sign-in gives a short-lived Bearer token, with a spend limit if you like. A request beyond the limit is a 402 with the code `API_KEY_USD_SPEND_LIMIT_EXCEEDED` or `API_KEY_DIEM_SPEND_LIMIT_EXCEEDED`.',
  query: TokenQuery,
  answers: [
    {
      status: 200,
      about: 'The token.',
      headers: ['no-store'],
      content: jsonContent(
        z
          .strictObject({
            success: z.literal(true),
            data: z.strictObject({
              walletAddress: z.string(),
              id: z.string().describe('Names the token in the list; no secret.'),
              token: z.string(),
              tokenType: z.literal('Bearer'),
              expiresAt: z.string(),
            }),
          })
          .meta({ id: 'WalletToken' }),
        {
          success: true,
          data: {
            walletAddress: WALLET,
            id: TOKEN_ID,
            token: 'eyJ…',
            tokenType: 'Bearer',
            expiresAt: '2026-11-21T05:00:00.000Z',
          },
        },
      ),
    },
  ],
};
