/** What the wallet endpoints say of themselves. */
import { z } from 'zod';
import {
  type AnswerDescription,
  type ContentDescription,
  type ParameterDescription,
  type RouteDescription,
  jsonContent,
} from '../../http/describe.ts';
import { PAYMENT_REFUSALS } from '../../http/openapi/refusals.ts';

export const WALLET = '0x52908400098527886E0F7030069857D2E4169EE7';
export const Usd = z.number().describe('USD.');
export const Texts = z.array(z.string());
export const Open = z.looseObject({}).describe('As the extension or the scheme says.');

const OWN_WALLET: ParameterDescription = {
  name: 'wallet',
  in: 'path',
  about: 'The wallet that signed: an EVM or a Solana address.',
  example: WALLET,
};

function answer(about: string, content: ContentDescription[]): AnswerDescription[] {
  return [{ status: 200, about, content }];
}

/** The layout of the wallet endpoints, with the name of its schema. */
function success(id: string, data: z.ZodType, example: unknown): ContentDescription[] {
  const Body = z.strictObject({ success: z.literal(true), data }).meta({ id });
  return jsonContent(Body, { success: true, data: example });
}

export const TOP_UP: RouteDescription = {
  tag: 'Wallets',
  summary: 'Top up',
  about: `Without a payment header the answer is a 402 with the requirements: pick one entry of \`accepts\`, sign exactly that, and send it as \`PAYMENT-SIGNATURE\`. No account and no sign-in is needed.

One payment is credited once, however often it is sent. When the network is slow to confirm, the same header is sent again; never sign a new payment for it.`,
  parameters: [
    {
      name: 'PAYMENT-SIGNATURE',
      in: 'header',
      about:
        'base64 JSON of one signed entry of `accepts`. `X-402-Payment` and `X-PAYMENT` are older names of it.',
    },
    {
      name: 'PAYMENT-CLAIM',
      in: 'header',
      about:
        'The value of the same header of an earlier answer: it marks the retry of its request.',
    },
  ],
  query: z.object({
    x402Version: z.enum(['1', '2']).optional().describe('`1` for the older shape of the 402.'),
  }),
  answers: [
    {
      status: 200,
      about: 'The credit is there.',
      headers: ['payment'],
      content: success(
        'TopUp',
        z.strictObject({
          walletAddress: z.string(),
          amountCredited: Usd,
          newBalance: Usd.optional(),
          alreadyCredited: z
            .literal(true)
            .optional()
            .describe('In place of the balance, for a payment that is shown again.'),
          paymentId: z.string(),
        }),
        { walletAddress: WALLET, amountCredited: 5, newBalance: 5, paymentId: 'p_1' },
      ),
    },
  ],
  refusals: [...PAYMENT_REFUSALS, 'PAYMENT_REQUIRED', 'X402_NOT_CONFIGURED', 'RATE_LIMIT_EXCEEDED'],
};

export const WALLET_BALANCE: RouteDescription = {
  tag: 'Wallets',
  summary: 'Get the balance of a wallet',
  parameters: [OWN_WALLET],
  answers: answer(
    'Posted credit.',
    success(
      'WalletBalance',
      z.strictObject({
        walletAddress: z.string(),
        balanceUsd: Usd,
        canConsume: z.boolean().describe('Whether it is enough for a priced request.'),
        minimumTopUpUsd: Usd,
        suggestedTopUpUsd: Usd,
        diemBalanceUsd: Usd.optional().describe("What is left of today's credit by staking."),
      }),
      {
        walletAddress: WALLET,
        balanceUsd: 4.98,
        canConsume: true,
        minimumTopUpUsd: 5,
        suggestedTopUpUsd: 10,
      },
    ),
  ),
  refusals: ['X402_WALLET_MISMATCH'],
};

