/** Schemas and descriptions of the operator's routes about single requests of all accounts. */
import * as z from 'zod';
import { RECEIPT_KINDS, RECEIPT_STATUSES } from '../../core/receipt-words.ts';
import { NextCursor, cursorQuery } from '../../http/cursor.ts';
import { type RouteDescription, jsonResponse } from '../../http/describe.ts';
import { ACTIVITY_CSV_HEAD } from '../activity-schema.ts';
import { DecimalText, Time } from '../api-key-schema.ts';
import { ReceiptLine } from '../receipt-line-schema.ts';
import {
  DAYS_HEAD,
  DAYS_SAMPLE,
  RANGE,
  RECEIPT,
  RECEIPT_SAMPLE,
  Receipt,
  ReceiptResponse,
  jsonOrCsv,
} from '../usage-schema.ts';

const OF_REQUEST = {
  ...RANGE,
  account: z
    .string()
    .max(200)
    .optional()
    .describe('Only this account: an id, a name or a wallet address.'),
  model: z.string().max(200).optional().describe('Only this model.'),
  engine: z.string().max(200).optional().describe('Only this engine.'),
};

export const RequestsQuery = z.object({
  ...OF_REQUEST,
  key: z.string().max(100).optional().describe('Only this API key.'),
  kind: z.enum(RECEIPT_KINDS).optional().describe('Only requests of this kind.'),
  status: z.enum(RECEIPT_STATUSES).optional().describe('Only requests with this status.'),
  minUsd: z
    .string()
    .regex(/^\d{1,9}(?:\.\d{1,9})?$/, 'Must be an amount such as 0.50')
    .optional()
    .describe('Only requests with at least this cost, USD and daily credit together.'),
  tag: z
    .string()
    .min(1)
    .max(200)
    .optional()
    .describe('Only requests with this tag and `tagValue`.'),
  tagValue: z.string().max(600).optional().describe('Value of the `tag`; default: empty.'),
  format: z
    .enum(['json', 'csv'])
    .optional()
    .describe('`csv` downloads all rows, newest first, as does the header `Accept: text/csv`.'),
  ...cursorQuery(),
});

const RequestItem = Receipt.extend({
  accountId: z.string().describe('Id of the account.'),
  accountName: z.string().describe('Name of the account; empty if it no longer exists.'),
  supplierUsd: DecimalText.nullable().describe(
    'Cost at the `cost` prices of the replica; null without them.',
  ),
});

export type RequestsResponse = z.infer<typeof RequestsResponse>;
const RequestsResponse = z
  .object({
    ...DAYS_HEAD,
    data: z
      .array(RequestItem)
      .describe('Newest first. A page before the last can be short or empty.'),
    nextCursor: NextCursor,
  })
  .meta({ id: 'OperatorRequests' });

export const REQUESTS_CSV_HEAD = `account_id,${ACTIVITY_CSV_HEAD},supplier_usd`;

export const OPERATOR_REQUESTS: RouteDescription = {
  tag: 'Operator',
  summary: 'List the requests of all accounts',
  about: 'The receipts of all accounts, newest first. Rejected requests are in `/admin/failures`.',
  query: RequestsQuery,
  response: jsonOrCsv(
    'Receipts, as JSON pages or as one CSV file of the whole range.',
    RequestsResponse,
    {
      ...DAYS_SAMPLE,
      data: [
        {
          ...RECEIPT_SAMPLE,
          accountId: 'acct_019aa3f1c0de',
          accountName: 'ada@example.com',
          supplierUsd: '0.0000',
        },
      ],
      nextCursor: null,
    },
    `${REQUESTS_CSV_HEAD}\r\n`,
  ),
};

export const FailuresQuery = z.object({
  ...OF_REQUEST,
  code: z.string().max(100).optional().describe('Only this error code.'),
  ...cursorQuery(),
});

