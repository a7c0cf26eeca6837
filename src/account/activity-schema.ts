/** What the lists of requests and of days say of themselves. */
import { z } from 'zod';
import { type RouteDescription, jsonAnswer, jsonContent } from '../http/describe.ts';
import { NextCursor, cursorQuery } from '../http/cursor.ts';
import { Day, RECEIPT_SAMPLE, Receipt, SUMS_SAMPLE, Sums } from './usage-schema.ts';

const KINDS = [
  'chat',
  'completions',
  'embeddings',
  'rpc',
  'cutout',
  'image',
  'image_edit',
  'speech',
  'moderation',
  'rerank',
  'translation',
  'video',
  'transcription',
] as const;
const STATUSES = ['completed', 'aborted', 'failed', 'expired', 'running'] as const;

const RANGE = {
  from: Day.optional().describe('First day; default 29 days before `to`.'),
  to: Day.optional().describe('Last day; default today. At most 366 days in all.'),
};
const OF_MODEL = {
  model: z.string().max(200).optional().describe('Only this model.'),
  key: z
    .string()
    .max(100)
    .optional()
    .describe('Only this API key. Keys that are not ADMIN keys see themselves only.'),
};

export type ActivityQuery = z.infer<typeof ActivityQuery>;
export const ActivityQuery = z.object({
  ...RANGE,
  ...OF_MODEL,
  kind: z.enum(KINDS).optional().describe('Only what was sold as this.'),
  status: z.enum(STATUSES).optional().describe('Only requests that ended so.'),
  requestId: z
    .string()
    .max(100)
    .optional()
    .describe('Only this request: the `x-request-id` of an answer, or the id of a completion.'),
  format: z
    .enum(['json', 'csv'])
    .optional()
    .describe('`csv` downloads every row, newest first; so does the header `Accept: text/csv`.'),
  ...cursorQuery(),
});

export type ActivityAnswer = z.infer<typeof ActivityAnswer>;
export const ActivityAnswer = z
  .object({
    object: z.literal('list').describe('Kind of the object.'),
    from: Day.describe('First day, UTC.'),
    to: Day.describe('Last day, UTC.'),
    data: z
      .array(Receipt)
      .describe('Newest first. A page before the last can have fewer items than its limit.'),
    nextCursor: NextCursor,
  })
  .meta({ id: 'Activity' });

export const ACTIVITY_CSV_HEAD =
  'request_id,created_at,api_key_id,kind,model,status,router,attempts,prompt_tokens,completion_tokens,cached_tokens,cache_write_tokens,reasoning_tokens,counted_by,price_version,usd,diem,reserved,latency_ms,first_token_ms,extras,metadata';

export const ACTIVITY: RouteDescription = {
  tag: 'Usage and billing',
  summary: 'List requests',
  about:
    'The receipt of every request that was admitted, newest first. A wallet and an ADMIN key see the account, another key sees itself.',
  query: ActivityQuery,
  answers: [
    {
      status: 200,
      about: 'Receipts; as JSON pages or as one CSV file of the whole range.',
      headers: ['download'],
      content: [
        ...jsonContent(ActivityAnswer, {
          object: 'list',
          from: '2026-10-23',
          to: '2026-11-21',
          data: [RECEIPT_SAMPLE],
          nextCursor: null,
        }),
        { type: 'text/csv', schema: { type: 'string' }, example: `${ACTIVITY_CSV_HEAD}\r\n` },
      ],
    },
  ],
};

export const DaysQuery = z.object({ ...RANGE, ...OF_MODEL });

export type DaysAnswer = z.infer<typeof DaysAnswer>;
export const DaysAnswer = z
  .object({
    object: z.literal('list').describe('Kind of the object.'),
    from: Day.describe('First day, UTC.'),
    to: Day.describe('Last day, UTC.'),
    totals: z.object(Sums).describe('Of every row that matches.'),
    data: z
      .array(
        z.object({
          date: Day.describe('The day, UTC.'),
          model: z.string().describe('Id of the model.'),
          ...Sums,
        }),
      )
      .describe('Newest day first, its dearest model first.'),
  })
  .meta({ id: 'UsageDays' });

export const DAYS: RouteDescription = {
  tag: 'Usage and billing',
  summary: 'Usage by day and model',
  about:
    'Sums over all keys, for charts. A wallet and an ADMIN key see the account, another key sees itself.',
  query: DaysQuery,
  answers: [
    jsonAnswer('One row for each day and model.', DaysAnswer, {
      object: 'list',
      from: '2026-10-23',
      to: '2026-11-21',
      totals: SUMS_SAMPLE,
      data: [{ date: '2026-11-21', model: 'atlas-24b', ...SUMS_SAMPLE }],
    }),
  ],
};
