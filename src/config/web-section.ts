/**
 * The sections `search`, `scraping`, `fetch`, `documents`, `content`, `promptCaches`, `responses` and `personas`: what
 * Farebox fetches from the web, reads from files and keeps for callers, and who it can speak as.
 * Every figure has a default.
 */
import { z } from 'zod';
import { Text, flag, usd, whole, group } from './setting-kinds.ts';

const SEARCH_LIMITS = {
  maxResults: whole(8, 20).describe('Results handed to the model.'),
  timeoutMs: whole(10_000, 60_000).describe('Limit for one search.'),
  /** `en`, `de-CH`, …; the provider's choice when absent. */
  language: z
    .string()
    .regex(/^[a-z]{2,3}(-[A-Za-z0-9]{2,8})*$/)
    .optional(),
  safeSearch: z
    .enum(['off', 'moderate', 'strict'])
    .default('moderate')
    .describe('What the provider leaves out.'),
  usdPerSearch: usd('0.01').describe(
    'Price of one search; `perSearch` of a model takes its place.',
  ),
};

/** Who answers web searches. `url` of SearXNG is the address of its start page. */
export const SearchSection = z.discriminatedUnion('provider', [
  z.strictObject({ provider: z.literal('searxng'), url: z.url(), ...SEARCH_LIMITS }),
  z.strictObject({
    provider: z.literal('brave'),
    apiKey: Text,
    url: z.url().default('https://api.search.brave.com'),
    ...SEARCH_LIMITS,
  }),
]);

/** How pages named in a user message are read. */
export const ScrapingSection = group({
  maxUrls: whole(5, 20).describe('Addresses read from one user message.'),
  maxBytes: whole(10_000_000, 100_000_000).describe('Size of one page.'),
  timeoutMs: whole(15_000, 120_000).describe('Limit for fetching one page.'),
  maxCharsPerPage: whole(40_000, 1_000_000).describe('Characters of a page that the model sees.'),
  usdPerPage: usd('0.01').describe('Price of a page that was read.'),
});

/** Searches that an engine makes by itself (`enable_x_search`). */
export const SocialSearchSection = group({
  maxResults: whole(20, 100).describe('Results that the engine may use for one request.'),
  usdPerResult: usd('0.01').describe(
    'Price of one result; a search that names no number is one result.',
  ),
  maxPromptTokens: whole(32_768, 10_000_000).describe(
    'Upper bound of the prompt tokens that the results of such a search add to one request. Holds include it, and no more is billed.',
  ),
});

/** The guard of every fetch of a caller's URL. */
export const FetchSection = group({
  allow: z
    .array(z.union([z.cidrv4(), z.cidrv6()]))
    .default([])
    .describe(
      'Networks beyond public addresses, as CIDR: an object store of your own, loopback in tests.',
    ),
  ports: z
    .array(z.number().int().min(1).max(65_535))
    .default([80, 443, 8080, 8443])
    .describe('Ports of public addresses that may be asked.'),
  userAgent: Text.max(300).optional().describe('How Farebox names itself.'),
});

/** The worker processes that turn files and pages into text. */
export const DocumentsSection = group({
  workers: whole(2, 64).describe('Processes that read at the same time.'),
  memoryMb: whole(768, 65_536).describe('Memory at which such a process is killed.'),
  timeoutMs: whole(20_000, 600_000).describe('Limit for reading one file.'),
  maxChars: whole(500_000, 50_000_000).describe('Characters of a file that the model sees.'),
  maxPages: whole(1_000, 100_000).describe('Pages of a PDF that are read.'),
});

/** Bounds of images, audio, video and files in chat content. */
export const ContentSection = group({
  timeoutMs: whole(20_000, 600_000).describe('Limit for fetching one item.'),
  maxImageBytes: whole(25_000_000, 1_000_000_000).describe('Size of an image.'),
  maxAudioBytes: whole(25_000_000, 1_000_000_000).describe('Size of a sound.'),
  maxVideoBytes: whole(50_000_000, 1_000_000_000).describe('Size of a video.'),
  maxFileBytes: whole(25_000_000, 1_000_000_000).describe('Size of a file.'),
  maxRequestBytes: whole(100_000_000, 4_000_000_000).describe(
    'Size of all media that one request has fetched.',
  ),
});

/** Prompt caches of model servers. */
export const PromptCachesSection = group({
  perAccount: flag(true).describe(
    'Keep the prompt caches of accounts apart, so that cached-token counts and speed tell no account what another one sent: the `prompt_cache_key` of a caller is replaced by a keyed hash of account and key, and engines with a salt field get a `cache_salt` per account (`quirks.cacheSalt`). `false` when all accounts belong to one tenant.',
  ),
});

/** Answers that callers continue by their id. */
export const ResponsesSection = group({
  keepHours: z
    .number()
    .int()
    .min(0)
    .max(8_760)
    .default(24)
    .describe('How long an answer can be continued and read by its id, in hours; 0 stores none.'),
});

const text = (max: number): z.ZodString => z.string().max(max);
const time = z.union([z.iso.datetime({ offset: true }), z.iso.date()]);

/** One persona, in the configuration or at the head of its own file. */
export const PersonaSection = z.strictObject({
  /** What callers write in `character_slug`. */
  slug: z.string().regex(/^[a-z0-9][a-z0-9-]{0,99}$/),
  name: text(200).min(1),
  description: text(4_000).default(''),
  prompt: text(100_000).min(1),
  tags: z.array(text(100)).max(50).default([]),
  categories: z.array(text(100)).max(50).default([]),
  /** A model id that suits it; shown to callers, never forced. */
  model: text(200).default(''),
  author: text(200).default(''),
  adult: z.boolean().default(false),
  pro: z.boolean().default(false),
  featured: z.boolean().default(false),
  webEnabled: z.boolean().default(true),
  photoUrl: z.url().optional(),
  shareUrl: z.url().optional(),
  createdAt: time.optional(),
  updatedAt: time.optional(),
});
export type PersonaSection = z.infer<typeof PersonaSection>;

export const PersonasSection = group({
  folder: Text.optional().describe(
    'A folder of `.md` files (YAML between `---` lines, then the prompt) and `.yaml` files.',
  ),
  list: z.array(PersonaSection).default([]).describe('Personas written here.'),
});