const FailureItem = z.object({
  requestId: z.string().describe('The `x-request-id` of the response.'),
  createdAt: Time.describe('Start of the request; ISO 8601, UTC.'),
  accountId: z.string().nullable().describe('Id of the account; null for an anonymous request.'),
  accountName: z.string().describe('Name of the account; empty without one.'),
  route: z.string().describe('Method and path.'),
  model: z.string().nullable().describe('Id of the model, if it was known.'),
  engine: z.string().nullable().describe('Engine or node of the last try.'),
  status: z.number().int().describe('Status of the response; 499: the caller disconnected.'),
  code: z.string().nullable().describe('Error code; null if another try has succeeded.'),
  message: z.string().nullable().describe('Error message that the caller received.'),
  tries: z.number().int().describe('Number of recorded tries.'),
  tookMs: z.number().int().describe('Duration of the request in milliseconds.'),
});

export type FailuresResponse = z.infer<typeof FailuresResponse>;
const FailuresResponse = z
  .object({
    ...DAYS_HEAD,
    data: z
      .array(FailureItem)
      .describe('Newest first. A page before the last can be short or empty.'),
    nextCursor: NextCursor,
  })
  .meta({ id: 'OperatorFailures' });

export const OPERATOR_FAILURES: RouteDescription = {
  tag: 'Operator',
  summary: 'List failed and retried requests',
  about:
    'Requests of all accounts that failed, were tried more than once, or whose caller disconnected. `/admin/requests/{id}` explains one of them.',
  query: FailuresQuery,
  response: jsonResponse('Records, newest first.', FailuresResponse, {
    ...DAYS_SAMPLE,
    data: [
      {
        requestId: RECEIPT_SAMPLE.requestId,
        createdAt: RECEIPT_SAMPLE.createdAt,
        accountId: 'acct_019aa3f1c0de',
        accountName: 'ada@example.com',
        route: 'POST /chat/completions',
        model: 'atlas-24b',
        engine: 'rack1',
        status: 500,
        code: 'INFERENCE_FAILED',
        message: 'The engine could not run the request',
        tries: 3,
        tookMs: 412,
      },
    ],
    nextCursor: null,
  }),
};

const Try = z.object({
  engine: z.string().describe('The engine; for blockchain RPC the node.'),
  target: z.string().describe("The engine's name of the model; for blockchain RPC the network."),
  startedAt: Time.describe('Start of the try; ISO 8601, UTC.'),
  tookMs: z.number().int().describe('Duration in milliseconds.'),
  status: z
    .number()
    .int()
    .nullable()
    .describe('HTTP status of the engine; null without a response.'),
  result: z
    .string()
    .describe('Class of the failure, such as `timeout` or `refused`; `ok`: success.'),
  detail: z.string().describe('Message of Farebox about the failure.'),
  words: z
    .string()
    .describe('Error message of the engine, without credentials and without text of the request.'),
});

