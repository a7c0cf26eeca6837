/** Schemas and descriptions of `/usage/requests` and `/usage/days`. */
import * as z from 'zod';
import { RECEIPT_KINDS, RECEIPT_STATUSES } from '../core/receipt-words.ts';
import { type RouteDescription, jsonResponse } from '../http/describe.ts';
import { NextCursor, cursorQuery } from '../http/cursor.ts';
import {
  DAYS_HEAD,
  DAYS_SAMPLE,
  Day,
  OF_MODEL,
  RANGE,
  RECEIPT_SAMPLE,
  Receipt,
  SUMS_SAMPLE,
  Sums,
  jsonOrCsv,
} from './usage-schema.ts';

export type ActivityQuery = z.infer<typeof ActivityQuery>;
export const ActivityQuery = z.object({
  ...RANGE,
  ...OF_MODEL,
  kind: z.enum(RECEIPT_KINDS).optional().describe('Only requests of this kind.'),
  status: z.enum(RECEIPT_STATUSES).optional().describe('Only requests with this status.'),
  requestId: z
    .string()
    .max(100)
    .optional()
    .describe('Only this request: the `x-request-id` of a response, or the id of a completion.'),
  format: z
    .enum(['json', 'csv'])
    .optional()
    .describe('`csv` downloads all rows, newest first, as does the header `Accept: text/csv`.'),
  ...cursorQuery(),
});

export type ActivityResponse = z.infer<typeof ActivityResponse>;
export const ActivityResponse = z
  .object({
    ...DAYS_HEAD,
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
    'The receipts of all admitted requests, newest first. A wallet and an ADMIN key see the account; another key sees its own requests.',
  query: ActivityQuery,
  response: jsonOrCsv(
    'Receipts, as JSON pages or as one CSV file of the whole range.',
    ActivityResponse,
    { ...DAYS_SAMPLE, data: [RECEIPT_SAMPLE], nextCursor: null },
    `${ACTIVITY_CSV_HEAD}\r\n`,
  ),
};

export const DaysQuery = z.object({ ...RANGE, ...OF_MODEL });

export type DaysResponse = z.infer<typeof DaysResponse>;
export const DaysResponse = z
  .object({
    ...DAYS_HEAD,
    totals: z.object(Sums).describe('Sums of all matching rows.'),
    data: z
      .array(
        z.object({
          date: Day.describe('The day, UTC.'),
          model: z.string().describe('Id of the model.'),
          ...Sums,
        }),
      )
      .describe('Newest day first; within a day the most expensive model first.'),
  })
  .meta({ id: 'UsageDays' });

export const DAYS: RouteDescription = {
  tag: 'Usage and billing',
  summary: 'Usage by day and model',
  about:
    'Sums over all keys, for charts. A wallet and an ADMIN key see the account; another key sees its own requests.',
  query: DaysQuery,
  response: jsonResponse('One row for each day and model.', DaysResponse, {
    ...DAYS_SAMPLE,
    totals: SUMS_SAMPLE,
    data: [{ date: '2026-11-21', model: 'atlas-24b', ...SUMS_SAMPLE }],
  }),
};
