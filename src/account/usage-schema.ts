/** Schemas and descriptions of `/usage`: sums by day, model and key, and the receipt of a request. */
import * as z from 'zod';
import { RECEIPT_KINDS, RECEIPT_STATUSES } from '../core/receipt-words.ts';
import {
  type ResponseDescription,
  type RouteDescription,
  jsonContent,
  jsonResponse,
  textContent,
} from '../http/describe.ts';
import { pageQuery } from '../http/read-request.ts';
import { LINES_SAMPLE, ReceiptLine } from './receipt-line-schema.ts';

export const Day = z
  .string()
  .regex(/^\d{4}-\d{2}-\d{2}$/, 'Must be a day such as 2026-11-21')
  .refine((text) => isDay(text), 'Must be a day of the calendar')
  .describe('A UTC day, `YYYY-MM-DD`.');

/** Whether the day exists; `Date.parse` would accept 31 February. */
export function isDay(text: string): boolean {
  const ms = Date.parse(text);
  return !Number.isNaN(ms) && new Date(ms).toISOString().startsWith(text.slice(0, 10));
}

export const RANGE = {
  from: Day.optional().describe('First day; default: 29 days before `to`.'),
  to: Day.optional().describe('Last day; default: today. At most 366 days in all.'),
};

export const OF_MODEL = {
  model: z.string().max(200).optional().describe('Only this model.'),
  key: z
    .string()
    .max(100)
    .optional()
    .describe('Only this API key. A key that is not an ADMIN key sees its own requests only.'),
};

export const DAYS_HEAD = {
  object: z.literal('list').describe('Kind of the object.'),
  from: Day.describe('First day, UTC.'),
  to: Day.describe('Last day, UTC.'),
};

export const DAYS_SAMPLE = { object: 'list', from: '2026-10-23', to: '2026-11-21' };

/** The response of a list that is also available as one CSV file; `csv` is an example. */
export function jsonOrCsv(
  about: string,
  schema: z.ZodType,
  example: unknown,
  csv: string,
): ResponseDescription {
  const content = [...jsonContent(schema, example), textContent('text/csv', csv)];
  return { status: 200, about, headers: ['download'], content };
}

const MAX_ROWS = 1_000;

export type UsageQuery = z.infer<typeof UsageQuery>;
export const UsageQuery = z.object({
  ...RANGE,
  ...OF_MODEL,
  tag: z.string().min(1).max(200).optional().describe('Only requests with this tag in `metadata`.'),
  tagValue: z.string().max(600).optional().describe('Only this value of the `tag`.'),
  format: z
    .enum(['json', 'csv'])
    .optional()
    .describe('`csv` downloads all rows, as does the header `Accept: text/csv`.'),
  ...pageQuery({ max: MAX_ROWS, usual: MAX_ROWS }),
});

export const Cost = z.object({
  usd: z.number().describe('USD, exact to nine decimals.'),
  diem: z.number().describe('Daily credit.'),
});
const Count = z.number().int();
export const Counts = {
  requests: Count.describe('Admitted requests.'),
  errors: Count.describe('Requests that failed or expired.'),
  promptTokens: Count.describe('Tokens of prompts, including cached tokens.'),
  completionTokens: Count.describe('Tokens of completions, including reasoning.'),
};
export const Sums = { ...Counts, cost: Cost.describe('Sum of the costs.') };

const UsageRow = z
  .object({
    date: Day,
    model: z.string().describe('Id of the model; for blockchain RPC the network.'),
    apiKeyId: z.string().nullable().describe('Null for a wallet.'),
    tagValue: z.string().optional().describe('Value of the requested `tag`.'),
    ...Sums,
  })
  .meta({ id: 'UsageRow' });

const UsageTagRow = z
  .object({
    tag: z.string().describe('Name of the tag in `metadata`.'),
    value: z.string().describe('Value of the tag.'),
    ...Sums,
  })
  .meta({ id: 'UsageTagRow' });