export type ExplainedRequest = z.infer<typeof ExplainedRequest>;
const ExplainedRequest = z.object({
  requestId: z.string().describe('The `x-request-id` of the response.'),
  createdAt: Time.describe('Start of the request; ISO 8601, UTC.'),
  account: z
    .object({
      id: z.string().describe('Id of the account.'),
      name: z.string().describe('Name of the account.'),
      plan: z.string().describe('Present plan of the account.'),
    })
    .nullable()
    .describe('Null for an anonymous request.'),
  apiKey: z
    .object({
      id: z.string().describe('Id of the key.'),
      description: z.string().describe('Description of the key.'),
    })
    .nullable()
    .describe('Null for a wallet and for an anonymous request.'),
  route: z
    .string()
    .nullable()
    .describe('Method and path; null if the request succeeded at the first try.'),
  kind: z.string().nullable().describe('Kind of a sold request; null if nothing was sold.'),
  model: z.string().nullable().describe('Id of the model; for blockchain RPC the network.'),
  engine: z.string().nullable().describe('The engine of the response, or of the last try.'),
  parameters: z
    .record(z.string(), z.union([z.string(), z.number()]))
    .describe('Parameters of a failed or retried request, never its prompt.'),
  prompt: z
    .string()
    .nullable()
    .describe('Beginning of the body, only if `log.failedPrompts` was on; otherwise null.'),
  tries: z.array(Try).describe('Tries in their order; empty if no try failed.'),
  response: z
    .object({
      status: z
        .number()
        .int()
        .nullable()
        .describe('Status that the caller received; 499: it disconnected; null: unknown.'),
      code: z.string().nullable().describe('Error code that the caller received.'),
      message: z.string().nullable().describe('Error message that the caller received.'),
      cause: z.string().nullable().describe('Internal reason, which the caller did not receive.'),
      tookMs: z.number().int().describe('Duration of the request in milliseconds.'),
    })
    .describe('The response to the caller.'),
  charge: z
    .object({
      usd: DecimalText.describe('Charged USD.'),
      diem: DecimalText.describe('Charged daily credit.'),
      reserved: DecimalText.nullable().describe('The hold at admission; null without one.'),
      why: z.string().describe('Reason of the charge, or of its absence.'),
    })
    .describe('The charge.'),
  supplier: z
    .object({
      usd: DecimalText.describe('Cost in USD.'),
      lines: z.array(ReceiptLine).describe('Each kind of work with its quantity and cost.'),
    })
    .nullable()
    .describe('Cost at the `cost` prices of the replica; null if it has none, or for a failure.'),
  receipt: ReceiptResponse.nullable().describe('The receipt; null if nothing was sold.'),
  nextStep: z
    .object({
      operator: z.string().describe('Next step of the operator.'),
      caller: z.string().nullable().describe('Next step of the caller; null after a success.'),
    })
    .describe('Next steps.'),
});

export type ExplainedResponse = z.infer<typeof ExplainedResponse>;
const ExplainedResponse = z
  .object({ data: ExplainedRequest.describe('The explained request.') })
  .meta({ id: 'ExplainedRequest' });

export const EXPLAIN_REQUEST: RouteDescription = {
  tag: 'Operator',
  summary: 'Explain a request',
  about:
    'Caller, parameters, tries, response, charge and next step of one request. Failed and retried requests are recorded for `retention.failureDays`.',
  parameters: RECEIPT.parameters ?? [],
  response: jsonResponse('The request.', ExplainedResponse, {
    data: {
      requestId: RECEIPT_SAMPLE.requestId,
      createdAt: RECEIPT_SAMPLE.createdAt,
      account: { id: 'acct_019aa3f1c0de', name: 'ada@example.com', plan: 'paid' },
      apiKey: { id: 'key_019aa3f1c0de', description: 'production' },
      route: 'POST /chat/completions',
      kind: 'chat',
      model: 'atlas-24b',
      engine: 'rack1',
      parameters: { body: '412 bytes', model: 'atlas-24b', messages: '2 items', stream: 'false' },
      prompt: null,
      tries: [
        {
          engine: 'rack1',
          target: 'atlas-24b-q4',
          startedAt: RECEIPT_SAMPLE.createdAt,
          tookMs: 31,
          status: 500,
          result: 'failed',
          detail: 'HTTP 500',
          words: 'CUDA out of memory',
        },
      ],
      response: {
        status: 500,
        code: 'INFERENCE_FAILED',
        message: 'The engine could not run the request',
        cause: 'HTTP 500',
        tookMs: 412,
      },
      charge: {
        usd: '0.0000',
        diem: '0.0000',
        reserved: '0.0002',
        why: 'Not charged: the hold was released, because the request failed',
      },
      supplier: null,
      receipt: null,
      nextStep: {
        operator:
          'Read the log of the engine rack1 at the time of the try: it reported an internal error',
        caller: 'Retry; nothing was charged.',
      },
    },
  }),
  refusals: ['REQUEST_ID_NOT_FOUND'],
};
