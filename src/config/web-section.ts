/**
 * The sections `search`, `scraping`, `socialSearch`, `fetch`, `documents`, `content`, `promptCaches`,
 * `responses` and `personas`.
 */
import * as z from 'zod';
import { Text, flag, usd, whole, group } from './setting-kinds.ts';

const SEARCH_LIMITS = {
  maxResults: whole(8, 20).describe('Maximum number of results in the prompt.'),
  timeoutMs: whole(10_000, 60_000).describe('Timeout of one search, in ms.'),
  language: z
    .string()
    .regex(/^[a-z]{2,3}(-[A-Za-z0-9]{2,8})*$/, 'Must be a language tag such as en or de-CH')
    .optional()
    .describe('Language of the results, such as `en` or `de-CH`. Default: chosen by the provider.'),
  safeSearch: z
    .enum(['off', 'moderate', 'strict'])
    .default('moderate')
    .describe('Filter of the provider for adult content.'),
  usdPerSearch: usd('0.01').describe(
    'Price of one search, in USD. `price.perSearch` of a model takes precedence.',
  ),
};

/** `url` of SearXNG is the URL of its start page. */
export const SearchSection = z.discriminatedUnion('provider', [
  z.strictObject({ provider: z.literal('searxng'), url: z.url(), ...SEARCH_LIMITS }),
  z.strictObject({
    provider: z.literal('brave'),
    apiKey: Text,
    url: z.url().default('https://api.search.brave.com'),
    ...SEARCH_LIMITS,
  }),
]);

export const ScrapingSection = group({
  maxUrls: whole(5, 20).describe('Maximum number of URLs that are read from one user message.'),
  maxBytes: whole(10_000_000, 100_000_000).describe('Maximum size of one page, in bytes.'),
  timeoutMs: whole(15_000, 120_000).describe('Timeout for fetching one page, in ms.'),
  maxCharsPerPage: whole(40_000, 1_000_000).describe(
    'Maximum number of characters of a page in the prompt.',
  ),
  usdPerPage: usd('0.01').describe('Price of a page in the prompt, in USD.'),
});

/** Searches by the engine itself (`enable_x_search`). */
export const SocialSearchSection = group({
  maxResults: whole(20, 100).describe('Maximum number of results for one request.'),
  usdPerResult: usd('0.01').describe(
    'Price of one result, in USD. A search without a number of results counts as one.',
  ),
  maxPromptTokens: whole(32_768, 10_000_000).describe(
    'Maximum prompt tokens that the results add to one request. Holds include it, and more is never billed.',
  ),
});

/** Rules for fetching URLs from callers. */
export const FetchSection = group({
  allow: z
    .array(z.union([z.cidrv4(), z.cidrv6()]))
    .default([])
    .describe(
      'Private networks that may be fetched from, as CIDR, for example of your own object store.',
    ),
  ports: z
    .array(z.number().int().min(1).max(65_535))
    .default([80, 443, 8080, 8443])
    .describe('Ports of public addresses that may be fetched from.'),
  userAgent: Text.max(300).optional().describe('Value of `User-Agent`.'),
});

export const DocumentsSection = group({
  workers: whole(2, 64).describe(
    'Number of processes that convert files and pages to text, and of those that check generated images.',
  ),
  memoryMb: whole(768, 65_536).describe(
    'Memory limit of such a process, in MB. The server kills a process that exceeds it.',
  ),
  timeoutMs: whole(20_000, 600_000).describe('Timeout for converting one file, in ms.'),
  maxChars: whole(500_000, 50_000_000).describe(
    'Maximum number of characters of a file in the prompt.',
  ),
  maxPages: whole(1_000, 100_000).describe('Maximum number of pages that are read from a PDF.'),
});

export const ContentSection = group({
  timeoutMs: whole(20_000, 600_000).describe('Timeout for fetching one item, in ms.'),
  maxImageBytes: whole(25_000_000, 1_000_000_000).describe('Maximum size of an image, in bytes.'),
  maxAudioBytes: whole(25_000_000, 1_000_000_000).describe(
    'Maximum size of an audio file, in bytes.',
  ),
  maxVideoBytes: whole(50_000_000, 1_000_000_000).describe('Maximum size of a video, in bytes.'),
  maxFileBytes: whole(25_000_000, 1_000_000_000).describe(
    'Maximum size of another file, in bytes.',
  ),
  maxRequestBytes: whole(100_000_000, 4_000_000_000).describe(
    'Maximum size of all media that are fetched for one request, in bytes.',
  ),
});

export const PromptCachesSection = group({
  perAccount: flag(true).describe(
    'Separate the prompt caches of accounts, so that token counts and speed reveal nothing about prompts of other accounts. `prompt_cache_key` becomes a keyed hash of account and key, and engines with `quirks.cacheSalt` get a salt per account. Set `false` if all accounts belong to one tenant.',
  ),
});

export const ResponsesSection = group({
  keepHours: z
    .number()
    .int()
    .min(0)
    .max(8_760)
    .default(24)
    .describe('Hours for which a response can be read and continued by its id; 0 stores none.'),
});

const text = (max: number): z.ZodString => z.string().max(max);
const time = z.union([z.iso.datetime({ offset: true }), z.iso.date()]);

/** One persona, in the configuration or in its own file. */
export const PersonaSection = z.strictObject({
  slug: z
    .string()
    .regex(/^[a-z0-9][a-z0-9-]{0,99}$/, 'Must be 1 to 100 lowercase letters, digits and dashes')
    .describe('Value of `character_slug` in requests.'),
  name: text(200).min(1),
  description: text(4_000).default(''),
  prompt: text(100_000).min(1),
  tags: z.array(text(100)).max(50).default([]),
  categories: z.array(text(100)).max(50).default([]),
  model: text(200).default('').describe('Id of a recommended model.'),
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
    'Folder with a `.md` file (YAML between `---` lines, then the prompt) or `.yaml` file for each persona.',
  ),
  list: z.array(PersonaSection).default([]).describe('Personas in the configuration file.'),
});