export const WALLET_TRANSACTIONS: RouteDescription = {
  tag: 'Wallets',
  summary: 'List transactions of a wallet',
  parameters: [OWN_WALLET],
  query: z.object({
    limit: z.coerce.number().int().min(1).max(100).default(50).describe('Items.'),
    offset: z.coerce.number().int().min(0).max(1_000_000).default(0).describe('Items before them.'),
  }),
  answers: answer(
    'Newest first. What comes in is above zero.',
    success(
      'WalletTransactions',
      z.strictObject({
        walletAddress: z.string(),
        currentBalance: Usd,
        transactions: z.array(
          z.strictObject({
            id: z.string(),
            amount: Usd,
            balanceAfter: Usd,
            type: z.enum(['TOP_UP', 'CHARGE', 'REFUND']),
            createdAt: z.string(),
            requestId: z.string().nullable(),
            modelId: z.string().nullable(),
            currency: z.enum(['USD', 'DIEM']),
          }),
        ),
        pagination: z.strictObject({ limit: z.int(), offset: z.int(), hasMore: z.boolean() }),
      }),
      {
        walletAddress: WALLET,
        currentBalance: 4.98,
        transactions: [
          {
            id: 'p_1',
            amount: 5,
            balanceAfter: 5,
            type: 'TOP_UP',
            createdAt: '2026-11-21T04:00:00.000Z',
            requestId: null,
            modelId: null,
            currency: 'USD',
          },
        ],
        pagination: { limit: 50, offset: 0, hasMore: false },
      },
    ),
  ),
  refusals: ['X402_WALLET_MISMATCH'],
};

export const FACILITATOR_SUPPORTED: RouteDescription = {
  tag: 'Wallets',
  summary: 'What the facilitator settles',
  about: 'Only where the operator exposes the embedded x402 facilitator.',
  answers: answer(
    'Schemes by network.',
    jsonContent(
      z
        .strictObject({
          kinds: z.array(
            z.strictObject({
              x402Version: z.literal(2),
              scheme: z.literal('exact'),
              network: z.string(),
              extra: Open.optional(),
            }),
          ),
          extensions: Texts,
          signers: z.record(z.string(), Texts).describe('Addresses by family of networks.'),
        })
        .meta({ id: 'FacilitatorSupported' }),
      {
        kinds: [{ x402Version: 2, scheme: 'exact', network: 'eip155:8453' }],
        extensions: [],
        signers: { 'eip155:*': [WALLET] },
      },
    ),
  ),
  refusals: ['RATE_LIMIT_EXCEEDED'],
};

const PaymentToSettle = z
  .looseObject({
    x402Version: z.literal(2).optional(),
    paymentPayload: Open.describe('What the client signed, decoded.'),
    paymentRequirements: Open.describe('The entry of `accepts` that it signed.'),
  })
  .meta({ id: 'PaymentToSettle' });

const EXTRAS = {
  extensions: Open.optional(),
  extensionResponses: Open.optional(),
  extra: Open.optional(),
};

const Verified = z
  .strictObject({
    isValid: z.boolean(),
    invalidReason: z.string().optional(),
    invalidMessage: z.string().optional(),
    payer: z.string().optional(),
    ...EXTRAS,
  })
  .meta({ id: 'PaymentVerified' });

const Settled = z
  .strictObject({
    success: z.boolean(),
    errorReason: z.string().optional(),
    errorMessage: z.string().optional(),
    payer: z.string().optional(),
    transaction: z.string().describe('Empty when nothing was sent.'),
    network: z.string(),
    amount: z.string().optional(),
    ...EXTRAS,
  })
  .meta({ id: 'PaymentSettled' });

function facilitatorCall(summary: string, body: z.ZodType, example: object): RouteDescription {
  return {
    tag: 'Wallets',
    summary,
    request: jsonContent(PaymentToSettle, {
      x402Version: 2,
      paymentPayload: {},
      paymentRequirements: {},
    }),
    answers: answer(
      'As the x402 protocol says; malformed input is an answer too.',
      jsonContent(body, example),
    ),
    refusals: ['RATE_LIMIT_EXCEEDED'],
  };
}

export const FACILITATOR_CALLS = {
  verify: facilitatorCall('Verify a payment', Verified, { isValid: true, payer: WALLET }),
  settle: facilitatorCall('Settle a payment', Settled, {
    success: true,
    payer: WALLET,
    transaction: '0x…',
    network: 'eip155:8453',
  }),
} as const;

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
  answers: answer(
    'The tokens, without their secrets.',
    success(
      'WalletTokenList',
      z.array(
        z.strictObject({
          id: z.string(),
          createdAt: z.string(),
          expiresAt: z.string(),
          usd: TokenLimit,
          diem: TokenLimit,
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
  answers: answer(
    'Revoked.',
    jsonContent(z.strictObject({ success: z.literal(true) }).meta({ id: 'WalletTokenRevoked' }), {
      success: true,
    }),
  ),
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
      content: success(
        'WalletToken',
        z.strictObject({
          walletAddress: z.string(),
          id: z.string().describe('Names the token in the list; no secret.'),
          token: z.string(),
          tokenType: z.literal('Bearer'),
          expiresAt: z.string(),
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
  ],
};
