/**
 * The `limits` section: rate limits by plan, the abuse guard, concurrency and credit rules. The defaults
 * are the tables of the specification ("Limits"). Limits of one account or key are in the database.
 */
import * as z from 'zod';

import { usd, whole, group } from './setting-kinds.ts';

/** Model tiers by size, smallest first. */
export const TIERS = ['XS', 'S', 'M', 'L'] as const;
export type Tier = (typeof TIERS)[number];

const PER_MINUTE = 'per minute, per caller and model';

// Limits of the plan `paid`: requests per minute, for text models also tokens per minute.
const PAID = {
  text: { XS: [500, 1_000_000], S: [75, 750_000], M: [50, 750_000], L: [20, 500_000] },
  image: 20,
  audio: 60,
  embedding: 500,
  videoQueue: 40,
  videoRetrieve: 120,
} as const;

// The specification has no video limits for partners, so these are the ones of `paid`.
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
    paid: planLimits(PAID, 'Accounts and wallets without another plan.'),
    pro: planLimits(PAID, 'Accounts on the pro plan.'),
    partner: planLimits(PARTNER, 'Accounts on the partner plan.'),
    staff: planLimits(PARTNER, 'Accounts on the staff plan.'),
  }),
  guard: group({
    failures: whole(20).describe('Failed requests of one caller that are allowed in the window.'),
    windowSeconds: whole(30).describe('Length of the window, in seconds.'),
    blockSeconds: whole(30).describe('Seconds for which a caller is blocked after more failures.'),
  }).describe(
    'Abuse guard. It counts failed requests per API key or wallet, and failed credentials per address and prefix of the credential.',
  ),
  walletConcurrency: whole(5).describe('Concurrent requests of one wallet.'),
  keyConcurrency: whole(256).describe('Concurrent requests of one account with API keys.'),
  minimumCreditUsd: usd('0.10').describe('Minimum credit for a priced request, in USD.'),
  starterCreditUsd: usd('5').describe('Credit of the owner account at the first start, in USD.'),
  keysPerAccount: whole(500).describe('Maximum number of active API keys of one account.'),
  keptResponsesMb: whole(32).describe(
    'Storage of one account for responses with an `Idempotency-Key`, in MiB, plus 200 MB for each USD that was charged for them. An account without such a charge has a sixteenth of it. Above the limit the oldest responses are deleted.',
  ),
  unsoldPerMinute: whole(3000).describe(
    'Requests per account and minute on unpriced routes: keys, usage, billing, lists of models.',
  ),
  keysPerMinute: whole(20).describe(
    'API keys that one account can create per minute, and attempts of wallets to create one per address and minute.',
  ),
});
