/** What the wallet endpoints say of themselves. */
import { z } from 'zod';
import {
  type ResponseDescription,
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

export function answer(about: string, content: ContentDescription[]): ResponseDescription[] {
  return [{ status: 200, about, content }];
}

/** The layout of the wallet endpoints, with the name of its schema. */
export function success(id: string, data: z.ZodType, example: unknown): ContentDescription[] {
  const Body = z
    .strictObject({
      success: z.literal(true).describe('It is done.'),
      data: data.describe('What was asked for.'),
    })
    .meta({ id });
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
  response: {
    status: 200,
    about: 'The credit is there.',
    headers: ['payment'],
    content: success(
      'TopUp',
      z.strictObject({
        walletAddress: z.string().describe('The wallet whose credit it is.'),
        amountCredited: Usd.describe('USD that were credited.'),
        newBalance: Usd.optional().describe('USD that the wallet has now.'),
        alreadyCredited: z
          .literal(true)
          .optional()
          .describe('In place of the balance, for a payment that is shown again.'),
        paymentId: z.string().describe('Id of the payment, for support.'),
      }),
      { walletAddress: WALLET, amountCredited: 5, newBalance: 5, paymentId: 'p_1' },
    ),
  },
  refusals: [...PAYMENT_REFUSALS, 'PAYMENT_REQUIRED', 'X402_NOT_CONFIGURED', 'RATE_LIMIT_EXCEEDED'],
};

export const WALLET_BALANCE: RouteDescription = {
  tag: 'Wallets',
  summary: 'Get the balance of a wallet',
  parameters: [OWN_WALLET],
  response: answer(
    'Posted credit.',
    success(
      'WalletBalance',
      z.strictObject({
        walletAddress: z.string().describe('The wallet that signed.'),
        balanceUsd: Usd.describe('Posted USD.'),
        canConsume: z.boolean().describe('Whether it is enough for a priced request.'),
        minimumTopUpUsd: Usd.describe('The smallest top-up, in USD.'),
        suggestedTopUpUsd: Usd.describe('A top-up that lasts for a while, in USD.'),
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
  response: answer(
    'Newest first. What comes in is above zero.',
    success(
      'WalletTransactions',
      z.strictObject({
        walletAddress: z.string().describe('The wallet that signed.'),
        currentBalance: Usd.describe('USD that the wallet has now.'),
        transactions: z
          .array(
            z.strictObject({
              id: z.string().describe('Id of the movement.'),
              amount: Usd.describe('In `currency`; above zero came in, below zero was taken.'),
              balanceAfter: Usd.describe('USD balance after it.'),
              type: z
                .enum(['TOP_UP', 'CHARGE', 'REFUND'])
                .describe(
                  'TOP_UP of the wallet or by the operator, below zero when it was taken back; CHARGE of a request; REFUND, below zero when it was paid out.',
                ),
              createdAt: z.string().describe('ISO 8601, UTC.'),
              requestId: z
                .string()
                .nullable()
                .describe('The request that was charged; null for other movements.'),
              modelId: z
                .string()
                .nullable()
                .describe('The model that was charged for; null for other movements.'),
              currency: z.enum(['USD', 'DIEM']).describe('USD, or daily credit (DIEM).'),
            }),
          )
          .describe('Movements, newest first.'),
        pagination: z
          .strictObject({
            limit: z.int().describe('Most items of a page.'),
            offset: z.int().describe('Items before this page.'),
            hasMore: z.boolean().describe('Whether there are more.'),
          })
          .describe('Where this page stands.'),
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
  response: answer(
    'Schemes by network.',
    jsonContent(
      z
        .strictObject({
          kinds: z
            .array(
              z.strictObject({
                x402Version: z.literal(2).describe('Version of the x402 protocol.'),
                scheme: z.literal('exact').describe('The amount is paid as it stands.'),
                network: z.string().describe('CAIP-2, such as `eip155:8453`.'),
                extra: Open.optional().describe('What signing needs on this network.'),
              }),
            )
            .describe('What can be settled.'),
          extensions: Texts.describe('Extensions of the protocol that are known.'),
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
    x402Version: z.literal(2).optional().describe('Version of the x402 protocol.'),
    paymentPayload: Open.describe('What the client signed, decoded.'),
    paymentRequirements: Open.describe('The entry of `accepts` that it signed.'),
  })
  .meta({ id: 'PaymentToSettle' });

const EXTRAS = {
  extensions: Open.optional().describe('What extensions of the protocol say.'),
  extensionResponses: Open.optional().describe('What extensions of the protocol answer.'),
  extra: Open.optional().describe('What the scheme adds.'),
};

const Verified = z
  .strictObject({
    isValid: z.boolean().describe('Whether the payment would be taken.'),
    invalidReason: z.string().optional().describe('Why not, a word of the protocol.'),
    invalidMessage: z.string().optional().describe('Why not, a sentence for people.'),
    payer: z.string().optional().describe('The address that pays.'),
    ...EXTRAS,
  })
  .meta({ id: 'PaymentVerified' });

const Settled = z
  .strictObject({
    success: z.boolean().describe('Whether the payment has arrived.'),
    errorReason: z.string().optional().describe('Why not, a word of the protocol.'),
    errorMessage: z.string().optional().describe('Why not, a sentence for people.'),
    payer: z.string().optional().describe('The address that pays.'),
    transaction: z.string().describe('Empty when nothing was sent.'),
    network: z.string().describe('The network that it was paid on.'),
    amount: z.string().optional().describe('What was paid, in base units.'),
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
    response: answer(
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