export type UsageResponse = z.infer<typeof UsageResponse>;
export const UsageResponse = z
  .object({
    ...DAYS_HEAD,
    totals: z.object(Sums).describe('Sums of all matching rows, on all pages.'),
    data: z.array(UsageRow).describe('Newest day first.'),
  })
  .meta({ id: 'Usage' });

export type UsageTagsResponse = z.infer<typeof UsageTagsResponse>;
export const UsageTagsResponse = z
  .object({
    ...DAYS_HEAD,
    data: z.array(UsageTagRow).describe('By tag; the most expensive value first.'),
  })
  .meta({ id: 'UsageTags' });

const CSV_SUMS = 'requests,prompt_tokens,completion_tokens,usd,diem';
/** Columns of `UsageRow`. */
export const CSV_HEAD = `date,model,api_key_id,${CSV_SUMS}`;
/** With a requested tag. */
export const CSV_HEAD_OF_TAG = `${CSV_HEAD},tag_value`;
/** Columns of `UsageTagRow`. */
export const CSV_HEAD_OF_TAGS = `tag,value,${CSV_SUMS}`;

const SURCHARGE = {
  type: 'object',
  required: ['count', 'usd'],
  additionalProperties: false,
  properties: {
    count: { type: 'integer', description: 'Charged number.' },
    usd: { type: 'string', description: 'Cost in USD as decimal text.' },
  },
} as const;

/** Describes the JSON that the ledger has stored; it is not validated again. */
const EXTRAS = {
  additionalProperties: false,
  properties: {
    web_search: { ...SURCHARGE, description: 'Web searches of this server.' },
    web_scraping: { ...SURCHARGE, description: 'Web pages that this server has read.' },
    x_search: { ...SURCHARGE, description: 'Searches of the engine.' },
    engine_calls: { type: 'integer', description: 'Calls of the engine, if more than one.' },
    images: { type: 'integer', description: 'Generated images.' },
    inputImages: { type: 'integer', description: 'Images of an edit request.' },
    audioSeconds: { type: 'number', description: 'Seconds of the recording.' },
    characters: { type: 'integer', description: 'Speech: characters of the text.' },
    searches: { type: 'integer', description: 'Reranking: searches of up to 100 documents.' },
    model: { type: 'string', description: 'Removed background: the model that was used.' },
    credits: { type: 'integer', description: 'Blockchain RPC: credits charged.' },
    items: { type: 'integer', description: 'Blockchain RPC: items of the batch.' },
    sha256: {
      type: 'array',
      items: { type: 'string' },
      description:
        'Media: SHA-256 in hex of each sold file, in the order of the response; for a transcription, of the text.',
    },
    quoteUsd: { type: 'string', description: 'Video: quoted price in USD as decimal text.' },
    refundedUsd: { type: 'string', description: 'Video: refund in USD as decimal text.' },
    reason: { type: 'string', description: 'Video: error code of the failure.' },
  },
} as const;

export type Receipt = z.infer<typeof Receipt>;
export const Receipt = z
  .object({
    object: z.literal('receipt').describe('Kind of the object.'),
    requestId: z.string().describe('The header `x-request-id` of the response.'),
    createdAt: z.string().describe('Time of admission; ISO 8601, UTC.'),
    apiKeyId: z.string().nullable().describe('Null for a wallet.'),
    kind: z
      .string()
      .describe('Kind of the request; `cutout` is a removed background.')
      .meta({ enum: [...RECEIPT_KINDS] }),
    model: z.string().describe('Id of the model; for blockchain RPC the network.'),
    status: z
      .string()
      .describe(
        'completed; aborted (the caller disconnected); failed (free, except for text that was already sent); expired (ended by the server).',
      )
      .meta({ enum: [...RECEIPT_STATUSES] }),
    router: z.string().nullable().describe('The engine of the response.'),
    attempts: Count.describe('Number of called engines.'),
    tokens: z
      .object({
        prompt: Count.describe('Prompt tokens, including cached and cache-write tokens.'),
        completion: Count.describe('Completion tokens, including reasoning tokens.'),
        cached: Count.describe("Prompt tokens read from the engine's cache."),
        cacheWrite: Count.describe("Prompt tokens written to the engine's cache."),
        reasoning: Count.describe('Reasoning tokens.'),
        countedBy: z
          .string()
          .describe(
            'engine; bytes (four bytes of text per token, if the engine did not count); none. Older receipts can have `deltas`.',
          )
          .meta({ enum: ['engine', 'bytes', 'deltas', 'none'] }),
      })
      .describe('Counted tokens; zeros for kinds that are not sold by tokens.'),
    priceVersion: z.string().describe('Version of the prices.'),
    cost: Cost.describe('Charged amounts.'),
    reserved: z
      .number()
      .nullable()
      .describe('Hold at admission, USD and daily credit together; null if unknown.'),
    latencyMs: Count.describe('Milliseconds from admission to the end of the response.'),
    firstTokenMs: Count.nullable().describe(
      'Milliseconds to the first byte of the engine; null without one.',
    ),
    extras: z
      .record(z.string(), z.unknown())
      .describe('Other counts and prices; members depend on the kind.')
      .meta(EXTRAS),
    metadata: z
      .record(z.string(), z.string())
      .describe('Tags of the request; values that were not text are JSON.'),
  })
  .meta({ id: 'Receipt' });

