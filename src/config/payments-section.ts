/**
 * The `payments` section: what a top-up may be, the rails (Base, Solana), who settles, refunds,
 * receipts and linked staking. Without a rail, API keys work alone.
 *
 * Amounts stay decimal USD here; `payments/` turns them into integers once. Keys are secrets:
 * write them as `${NAME}` of the environment.
 */
import { z } from 'zod';
import { flag, group } from './setting-kinds.ts';
import { evmAddressProblem, solanaAddressProblem, solanaOwnerProblem } from '../core/addresses.ts';
import { TOO_FINE, isExactUsd } from '../core/money.ts';
import { isEvmKey, solanaKeyBytes } from '../core/wallet-keys.ts';

const Usd = z.number().nonnegative().max(1_000_000).refine(isExactUsd, TOO_FINE);
const HttpUrl = z.url({ protocol: /^https?$/ });
/** Nodes are asked in parallel about a payment: a few witnesses are enough. */
const MAX_NODES = 8;
const Nodes = z
  .union([HttpUrl, z.array(HttpUrl).min(1).max(MAX_NODES)])
  .describe(
    'A node, or a list of nodes: the next one is asked when one fails, and two must agree about money',
  );
const EvmAddress = z.string().superRefine(rejectWith(evmAddressProblem));
const EvmKey = z
  .string()
  .refine(isEvmKey, 'An EVM key is 0x and 64 hex digits, below the order of the curve')
  .meta({ secret: true });
const SOLANA_KEY_FORMS =
  'Base58 of 64 or 32 bytes, 64 hex digits of the seed, or the JSON array of a keypair file';
const SolanaKey = z
  .string()
  .refine((key) => solanaKeyBytes(key) !== undefined, `A Solana key is one of: ${SOLANA_KEY_FORMS}`)
  .meta({ secret: true })
  .describe(SOLANA_KEY_FORMS);

function confirmations<Depth extends z.ZodType>(depth: Depth) {
  return z.array(z.strictObject({ fromUsd: Usd, wait: depth })).max(10);
}
const CONFIRMATIONS =
  'How deep a payment must be to be credited, by its amount: the rule with the largest `fromUsd` that the amount reaches';

const BaseRail = z.strictObject({
  network: z.enum(['eip155:8453', 'eip155:84532']).default('eip155:8453'),
  payTo: EvmAddress.describe('Receiver of the top-ups'),
  rpcUrl: Nodes,
  gasKey: EvmKey.optional().describe('Pays the gas of settlements; holds a little ETH'),
  refundKey: EvmKey.optional().describe('Holds the USDC that refunds are paid from'),
  upto: flag(false).describe(
    'Take payments of the scheme `upto` on endpoints that sell something: a wallet signs a ceiling by Permit2, and what its request can cost is moved before it runs',
  ),
  asset: EvmAddress.optional().describe(
    'ERC-3009 token of 6 decimals; USDC of the network by default',
  ),
  confirmations: confirmations(z.union([z.int().min(1).max(1_000), z.enum(['safe', 'finalized'])]))
    .default([
      { fromUsd: 0, wait: 1 },
      { fromUsd: 100, wait: 10 },
      { fromUsd: 1_000, wait: 'safe' },
    ])
    .describe(
      `${CONFIRMATIONS}. \`wait\` is blocks, its own counted, or \`safe\` or \`finalized\``,
    ),
  maxGas: z.int().min(60_000).max(2_000_000).default(300_000),
  maxFeeGwei: z.number().positive().max(10_000).default(5),
  warnBelowEth: z.number().nonnegative().default(0.002),
});

const SolanaRail = z.strictObject({
  network: z
    .enum(['solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp', 'solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1'])
    .default('solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp'),
  payTo: z
    .string()
    .superRefine(rejectWith(solanaOwnerProblem))
    .describe('Owner of the receiving token account, not the token account'),
  rpcUrl: Nodes,
  feePayerKey: SolanaKey.optional().describe('Pays the fees of settlements; holds a little SOL'),
  refundKey: SolanaKey.optional().describe('Holds the USDC that refunds are paid from'),
  asset: z
    .string()
    .superRefine(rejectWith(solanaAddressProblem))
    .optional()
    .describe('Token mint of 6 decimals; USDC of the network by default'),
  confirmations: confirmations(z.enum(['confirmed', 'finalized']))
    .default([
      { fromUsd: 0, wait: 'confirmed' },
      { fromUsd: 1_000, wait: 'finalized' },
    ])
    .describe(`${CONFIRMATIONS}. \`wait\` is \`confirmed\` or \`finalized\``),
  maxPriorityFeeMicroLamports: z.int().min(0).default(100_000),
  maxComputeUnits: z.int().min(1_000).max(1_400_000).default(200_000),
  warnBelowSol: z.number().nonnegative().default(0.02),
});

