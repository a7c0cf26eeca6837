/** Shapes of `/usage`: rollups by day, model and key, and the receipt of one request. */
import { z } from 'zod';
import { pageQuery } from '../../http/read-request.ts';

const DAY = /^\d{4}-\d{2}-\d{2}$/;

const Day = z
  .string()
  .regex(DAY, 'Must be a day such as 2026-11-21')
  .refine((text) => isDay(text), 'Must be a day of the calendar')
  .describe('A UTC day, `YYYY-MM-DD`.');

function isDay(text: string): boolean {
  const ms = Date.parse(text);
  return !Number.isNaN(ms) && new Date(ms).toISOString().startsWith(text);
}

const MAX_ROWS = 1_000;

export type UsageQuery = z.infer<typeof UsageQuery>;
export const UsageQuery = z.object({
  from: Day.optional().describe('First day; default 29 days before `to`.'),
  to: Day.optional().describe('Last day; default today. At most 366 days in all.'),
  model: z.string().max(200).optional().describe('Only this model.'),
  key: z
    .string()
    .max(100)
    .optional()
    .describe('Only this API key. Keys that are not ADMIN keys see themselves only.'),
  format: z
    .enum(['json', 'csv'])
    .optional()
    .describe('`csv` downloads every row; so does the header `Accept: text/csv`.'),
  ...pageQuery({ max: MAX_ROWS, usual: MAX_ROWS }),
});

const Cost = z.object({
  usd: z.number().describe('USD, exact to nine decimals.'),
  diem: z.number().describe('Daily credit.'),
});
const Count = z.number().int();

export type UsageRowItem = z.infer<typeof UsageRowItem>;
export const UsageRowItem = z
  .object({
    date: Day,
    model: z.string(),
    apiKeyId: z.string().nullable().describe('Null for a wallet.'),
    requests: Count,
    promptTokens: Count,
    completionTokens: Count,
    cost: Cost,
  })
  .meta({ id: 'UsageRow' });

export type UsageAnswer = z.infer<typeof UsageAnswer>;
export const UsageAnswer = z
  .object({
    object: z.literal('list'),
    from: Day,
    to: Day,
    totals: z
      .object({ requests: Count, promptTokens: Count, completionTokens: Count, cost: Cost })
      .describe('Of every row that matches, on all pages.'),
    data: z.array(UsageRowItem).describe('Newest day first.'),
  })
  .meta({ id: 'Usage' });

/** The head of the CSV; its columns are those of `UsageRowItem`. */
export const CSV_COLUMNS = [
  'date',
  'model',
  'api_key_id',
  'requests',
  'prompt_tokens',
  'completion_tokens',
  'usd',
  'diem',
] as const;

const SURCHARGE = {
  type: 'object',
  required: ['count', 'usd'],
  additionalProperties: false,
  properties: { count: { type: 'integer' }, usd: { type: 'string' } },
} as const;

/** Receipts are kept as JSON, so their shape is said here and not parsed. */
const EXTRAS = {
  additionalProperties: false,
  properties: {
    web_search: SURCHARGE,
    web_scraping: SURCHARGE,
    x_search: SURCHARGE,
    engine_calls: { type: 'integer', description: 'When it was more than one.' },
    images: { type: 'integer' },
    audioSeconds: { type: 'number' },
    credits: { type: 'integer', description: 'Blockchain RPC: credits charged.' },
    items: { type: 'integer', description: 'Blockchain RPC: items of the batch.' },
    quoteUsd: { type: 'string' },
    refundedUsd: { type: 'string' },
    reason: { type: 'string', description: 'Why a video failed, as an error code.' },
  },
} as const;

export type ReceiptAnswer = z.infer<typeof ReceiptAnswer>;
export const ReceiptAnswer = z
  .object({
    object: z.literal('receipt'),
    requestId: z.string().describe('The header `x-request-id` of the answer.'),
    createdAt: z.string(),
    apiKeyId: z.string().nullable().describe('Null for a wallet.'),
    kind: z
      .string()
      .describe('What was sold; `cutout` is a removed background.')
      .meta({ enum: ['chat', 'embeddings', 'rpc', 'cutout', 'video', 'transcription'] }),
    model: z.string(),
    status: z
      .string()
      .describe(
        'completed; aborted (the caller left); failed (free, but for text that had left); expired (given up by the server).',
      )
      .meta({ enum: ['completed', 'aborted', 'failed', 'expired'] }),
    router: z.string().nullable().describe('The engine that answered.'),
    attempts: Count.describe('Engines that were asked.'),
    tokens: z.object({
      prompt: Count.describe('Cached and cache-write tokens included.'),
      completion: Count.describe('Reasoning tokens included.'),
      cached: Count,
      cacheWrite: Count,
      reasoning: Count,
      countedBy: z
        .string()
        .describe(
          'engine; bytes (of the text, four a token, where the engine did not count); none. Receipts of version 0.1.0 may say deltas.',
        )
        .meta({ enum: ['engine', 'bytes', 'deltas', 'none'] }),
    }),
    priceVersion: z.string().describe('Names the prices that the cost was made with.'),
    cost: Cost,
    latencyMs: Count,
    firstTokenMs: Count.nullable(),
    extras: z
      .record(z.string(), z.unknown())
      .describe('What else was counted or priced; each member for some kinds only.')
      .meta(EXTRAS),
  })
  .meta({ id: 'Receipt' });