export type ReceiptResponse = z.infer<typeof ReceiptResponse>;
export const ReceiptResponse = Receipt.extend({
  unitPrices: z
    .record(z.string(), z.unknown())
    .nullable()
    .describe(
      'The configured prices of `priceVersion` in USD, for tokens per million; null if they are no longer known.',
    ),
  listPrices: z
    .record(z.string(), z.unknown())
    .optional()
    .describe('The list prices at that time, if the account had its own prices.'),
  lines: z
    .array(ReceiptLine)
    .nullable()
    .describe(
      'Quantity, price and amount of each priced kind. The sum of `usd` is the cost. Null if the prices are no longer known.',
    ),
}).meta({ id: 'ReceiptWithPrices' });

const SignedPayload = z
  .object({
    format: z.enum(['jws', 'eip712']).describe('`jws`: the signature contains the claims.'),
    payload: z
      .record(z.string(), z.unknown())
      .optional()
      .describe('The claims of `eip712`, by the offer-receipt extension of x402.'),
    signature: z.string().describe('A compact JWS (EdDSA), or 65 bytes in hex (EIP-712).'),
  })
  .meta({ id: 'SignedPayload' });

export type SignedReceipt = z.infer<typeof SignedReceipt>;
export const SignedReceipt = z
  .object({
    object: z.literal('signed_receipt').describe('Always `signed_receipt`.'),
    usage: z
      .object({
        ...Receipt.pick({
          requestId: true,
          createdAt: true,
          kind: true,
          model: true,
          status: true,
          tokens: true,
          priceVersion: true,
          extras: true,
        }).shape,
        unitPrices: ReceiptResponse.shape.unitPrices,
        listPrices: ReceiptResponse.shape.listPrices,
        lines: ReceiptResponse.shape.lines,
        cost: z
          .object({
            usd: z.string().describe('USD, decimal text.'),
            diem: z.string().describe('Daily credit, decimal text.'),
          })
          .describe('Charged amounts.'),
      })
      .describe('Usage and cost of the request.'),
    receipts: z
      .array(SignedPayload)
      .describe(
        'The same receipt in two formats. Its URL ends with the SHA-256 of the canonical JSON (RFC 8785) of `usage`.',
      ),
    keys: z.string().describe('URL of the public keys.'),
  })
  .meta({ id: 'SignedReceipt' });

export const COUNTS_SAMPLE = {
  requests: 12,
  errors: 0,
  promptTokens: 3400,
  completionTokens: 900,
};
export const SUMS_SAMPLE = { ...COUNTS_SAMPLE, cost: { usd: 0.0021, diem: 0 } };
const REQUEST_ID = '019aa3f1c0de4b7e8c1d2e3f4a5b6c7d';