const Facilitator = group({
  url: HttpUrl.optional().describe('An external facilitator settles instead of the embedded one'),
  authorization: z
    .string()
    .meta({ secret: true })
    .optional()
    .describe('Value of the Authorization header sent to it'),
  timeoutSeconds: z.int().min(1).max(120).default(60),
  expose: flag(false).describe('Serve supported, verify and settle to others'),
});

const Staking = z.strictObject({
  rpcUrl: Nodes,
  contract: EvmAddress,
  function: z
    .string()
    .regex(/^[A-Za-z_]\w*$/)
    .default('balanceOf')
    .describe('A view function that takes the wallet and returns a uint256'),
  decimals: z.int().min(0).max(36).default(18),
  usdPerUnit: z.number().positive().max(1_000_000).default(1),
});

const RoutesPerMinute = group({
  topUp: z.int().min(1).default(10).describe('`POST /x402/top-up` for each address'),
  balance: z.int().min(1).default(30).describe('`GET /x402/balance` for each wallet'),
  transactions: z.int().min(1).default(20).describe('`GET /x402/transactions` for each wallet'),
  token: z.int().min(1).default(30).describe('`POST /x402/token` for each wallet'),
  facilitator: z.int().min(1).default(60).describe('`/x402/facilitator` for each address'),
});

export const PaymentsSection = group({
  minimumTopUpUsd: Usd.default(5),
  suggestedTopUpUsd: Usd.default(10),
  maximumTopUpUsd: Usd.default(10_000),
  firstPaymentUsd: Usd.positive()
    .default(1)
    .describe(
      'The smaller payment that each 402 offers beside its top-up, and endpoints that sell something take: stock x402 clients refuse more than 1 USD until they are told otherwise',
    ),
  firstPaymentVersionOneUsd: Usd.positive()
    .default(0.1)
    .describe(
      'The same in the 402 of x402 version 1, whose stock clients refuse more than 0.10 USD',
    ),
  maxTimeoutSeconds: z.int().min(30).max(3_600).default(300),
  settleWaitSeconds: z.int().min(1).max(120).default(25).describe('Then the answer is 202'),
  sessionMinutes: z.int().min(15).max(1_440).default(60).describe('Life of a wallet token'),
  receipts: flag(true).describe('Sign offers, and receipts of top-ups and of requests'),
  mpp: flag(false).describe(
    'Offer payments on Base by the Machine Payments Protocol too: `WWW-Authenticate: Payment` beside x402',
  ),
  signingKey: z
    .string()
    .regex(/^[0-9a-fA-F]{64}$/, 'A signing key is 64 hex digits: an Ed25519 seed')
    .meta({ secret: true })
    .optional()
    .describe('Signs in place of the key that the database keeps: 64 hex digits'),
  requiredHeaderBytes: z
    .int()
    .min(2_800)
    .max(8_000)
    .default(3_500)
    .describe(
      'Most bytes of the payment headers of a 402 together, `PAYMENT-REQUIRED` and `WWW-Authenticate`: proxies have 4 KB for all headers by default, and the others of a 402 take about 450 bytes. A known caller has 250 bytes more of them and less of these. What does not fit stands in the body alone. Raise it where the proxies in front take larger headers',
    ),
  routesPerMinute: RoutesPerMinute,
  base: BaseRail.optional(),
  solana: SolanaRail.optional(),
  facilitator: Facilitator,
  staking: Staking.optional(),
});
export type PaymentsSection = z.infer<typeof PaymentsSection>;

/** The sentence of `problemOf` as the one issue of a value; each of them covers the shape too. */
function rejectWith<T>(problemOf: (value: T) => string | undefined) {
  return (value: T, context: z.RefinementCtx): void => {
    const message = problemOf(value);
    if (message !== undefined) context.addIssue({ code: 'custom', message });
  };
}
