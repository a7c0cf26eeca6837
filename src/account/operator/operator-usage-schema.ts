/** What the operator's routes about usage say of themselves. Amounts are decimal text. */
import { z } from 'zod';
import { type RouteDescription, jsonResponse } from '../../http/describe.ts';
import { ACTIVITY, DAYS } from '../activity-schema.ts';
import { DecimalText } from '../api-key-schema.ts';
import { STATEMENT } from '../statement.ts';
import { DAYS_HEAD, DAYS_SAMPLE, Day, RANGE } from '../usage-schema.ts';
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

const GROUPINGS = ['day', 'model', 'account', 'key', 'tag'] as const;
const WANTED = {
  ...RANGE,
  account: z.string().max(200).optional().describe('Only this account.'),
  model: z.string().max(200).optional().describe('Only this model.'),
};

export const OperatorUsageQuery = z.object({
  ...WANTED,
  by: z
    .enum(GROUPINGS)
    .default('account')
    .describe('What is added up; `tag` adds up by each member of the `metadata` of requests.'),
  limit: z.coerce
    .number()
    .int()
    .min(1)
    .max(1_000)
    .default(100)
    .describe('Rows, the dearest first.'),
});

export const RevenueQuery = z.object(WANTED);

const Count = z.number().int();
const TextSums = {
  requests: Count.describe('Requests that were admitted.'),
  errors: Count.describe('Of the requests, those that failed or were given up.'),
  promptTokens: Count.describe('Tokens of prompts, cached ones included.'),
  completionTokens: Count.describe('Tokens of answers, thinking included.'),
  usd: DecimalText.describe('USD that was charged.'),
  diem: DecimalText.describe('Daily credit that was charged.'),
};
const TEXT_SUMS_SAMPLE = {
  requests: 12,
  errors: 0,
  promptTokens: 3400,
  completionTokens: 900,
  usd: '0.0021',
  diem: '0.0000',
};

const GroupRow = z.object({
  date: Day.optional().describe('By day: the day, UTC.'),
  model: z.string().optional().describe('By model: its id.'),
  accountId: z.string().optional().describe('By account: its id.'),
  apiKeyId: z.string().nullable().optional().describe('Null for wallets.'),
  tag: z.string().optional().describe('By tag: the name of the member of `metadata`.'),
  value: z.string().optional().describe('By tag: its value.'),
  ...TextSums,
});

export type GroupsResponse = z.infer<typeof GroupsResponse>;
const GroupsResponse = z
  .object({
    ...DAYS_HEAD,
    totals: z.object(TextSums).describe('Of everything that matches.'),
    data: z.array(GroupRow).describe('One row for each group, with the members it is made by.'),
  })
  .meta({ id: 'OperatorUsage' });

export const OPERATOR_USAGE: RouteDescription = {
  tag: 'Operator',
  summary: 'Usage of the service',
  query: OperatorUsageQuery,
  response: jsonResponse('Sums, the dearest first; by day the newest first.', GroupsResponse, {
    ...DAYS_SAMPLE,
    totals: TEXT_SUMS_SAMPLE,
    data: [{ accountId: 'acct_019aa3f1c0de', ...TEXT_SUMS_SAMPLE }],
  }),
};

export const REVENUE: RouteDescription = {
  tag: 'Operator',
  summary: 'Revenue by day and model',
  query: RevenueQuery,
  response: jsonResponse('One row for each day and model, newest first.', GroupsResponse, {
    ...DAYS_SAMPLE,
    totals: TEXT_SUMS_SAMPLE,
    data: [{ date: '2026-11-21', model: 'atlas-24b', ...TEXT_SUMS_SAMPLE }],
  }),
};
