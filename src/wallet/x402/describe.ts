/** Schemas and descriptions of the wallet endpoints. */
import * as z from 'zod';
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
export const Open = z.looseObject({}).describe('Defined by the extension or the scheme.');

const OWN_WALLET: ParameterDescription = {
  name: 'wallet',
  in: 'path',
  about: 'The wallet that signed: an EVM or a Solana address.',
  example: WALLET,
};

export function ok(about: string, content: ContentDescription[]): ResponseDescription[] {
  return [{ status: 200, about, content }];
}

/** The body layout of the wallet endpoints; `id` is the name of the schema. */
export function success(id: string, data: z.ZodType, example: unknown): ContentDescription[] {
  const Body = z
    .strictObject({
      success: z.literal(true).describe('The request was successful.'),
      data: data.describe('The result.'),
    })
    .meta({ id });
  return jsonContent(Body, { success: true, data: example });
}

export const TOP_UP: RouteDescription = {
  tag: 'Wallets',
  summary: 'Top up',
  about: `Without a payment header the response is a 402 with the requirements: choose one entry of \`accepts\`, sign it unchanged, and send it as \`PAYMENT-SIGNATURE\`. No account and no sign-in is needed.

A payment is credited once, even if it is sent again. If the chain is slow to confirm, send the same header again; do not sign a new payment.`,
  parameters: [
    {
      name: 'PAYMENT-SIGNATURE',
      in: 'header',
      about:
        'base64 JSON of one signed entry of `accepts`. `X-402-Payment` and `X-PAYMENT` are older names of this header.',
    },
    {
      name: 'PAYMENT-CLAIM',
      in: 'header',
      about: 'The value of this header in an earlier response, in a retry of its request.',
    },
  ],
  query: z.object({
    x402Version: z.enum(['1', '2']).optional().describe('`1` for the 402 body of version 1.'),
  }),
  response: {
    status: 200,
    about: 'The payment is credited.',
    headers: ['payment'],
    content: success(
      'TopUp',
      z.strictObject({
        walletAddress: z.string().describe('The credited wallet.'),
        amountCredited: Usd.describe('Credited USD.'),
        newBalance: Usd.optional().describe('Balance of the wallet in USD.'),
        alreadyCredited: z
          .literal(true)
          .optional()
          .describe('Instead of the balance, for a repeated payment.'),
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
  response: ok(
    'Posted credit.',
    success(
      'WalletBalance',
      z.strictObject({
        walletAddress: z.string().describe('The wallet that signed.'),
        balanceUsd: Usd.describe('Posted USD.'),
        canConsume: z.boolean().describe('Whether the balance is enough for a priced request.'),
        minimumTopUpUsd: Usd.describe('The smallest top-up, in USD.'),
        suggestedTopUpUsd: Usd.describe('The suggested top-up, in USD.'),
        diemBalanceUsd: Usd.optional().describe("Rest of today's credit for staking."),
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

export const TransactionsQuery = z.object({
  limit: z.coerce.number().int().min(1).max(100).default(50).describe('Number of items.'),
  offset: z.coerce.number().int().min(0).max(1_000_000).default(0).describe('Skipped items.'),
});

export const WALLET_TRANSACTIONS: RouteDescription = {
  tag: 'Wallets',
  summary: 'List transactions of a wallet',
  parameters: [OWN_WALLET],
  query: TransactionsQuery,
  response: ok(
    'Newest first. Incoming amounts are positive.',
    success(
      'WalletTransactions',
      z.strictObject({
        walletAddress: z.string().describe('The wallet that signed.'),
        currentBalance: Usd.describe('Balance of the wallet in USD.'),
        transactions: z
          .array(
            z.strictObject({
              id: z.string().describe('Id of the transaction.'),
              amount: Usd.describe('Amount in `currency`; positive: incoming, negative: outgoing.'),
              balanceAfter: Usd.describe('USD balance after the transaction.'),
              type: z
                .enum(['TOP_UP', 'CHARGE', 'REFUND'])
                .describe(
                  'TOP_UP by the wallet or the operator, negative if reversed; CHARGE of a request; REFUND, negative if paid out.',
                ),
              createdAt: z.string().describe('ISO 8601, UTC.'),
              requestId: z
                .string()
                .nullable()
                .describe('The charged request; null for other transactions.'),
              modelId: z
                .string()
                .nullable()
                .describe('The model of the request; null for other transactions.'),
              currency: z.enum(['USD', 'DIEM']).describe('USD, or daily credit (DIEM).'),
            }),
          )
          .describe('Transactions, newest first.'),
        pagination: z
          .strictObject({
            limit: z.int().describe('Maximum number of items per page.'),
            offset: z.int().describe('Number of items before this page.'),
            hasMore: z.boolean().describe('Whether there are more items.'),
          })
          .describe('Position of this page.'),
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
  summary: 'List the payment kinds of the facilitator',
  about: 'Only if the operator exposes the embedded x402 facilitator.',
  response: ok(
    'Schemes by network.',
    jsonContent(
      z
        .strictObject({
          kinds: z
            .array(
              z.strictObject({
                x402Version: z.literal(2).describe('Version of the x402 protocol.'),
                scheme: z.literal('exact').describe('The payment of exactly the amount.'),
                network: z.string().describe('CAIP-2, such as `eip155:8453`.'),
                extra: Open.optional().describe('Data for signing on this network.'),
              }),
            )
            .describe('Supported payment kinds.'),
          extensions: Texts.describe('Supported extensions of the protocol.'),
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
    paymentPayload: Open.describe('The decoded payment header.'),
    paymentRequirements: Open.describe('The signed entry of `accepts`.'),
  })
  .meta({ id: 'PaymentToSettle' });

const EXTRAS = {
  extensions: Open.optional().describe('Data of protocol extensions.'),
  extensionResponses: Open.optional().describe('Responses of protocol extensions.'),
  extra: Open.optional().describe('Data of the scheme.'),
};

const Verified = z
  .strictObject({
    isValid: z.boolean().describe('Whether the payment is valid.'),
    invalidReason: z.string().optional().describe('Reason code of the protocol.'),
    invalidMessage: z.string().optional().describe('Reason as text.'),
    payer: z.string().optional().describe('Address of the payer.'),
    ...EXTRAS,
  })
  .meta({ id: 'PaymentVerified' });

const Settled = z
  .strictObject({
    success: z.boolean().describe('Whether the payment has arrived.'),
    errorReason: z.string().optional().describe('Reason code of the protocol.'),
    errorMessage: z.string().optional().describe('Reason as text.'),
    payer: z.string().optional().describe('Address of the payer.'),
    transaction: z.string().describe('Id of the transaction; empty if none was sent.'),
    network: z.string().describe('Network of the payment.'),
    amount: z.string().optional().describe('Paid amount in base units.'),
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
    response: ok(
      'The result of the x402 protocol, also for malformed input.',
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
