/**
 * The `payments` section: amounts of top-ups, the rails (Base, Solana, further EVM networks), settlement,
 * receipts, staking and cards. Without a rail only API keys can pay. Amounts are decimal USD; `payments/` converts them to integers.
 */
import { createPrivateKey } from 'node:crypto';
import * as z from 'zod';
import { ShopSection, StripeSection } from './card-sections.ts';
import { distinct, flag, group } from './setting-kinds.ts';
import { evmAddressProblem, solanaAddressProblem, solanaOwnerProblem } from '../core/addresses.ts';
import { EVM_NETWORKS } from '../core/evm-networks.ts';
import { TOO_FINE, isExactUsd } from '../core/money.ts';
import { isEvmKey, solanaKeyBytes } from '../core/wallet-keys.ts';

const Usd = z.number().nonnegative().max(1_000_000).refine(isExactUsd, TOO_FINE);
const HttpUrl = z.url({ protocol: /^https?$/ });
/** All nodes are queried in parallel, so a few are enough. */
const MAX_NODES = 8;
const Nodes = z
  .union([HttpUrl, z.array(HttpUrl).min(1).max(MAX_NODES)])
  .describe(
    'URL of a node, or a list. If a node fails, the next one is used; with several, two must agree before a payment is credited.',
  );
const EvmAddress = z.string().superRefine(rejectWith(evmAddressProblem));
const EvmKey = z
  .string()
  .refine(isEvmKey, 'An EVM key must be 0x and 64 hex digits, and below the order of the curve')
  .meta({ secret: true });
const SOLANA_KEY_FORMS =
  'Base58 of 64 or 32 bytes, 64 hex digits of the seed, or the JSON array of a keypair file';
const SolanaKey = z
  .string()
  .refine(
    (key) => solanaKeyBytes(key) !== undefined,
    `A Solana key must be one of: ${SOLANA_KEY_FORMS}`,
  )
  .meta({ secret: true });

function confirmations<Depth extends z.ZodType>(depth: Depth) {
  return z
    .array(z.strictObject({ fromUsd: Usd, wait: depth }))
    .max(10)
    .superRefine(distinct('fromUsd', 'Another rule has this amount'));
}
const CONFIRMATIONS =
  'Depth at which a payment is credited. The rule with the largest `fromUsd` that the amount reaches applies';

const EvmDepth = confirmations(z.union([z.int().min(1).max(1_000), z.enum(['safe', 'finalized'])]));
const EVM_DEPTHS = `${CONFIRMATIONS}. \`wait\` is a number of blocks, including its own, or \`safe\` or \`finalized\`.`;
const EVM_RAIL = {
  payTo: EvmAddress.describe('Address that receives the payments.'),
  rpcUrl: Nodes,
  refundKey: EvmKey.optional().describe(
    'Private key of the address from which refunds are paid in USDC.',
  ),
  upto: flag(false).describe(
    'Accept the scheme `upto` on priced routes: a wallet signs a ceiling with Permit2, and the maximum cost of its request is transferred before the request runs.',
  ),
  maxGas: z
    .int()
    .min(60_000)
    .max(2_000_000)
    .default(300_000)
    .describe('Maximum gas of one settlement.'),
};
const MaxFeeGwei = z.number().positive().max(10_000);

const BaseRail = z.strictObject({
  network: z.enum(['eip155:8453', 'eip155:84532']).default('eip155:8453'),
  ...EVM_RAIL,
  gasKey: EvmKey.optional().describe(
    'Private key that pays the gas of settlements; its address needs a little ETH.',
  ),
  asset: EvmAddress.optional().describe(
    'Address of an ERC-3009 token with 6 decimals. Default: USDC of the network.',
  ),
  confirmations: EvmDepth.default([
    { fromUsd: 0, wait: 1 },
    { fromUsd: 100, wait: 10 },
    { fromUsd: 1_000, wait: 'safe' },
  ]).describe(EVM_DEPTHS),
  maxFeeGwei: MaxFeeGwei.default(5).describe('Maximum fee per gas, in gwei.'),
  warnBelowEth: z
    .number()
    .nonnegative()
    .default(0.002)
    .describe('Balance of the gas key below which the log warns, in ETH.'),
});

/** Each network is a rail with its own nodes and background work, and an entry in each 402. */
const MAX_NETWORKS = 12;
const BUILT_IN = Object.entries(EVM_NETWORKS)
  .map(([id, { name }]) => `\`${id}\` (${name})`)
  .join(', ');

