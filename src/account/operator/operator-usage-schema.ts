/** What the operator's routes about usage say of themselves. Amounts are decimal text. */
import { z } from 'zod';
import {
  type RouteDescription,
  jsonResponse,
  jsonContent,
  textContent,
} from '../../http/describe.ts';
import {
  ACTIVITY_CSV_HEAD,
  ActivityResponse,
  ActivityQuery,
  DaysResponse,
  DaysQuery,
} from '../activity-schema.ts';
import { DecimalText } from '../api-key-schema.ts';
import { StatementResponse, StatementQuery } from '../statement.ts';
import { DAYS_HEAD, Day, RANGE, RECEIPT_SAMPLE, SUMS_SAMPLE } from '../usage-schema.ts';
import { ACCOUNT_PATH } from './operator-accounts-schema.ts';

const DAYS_SAMPLE = { from: '2026-10-23', to: '2026-11-21' };

export const ACCOUNT_STATEMENT: RouteDescription = {
  tag: 'Operator',
  summary: 'Statement of an account',
  parameters: ACCOUNT_PATH,
  query: StatementQuery,
  answers: [
    jsonResponse('As `GET /billing/statement`.', StatementResponse, {
      object: 'list',
      data: [],
      nextCursor: null,
    }),
  ],
  refusals: ['ACCOUNT_NOT_FOUND'],
};

export const ACCOUNT_REQUESTS: RouteDescription = {
  tag: 'Operator',
  summary: 'Requests of an account',
  parameters: ACCOUNT_PATH,
  query: ActivityQuery,
  answers: [
    {
      status: 200,
      about: 'As `GET /usage/requests`.',
      headers: ['download'],
      content: [
        ...jsonContent(ActivityResponse, {
          object: 'list',
          ...DAYS_SAMPLE,
          data: [RECEIPT_SAMPLE],
          nextCursor: null,
        }),
        textContent('text/csv', `${ACTIVITY_CSV_HEAD}\r\n`),
      ],
    },
  ],
  refusals: ['ACCOUNT_NOT_FOUND'],
};

export const ACCOUNT_DAYS: RouteDescription = {
  tag: 'Operator',
  summary: 'Usage of an account by day and model',
  parameters: ACCOUNT_PATH,
  query: DaysQuery,
  answers: [
    jsonResponse('As `GET /usage/days`.', DaysResponse, {
      object: 'list',
      ...DAYS_SAMPLE,
      totals: SUMS_SAMPLE,
      data: [{ date: '2026-11-21', model: 'atlas-24b', ...SUMS_SAMPLE }],
    }),
  ],
  refusals: ['ACCOUNT_NOT_FOUND'],
};

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
  answers: [
    jsonResponse('Sums, the dearest first; by day the newest first.', GroupsResponse, {
      object: 'list',
      ...DAYS_SAMPLE,
      totals: TEXT_SUMS_SAMPLE,
      data: [{ accountId: 'acct_019aa3f1c0de', ...TEXT_SUMS_SAMPLE }],
    }),
  ],
};

export const REVENUE: RouteDescription = {
  tag: 'Operator',
  summary: 'Revenue by day and model',
  query: RevenueQuery,
  answers: [
    jsonResponse('One row for each day and model, newest first.', GroupsResponse, {
      object: 'list',
      ...DAYS_SAMPLE,
      totals: TEXT_SUMS_SAMPLE,
      data: [{ date: '2026-11-21', model: 'atlas-24b', ...TEXT_SUMS_SAMPLE }],
    }),
  ],
};
