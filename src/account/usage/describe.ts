/** What `/usage` says of itself. */
import { type RouteDescription, jsonContent } from '../../http/describe.ts';
import { CSV_COLUMNS, ReceiptAnswer, UsageAnswer, UsageQuery } from './schema.ts';

const SUMS = {
  requests: 12,
  promptTokens: 3400,
  completionTokens: 900,
  cost: { usd: 0.0021, diem: 0 },
};
const REQUEST_ID = '019aa3f1c0de4b7e8c1d2e3f4a5b6c7d';

export const USAGE: RouteDescription = {
  tag: 'Usage and billing',
  summary: 'Usage by day, model and key',
  about: 'A wallet and an ADMIN key see the account, another key sees itself.',
  query: UsageQuery,
  answers: [
    {
      status: 200,
      about: 'One row for each day, model and key; as JSON pages or as one CSV file.',
      headers: ['download'],
      someHeaders: ['page'],
      content: [
        ...jsonContent(UsageAnswer, {
          object: 'list',
          from: '2026-10-23',
          to: '2026-11-21',
          totals: SUMS,
          data: [{ date: '2026-11-21', model: 'atlas-24b', apiKeyId: 'key_019aa3f1c0de', ...SUMS }],
        }),
        {
          type: 'text/csv',
          schema: { type: 'string' },
          example: `${CSV_COLUMNS.join(',')}\r\n2026-11-21,atlas-24b,key_019aa3f1c0de,12,3400,900,0.002100000,0.000000000\r\n`,
        },
      ],
    },
  ],
};

export const RECEIPT: RouteDescription = {
  tag: 'Usage and billing',
  summary: 'Get the receipt of a request',
  parameters: [
    {
      name: 'id',
      in: 'path',
      about: 'The `x-request-id` of an answer, or the id of a chat completion.',
      example: REQUEST_ID,
    },
  ],
  answers: [
    {
      status: 200,
      about: 'What the request used and cost.',
      content: jsonContent(ReceiptAnswer, {
        object: 'receipt',
        requestId: REQUEST_ID,
        createdAt: '2026-11-21T04:00:00.000Z',
        apiKeyId: 'key_019aa3f1c0de',
        kind: 'chat',
        model: 'atlas-24b',
        status: 'completed',
        router: 'rack1',
        attempts: 1,
        tokens: {
          prompt: 9,
          completion: 7,
          cached: 0,
          cacheWrite: 0,
          reasoning: 0,
          countedBy: 'engine',
        },
        priceVersion: 'a1b2c3d4',
        cost: { usd: 0.0000111, diem: 0 },
        latencyMs: 412,
        firstTokenMs: 88,
        extras: {},
      }),
    },
  ],
  refusals: ['REQUEST_ID_NOT_FOUND'],
};