const EvmNetworkRail = z.strictObject({
  network: z
    .string()
    .regex(/^eip155:[1-9]\d{0,14}$/, 'Must be the CAIP-2 id of an EVM chain, such as eip155:137')
    .describe(
      `CAIP-2 id of the chain. Built in: ${BUILT_IN}. Another chain needs \`asset\` and \`domain\`.`,
    ),
  ...EVM_RAIL,
  gasKey: EvmKey.optional().describe(
    'Private key that pays the gas of settlements; its address needs a little of the coin of the network.',
  ),
  asset: EvmAddress.optional().describe(
    'Address of an ERC-3009 token with 6 decimals. Default: USDC of a network that is built in.',
  ),
  domain: z
    .strictObject({
      name: z.string().min(1).max(100).describe('Name in the domain.'),
      version: z.string().min(1).max(20).describe('Version in the domain.'),
    })
    .optional()
    .describe(
      'EIP-712 domain of the token. Default: the one of USDC on a network that is built in.',
    ),
  minimumTopUpUsd: Usd.optional().describe(
    'Minimum amount of a payment on this network, in USD, if it is higher than the other minimums.',
  ),
  confirmations: EvmDepth.default([
    { fromUsd: 0, wait: 3 },
    { fromUsd: 100, wait: 20 },
    { fromUsd: 1_000, wait: 'finalized' },
  ]).describe(EVM_DEPTHS),
  maxFeeGwei: MaxFeeGwei.optional().describe(
    'Maximum fee per gas, in gwei. Default: by network, 5 for a chain that is not built in.',
  ),
  warnBelow: z
    .number()
    .nonnegative()
    .optional()
    .describe('Balance of the gas key below which the log warns, in the coin of the network.'),
  blockSeconds: z
    .number()
    .min(0.05)
    .max(60)
    .optional()
    .describe('Average time between two blocks, in seconds. Default: by network, otherwise 2.'),
});

const SolanaRail = z.strictObject({
  network: z
    .enum(['solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp', 'solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1'])
    .default('solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp'),
  payTo: z
    .string()
    .superRefine(rejectWith(solanaOwnerProblem))
    .describe(
      'Wallet that receives the payments: the owner of the token account, not the token account.',
    ),
  rpcUrl: Nodes,
  feePayerKey: SolanaKey.optional().describe(
    `Private key that pays the fees of settlements; its address needs a little SOL. ${SOLANA_KEY_FORMS}.`,
  ),
  refundKey: SolanaKey.optional().describe(
    `Private key of the wallet from which refunds are paid in USDC. ${SOLANA_KEY_FORMS}.`,
  ),
  asset: z
    .string()
    .superRefine(rejectWith(solanaAddressProblem))
    .optional()
    .describe('Mint of a token with 6 decimals. Default: USDC of the network.'),
  confirmations: confirmations(z.enum(['confirmed', 'finalized']))
    .default([
      { fromUsd: 0, wait: 'confirmed' },
      { fromUsd: 1_000, wait: 'finalized' },
    ])
    .describe(`${CONFIRMATIONS}. \`wait\` is \`confirmed\` or \`finalized\`.`),
  maxPriorityFeeMicroLamports: z
    .int()
    .min(0)
    .default(100_000)
    .describe('Maximum priority fee per compute unit, in micro-lamports.'),
  maxComputeUnits: z
    .int()
    .min(1_000)
    .max(1_400_000)
    .default(200_000)
    .describe('Maximum compute units of one settlement.'),
  warnBelowSol: z
    .number()
    .nonnegative()
    .default(0.02)
    .describe('Balance of the fee payer below which the log warns, in SOL.'),
});

const Facilitator = group({
  url: HttpUrl.optional().describe(
    'URL of an external facilitator. Default: the server settles payments itself.',
  ),
  authorization: z
    .string()
    .meta({ secret: true })
    .optional()
    .describe('Value of the header `Authorization` in requests to the facilitator.'),
  cdp: z
    .strictObject({
      keyId: z.string().min(1).max(200).describe('Id of the API key.'),
      keySecret: z
        .string()
        .refine(
          isCdpSecret,
          'Must be the secret of a CDP API key: the base64 of 64 bytes (Ed25519), or the PEM of a P-256 key',
        )
        .meta({ secret: true })
        .describe('Secret of the API key: Ed25519 (base64) or P-256 (PEM).'),
    })
    .optional()
    .describe(
      'API key of Coinbase Developer Platform, for its facilitator at `https://api.cdp.coinbase.com/platform/v2/x402`. Each request carries a signed token instead of `authorization`.',
    ),
  timeoutSeconds: z
    .int()
    .min(1)
    .max(120)
    .default(60)
    .describe('Timeout of a request to the facilitator, in seconds.'),
  expose: flag(false).describe(
    'Serve `/x402/facilitator/supported`, `verify` and `settle` to other servers.',
  ),
});