export const USAGE: RouteDescription = {
  tag: 'Usage and billing',
  summary: 'Usage by day, model and key',
  about:
    'A wallet and an ADMIN key see the account; another key sees its own requests. With `tag` the rows are also grouped by the value of this tag.',
  query: UsageQuery,
  response: {
    ...jsonOrCsv(
      'One row for each day, model and key, as JSON pages or as one CSV file.',
      UsageResponse,
      {
        ...DAYS_SAMPLE,
        totals: SUMS_SAMPLE,
        data: [
          { date: '2026-11-21', model: 'atlas-24b', apiKeyId: 'key_019aa3f1c0de', ...SUMS_SAMPLE },
        ],
      },
      `${CSV_HEAD}\r\n2026-11-21,atlas-24b,key_019aa3f1c0de,12,3400,900,0.002100000,0.000000000\r\n`,
    ),
    someHeaders: ['page'],
  },
};

export const USAGE_TAGS: RouteDescription = {
  tag: 'Usage and billing',
  summary: 'Usage by tag',
  about:
    'Sums of the requests with a tag, which is a member of `metadata`, such as a user or a project. A request with several tags counts for each. Stored as long as receipts.',
  query: UsageQuery,
  response: {
    ...jsonOrCsv(
      'One row for each tag and value, as JSON pages or as one CSV file.',
      UsageTagsResponse,
      { ...DAYS_SAMPLE, data: [{ tag: 'project', value: 'search', ...SUMS_SAMPLE }] },
      `${CSV_HEAD_OF_TAGS}\r\nproject,search,12,3400,900,0.002100000,0.000000000\r\n`,
    ),
    someHeaders: ['page'],
  },
};

export const RECEIPT_SAMPLE: Receipt = {
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
  reserved: 0.0002,
  latencyMs: 412,
  firstTokenMs: 88,
  extras: {},
  metadata: { project: 'search' },
};

export const RECEIPT: RouteDescription = {
  tag: 'Usage and billing',
  summary: 'Get the receipt of a request',
  parameters: [
    {
      name: 'id',
      in: 'path',
      about: 'The `x-request-id` of a response, or the id of a chat completion.',
      example: REQUEST_ID,
    },
  ],
  response: jsonResponse('Usage and cost of the request.', ReceiptResponse, {
    ...RECEIPT_SAMPLE,
    unitPrices: { input: '0.30', output: '1.20' },
    lines: LINES_SAMPLE,
  }),
  refusals: ['REQUEST_ID_NOT_FOUND'],
};

const SIGNED_SAMPLE: SignedReceipt = {
  object: 'signed_receipt',
  usage: {
    requestId: REQUEST_ID,
    createdAt: RECEIPT_SAMPLE.createdAt,
    kind: 'chat',
    model: 'atlas-24b',
    status: 'completed',
    tokens: RECEIPT_SAMPLE.tokens,
    priceVersion: RECEIPT_SAMPLE.priceVersion,
    unitPrices: { input: '0.30', output: '1.20' },
    lines: LINES_SAMPLE,
    cost: { usd: '0.000011100', diem: '0.000000000' },
    extras: {},
  },
  receipts: [
    { format: 'jws', signature: 'eyJhbGciOiJFZERTQSIsImtpZCI6ImRpZDprZXk6ejZNay4uLiJ9.eyJ2….c2ln' },
    {
      format: 'eip712',
      payload: {
        version: 1,
        network: 'eip155:8453',
        resourceUrl: `https://api.example.com/api/v1/usage/${REQUEST_ID}?sha256=9f86d081…`,
        payer: '0x52908400098527886e0f7030069857d2e4169ee7',
        issuedAt: 1_795_233_600,
        transaction: '',
      },
      signature: '0x5f…1b',
    },
  ],
  keys: 'https://api.example.com/.well-known/did.json',
};

export const SIGNED_RECEIPT: RouteDescription = {
  tag: 'Usage and billing',
  summary: 'Get the signed receipt of a request',
  about:
    'Usage and cost of the request, signed by this service with the offer-receipt extension of x402, for disputes. `farebox verify` and every implementation of the extension can verify it.',
  parameters: RECEIPT.parameters ?? [],
  response: jsonResponse('The receipt, signed twice.', SignedReceipt, SIGNED_SAMPLE),
  refusals: ['REQUEST_ID_NOT_FOUND'],
};
