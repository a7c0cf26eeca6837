/**
 * Rate limits by plan, the abuse guard, concurrency of wallets, and the credit that admission asks
 * for. The defaults are the tables of the specification ("Limits"); per account and per key they are
 * adjusted in the database, not here.
 */
import { z } from 'zod';

import { usd, whole, group } from './setting-kinds.ts';

/** Model tiers by size, smallest first. */
export const TIERS = ['XS', 'S', 'M', 'L'] as const;
export type Tier = (typeof TIERS)[number];

const PER_MINUTE = 'per minute, per caller and model';

// Of a paid account, for text models by tier and for the other types.
const PAID = {
  text: { XS: [500, 1_000_000], S: [75, 750_000], M: [50, 750_000], L: [20, 500_000] },
  image: 20,
  audio: 60,
  embedding: 500,
  videoQueue: 40,
  videoRetrieve: 120,
} as const;

// Of a partner. Video is not given there: the default column holds.
const PARTNER = {
  text: { XS: [500, 2_000_000], S: [150, 1_500_000], M: [100, 1_500_000], L: [60, 1_000_000] },
  image: 60,
  audio: 120,
  embedding: 500,
  videoQueue: 40,
  videoRetrieve: 120,
} as const;

function textLimit([requests, tokens]: readonly [number, number], models: string) {
  return group({
    requestsPerMinute: whole(requests).describe(`Requests ${PER_MINUTE}.`),
    tokensPerMinute: whole(tokens).describe(`Prompt and completion tokens ${PER_MINUTE}.`),
  }).describe(models);
}

function planLimits({ text, ...other }: typeof PAID | typeof PARTNER, description: string) {
  const requests = (value: number, what: string) =>
    whole(value).describe(`${what}, requests per minute.`);
  return group({
    text: group({
      XS: textLimit(text.XS, 'Models of up to 4 B parameters.'),
      S: textLimit(text.S, 'Models of up to 15 B parameters.'),
      M: textLimit(text.M, 'Models of up to 80 B parameters.'),
      L: textLimit(text.L, 'Larger models.'),
    }).describe('Text models, by tier.'),
    image: requests(other.image, 'Image models and background removal'),
    audio: requests(other.audio, 'Audio models and transcription'),
    embedding: requests(other.embedding, 'Embedding models'),
    videoQueue: requests(other.videoQueue, 'Queueing videos'),
    videoRetrieve: requests(other.videoRetrieve, 'Retrieving videos'),
  }).describe(description);
}

/** Plans of an account. */
export type Plan = keyof LimitsSection['plans'];
export type PlanLimits = LimitsSection['plans'][Plan];

export type LimitsSection = z.infer<typeof LimitsSection>;
export const LimitsSection = group({
  plans: group({
    paid: planLimits(PAID, 'Every account and wallet, unless said otherwise.'),
    pro: planLimits(PAID, 'Accounts on the pro plan.'),
    partner: planLimits(PARTNER, 'Partners.'),
    staff: planLimits(PARTNER, 'Staff.'),
  }),
  guard: group({
    failures: whole(20).describe('Failed requests that are let pass in the window.'),
    windowSeconds: whole(30).describe('The window.'),
    blockSeconds: whole(30).describe('How long a caller above it is blocked.'),
  }).describe(
    'Abuse guard: one bucket per key or wallet; without either, failed credentials count by address and beginning of the credential.',
  ),
  walletConcurrency: whole(5).describe('Requests in flight per wallet.'),
  keyConcurrency: whole(256).describe('Requests in flight per API-key account.'),
  minimumCreditUsd: usd('0.10').describe(
    'Credit that a caller must have for a priced request to be admitted.',
  ),
  starterCreditUsd: usd('5').describe('Credit of the owner account at the first start.'),
  keysPerAccount: whole(500).describe('Active API keys per account.'),
  keptResponsesMb: whole(32).describe(
    'Storage of one account for responses that are kept under an `Idempotency-Key`, in MiB, and 200 MB more for each dollar that was charged for them. An account that was charged nothing for them has a sixteenth of it. Above it the oldest responses are dropped.',
  ),
  unsoldPerMinute: whole(3000).describe(
    'Requests per account and minute on everything that sells nothing: keys, usage, billing, lists of models.',
  ),
  keysPerMinute: whole(20).describe(
    'API keys made per account and minute, and tries of wallets of one address to make one.',
  ),
});
