/** Schemas and descriptions of the operator's usage routes. Amounts are decimal text. */
import * as z from 'zod';
import type { RouteDescription } from '../../http/describe.ts';
import { ACTIVITY, DAYS } from '../activity-schema.ts';
import { DecimalText } from '../api-key-schema.ts';
import { STATEMENT } from '../statement.ts';
import {
  COUNTS_SAMPLE,
  Counts,
  DAYS_HEAD,
  DAYS_SAMPLE,
  Day,
  RANGE,
  jsonOrCsv,
} from '../usage-schema.ts';
import { ofAccount } from './operator-accounts-schema.ts';

export const ACCOUNT_STATEMENT = ofAccount(STATEMENT, 'Statement of an account');
export const ACCOUNT_REQUESTS = ofAccount(
  { ...ACTIVITY, about: 'As `GET /usage/requests`.' },
  'Requests of an account',
);
export const ACCOUNT_DAYS = ofAccount(
  { ...DAYS, about: 'As `GET /usage/days`.' },
  'Usage of an account by day and model',
);

const GROUPINGS = ['day', 'model', 'engine', 'account', 'key', 'tag'] as const;
const WANTED = {
  ...RANGE,
  account: z.string().max(200).optional().describe('Only this account.'),
  model: z.string().max(200).optional().describe('Only this model.'),
  engine: z.string().max(200).optional().describe('Only this engine; not together with `by=tag`.'),
  format: z
    .enum(['json', 'csv'])
    .optional()
    .describe('`csv` downloads the rows, as does the header `Accept: text/csv`.'),
};

export const OperatorUsageQuery = z.object({
  ...WANTED,
  by: z
    .enum(GROUPINGS)
    .default('account')
    .describe('Grouping of the sums; `tag` groups by each tag in `metadata` of the requests.'),
  limit: z.coerce
    .number()
    .int()
    .min(1)
    .max(1_000)
    .default(100)
    .describe('Number of rows, the most expensive first.'),
});

export const RevenueQuery = z.object({
  ...WANTED,
  by: z.enum(['model', 'engine']).default('model').describe('Grouping of the rows of a day.'),
});

/** The first columns are those of the grouping; the others are empty. */
export const GROUPS_CSV_HEAD =
  'date,model,account_id,api_key_id,tag,value,requests,errors,prompt_tokens,completion_tokens,usd,diem,engine,supplier_usd,margin_usd,uncosted_requests';

const TextSums = {
  ...Counts,
  usd: DecimalText.describe('Charged USD.'),
  diem: DecimalText.describe('Charged daily credit.'),
  supplierUsd: DecimalText.nullable().describe(
    'Cost at the `cost` prices of the replicas; null without them, and grouped by tag.',
  ),
  marginUsd: z
    .string()
    .nullable()
    .describe('`usd` minus `supplierUsd`, decimal text; null without `supplierUsd`.'),
  uncostedRequests: z
    .number()
    .int()
    .nullable()
    .describe('Requests to replicas without `cost` prices; null if grouped by tag.'),
};
const TEXT_SUMS_SAMPLE = {
  ...COUNTS_SAMPLE,
  usd: '0.0021',
  diem: '0.0000',
  supplierUsd: '0.0014',
  marginUsd: '0.0007',
  uncostedRequests: 0,
};

const GroupRow = z.object({
  date: Day.optional().describe('Grouped by day: the day, UTC.'),
  model: z.string().optional().describe('Grouped by model: id of the model.'),
  engine: z
    .string()
    .nullable()
    .optional()
    .describe('Grouped by engine: the engine of the response; null if it is not known.'),
  accountId: z.string().optional().describe('Grouped by account: id of the account.'),
  accountName: z.string().optional().describe('Grouped by account: name of the account.'),
  apiKeyId: z.string().nullable().optional().describe('Grouped by key: its id; null for wallets.'),
  tag: z.string().optional().describe('Grouped by tag: name of the tag.'),
  value: z.string().optional().describe('Grouped by tag: value of the tag.'),
  ...TextSums,
});

export type GroupsResponse = z.infer<typeof GroupsResponse>;
const GroupsResponse = z
  .object({
    ...DAYS_HEAD,
    totals: z.object(TextSums).describe('Sums of all matching requests.'),
    data: z.array(GroupRow).describe('One row for each group.'),
  })
  .meta({ id: 'OperatorUsage' });

export const OPERATOR_USAGE: RouteDescription = {
  tag: 'Operator',
  summary: 'Usage of the service',
  query: OperatorUsageQuery,
  response: jsonOrCsv(
    'Sums, the most expensive first; days newest first.',
    GroupsResponse,
    {
      ...DAYS_SAMPLE,
      totals: TEXT_SUMS_SAMPLE,
      data: [
        { accountId: 'acct_019aa3f1c0de', accountName: 'ada@example.com', ...TEXT_SUMS_SAMPLE },
      ],
    },
    `${GROUPS_CSV_HEAD}\r\n`,
  ),
};

export const REVENUE: RouteDescription = {
  tag: 'Operator',
  summary: 'Revenue, cost and margin by day',
  query: RevenueQuery,
  response: jsonOrCsv(
    'One row for each day and model, or for each day and engine, newest first.',
    GroupsResponse,
    {
      ...DAYS_SAMPLE,
      totals: TEXT_SUMS_SAMPLE,
      data: [{ date: '2026-11-21', model: 'atlas-24b', ...TEXT_SUMS_SAMPLE }],
    },
    `${GROUPS_CSV_HEAD}\r\n`,
  ),
};