const Staking = z.strictObject({
  rpcUrl: Nodes,
  contract: EvmAddress.describe('Contract that returns the stake of a wallet.'),
  function: z
    .string()
    .regex(/^[A-Za-z_]\w*$/)
    .default('balanceOf')
    .describe('View function of the contract that takes an address and returns a `uint256`.'),
  decimals: z.int().min(0).max(36).default(18).describe('Decimals of the returned number.'),
  usdPerUnit: z
    .number()
    .positive()
    .max(1_000_000)
    .refine(isExactUsd, TOO_FINE)
    .default(1)
    .describe('Daily credit for one unit of stake, in USD.'),
});

const RoutesPerMinute = group({
  topUp: z.int().min(1).default(10).describe('`POST /x402/top-up` per address.'),
  balance: z.int().min(1).default(30).describe('`GET /x402/balance` per wallet.'),
  transactions: z.int().min(1).default(20).describe('`GET /x402/transactions` per wallet.'),
  token: z.int().min(1).default(30).describe('`POST /x402/token` per wallet.'),
  facilitator: z.int().min(1).default(60).describe('`/x402/facilitator` per address.'),
});

export const PaymentsSection = group({
  minimumTopUpUsd: Usd.default(5).describe('Minimum amount of a top-up, in USD.'),
  suggestedTopUpUsd: Usd.default(10).describe('Amount that a 402 suggests, in USD.'),
  maximumTopUpUsd: Usd.default(10_000).describe('Maximum amount of a top-up, in USD.'),
  firstPaymentUsd: Usd.positive()
    .default(1)
    .describe(
      'Smaller payment that each 402 also offers, in USD, because x402 clients reject more than 1 USD by default.',
    ),
  firstPaymentVersionOneUsd: Usd.positive()
    .default(0.1)
    .describe(
      'Smaller payment in a 402 of x402 version 1, in USD, because these clients reject more than 0.10 USD by default.',
    ),
  maxTimeoutSeconds: z
    .int()
    .min(30)
    .max(3_600)
    .default(300)
    .describe('Validity of a signed payment, in seconds.'),
  settleWaitSeconds: z
    .int()
    .min(1)
    .max(120)
    .default(25)
    .describe(
      'Maximum time that a top-up request waits for its settlement, in seconds; after that the response is 202.',
    ),
  sessionMinutes: z
    .int()
    .min(15)
    .max(1_440)
    .default(60)
    .describe('Lifetime of a wallet token, in minutes.'),
  receipts: flag(true).describe('Sign offers and receipts.'),
  mpp: flag(false).describe(
    'Also offer payments on Base by the Machine Payments Protocol (`WWW-Authenticate: Payment`).',
  ),
  signingKey: z
    .string()
    .regex(/^[0-9a-fA-F]{64}$/, 'A signing key must be an Ed25519 seed of 64 hex digits')
    .meta({ secret: true })
    .optional()
    .describe(
      'Ed25519 seed that signs offers and receipts, 64 hex digits. Default: a key in the database.',
    ),
  requiredHeaderBytes: z
    .int()
    .min(2_800)
    .max(8_000)
    .default(3_500)
    .describe(
      'Maximum size of the payment headers of a 402 (`PAYMENT-REQUIRED` and `WWW-Authenticate`), in bytes; data that does not fit is only in the body. Many proxies allow 4 KB for all headers, of which the other headers take 450 to 700 bytes. Raise it if your proxies allow more.',
    ),
  routesPerMinute: RoutesPerMinute,
  base: BaseRail.optional(),
  networks: z.array(EvmNetworkRail).max(MAX_NETWORKS).default([]).describe('Further EVM networks.'),
  solana: SolanaRail.optional(),
  facilitator: Facilitator,
  staking: Staking.optional(),
  stripe: StripeSection.optional().describe('Payments by card with Stripe.'),
  shop: ShopSection.optional().describe('Payments in your own shop.'),
});
export type PaymentsSection = z.infer<typeof PaymentsSection>;

const CDP_SECRET_BYTES = 64;

function isCdpSecret(secret: string): boolean {
  if (!secret.includes('-----BEGIN')) {
    return Buffer.from(secret, 'base64').length === CDP_SECRET_BYTES;
  }
  try {
    const key = createPrivateKey(secret.replaceAll('\\n', '\n'));
    return key.asymmetricKeyDetails?.namedCurve === 'prime256v1';
  } catch {
    return false; // no PEM of a private key
  }
}

/** A refinement that reports the message of `problemOf`, if there is one. */
function rejectWith<T>(problemOf: (value: T) => string | undefined) {
  return (value: T, context: z.RefinementCtx): void => {
    const message = problemOf(value);
    if (message !== undefined) context.addIssue({ code: 'custom', message });
  };
}
