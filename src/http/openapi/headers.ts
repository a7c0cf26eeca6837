/**
 * All response headers. The document replaces `svc` by the name of the service. `commonHeaders` describes
 * the headers that many operations share.
 */

export interface HeaderInfo {
  readonly name: string;
  readonly about: string;
  readonly example: string;
  /** Present on every response of its group. */
  readonly always?: true;
}

function always(name: string, about: string, example: string): HeaderInfo {
  return { name, about, example, always: true };
}

function some(name: string, about: string, example: string): HeaderInfo {
  return { name, about, example };
}

const REQUEST_ID = '019aa3f1c0de4b7e8c1d2e3f4a5b6c7d';

export const HEADER_GROUPS = {
  standard: [
    always('x-request-id', 'Id of the request and of its receipt, 32 characters.', REQUEST_ID),
    always(
      'CF-RAY',
      'Id for support: the `CF-RAY` of a proxy, otherwise the request id.',
      REQUEST_ID,
    ),
    always(
      'x-svc-version',
      'Revision of the server, equal to `info.version` of this document.',
      '20261121.000000',
    ),
    always(
      'x-content-type-options',
      'Disables the detection of content types in browsers.',
      'nosniff',
    ),
    some('x-svc-timestamp', 'Server time, if the operator enabled it.', '2026-11-21T04:00:00.000Z'),
    some(
      'x-svc-request-timestamp-ms',
      'Value that the client sent in the header with this name.',
      '1795233600000',
    ),
    some(
      'x-svc-middleface-version',
      'Value that the client sent in the header with this name.',
      '1.0.0',
    ),
    some(
      'x-svc-mobile-version',
      'Value that the client sent in the header with this name.',
      '1.0.0',
    ),
    some('vary', 'Request headers on which the response depends.', 'Accept-Encoding'),
    some('access-control-allow-origin', 'CORS: origin that may read the response.', '*'),
    some('access-control-expose-headers', 'CORS: headers that a page may read.', 'x-request-id'),
  ],
  error: [
    some('request-id', 'On `/messages`: equal to `x-request-id`.', REQUEST_ID),
    always('x-svc-host-name', 'Host that sent the response, for support.', 'api-1'),
    some('retry-after', 'Seconds to wait before a retry.', '30'),
    some('x-should-retry', '`false` if the same request cannot succeed.', 'false'),
    some('x-retry-count', 'Number of further engines that were called.', '1'),
    some('accept-encoding', 'On a 415 because of `Content-Encoding`: supported encodings.', 'gzip'),
  ],
  id: [always('x-request-id', 'Id of the request, 32 characters.', REQUEST_ID)],
  'rpc-limit': [
    some('x-ratelimit-limit', 'JSON-RPC, on a 429: maximum requests per minute.', '100'),
    some('x-ratelimit-remaining', 'JSON-RPC, on a 429: remaining requests.', '0'),
    some(
      'x-ratelimit-reset',
      'JSON-RPC, on a 429: Unix time of the next minute, in seconds.',
      '1795233660',
    ),
  ],
  allow: [always('allow', 'Allowed methods of the path.', 'GET, POST')],
  authenticate: [some('www-authenticate', 'Supported authentication schemes.', 'Bearer')],
  model: [
    always('x-svc-model-id', 'Id of the model that served the request.', 'atlas-24b'),
    always('x-svc-model-name', 'Display name of the model.', 'Atlas 24B'),
    some('x-svc-model-router', 'Engine that ran the model.', 'rack1'),
    some(
      'x-svc-model-deprecation-warning',
      'Deprecated model: announcement of the removal.',
      'The model is retired on 2027-01-31',
    ),
    some('x-svc-model-deprecation-date', 'Deprecated model: date of the removal.', '2027-01-31'),
    some('x-retry-count', 'Number of further engines that were called.', '1'),
    some('x-svc-is-blurred', 'The engine blurred the image.', 'false'),
    some(
      'x-svc-is-content-violation',
      'The engine reports that the content violates its policy.',
      'false',
    ),
    some(
      'x-svc-is-adult-model-content-violation',
      'The engine reports that the content violates the policy of adult models.',
      'false',
    ),
    some('x-svc-contains-minor', 'The engine reports that the image shows a minor.', 'false'),
    some('x-svc-control-instance', 'Control instance that the engine reports.', 'c1'),
    some('x-auth-refreshed', 'A credential was refreshed during the request.', 'true'),
  ],
  rate: [
    some('x-ratelimit-limit-requests', 'Maximum requests in the window.', '75'),
    some('x-ratelimit-remaining-requests', 'Remaining requests in the window.', '74'),
    some('x-ratelimit-reset-requests', 'End of the window, Unix time in seconds.', '1795233660'),
    some('x-ratelimit-limit-tokens', 'Maximum tokens per minute.', '750000'),
    some('x-ratelimit-remaining-tokens', 'Remaining tokens in the minute.', '748211'),
    some('x-ratelimit-reset-tokens', 'Seconds until the token limit resets.', '42'),
    some('x-ratelimit-type', 'Scope of the limit: `user`, `api_key` or `global`.', 'user'),
  ],
  balance: [
    some('x-svc-balance-usd', 'USD credit before the request.', '12.345678'),
    some('x-svc-balance-diem', 'Daily credit before the request.', '3.000000'),
    some('x-balance-remaining', 'Wallets: USD credit after the request.', '12.340000'),
  ],
  rpc: [
    always('x-svc-rpc-credits', 'Credits charged.', '20'),
    always('x-svc-rpc-cost-usd', 'Charge for the credits, in USD.', '0.00001250'),
    some('x-retry-count', 'Number of further nodes that were called.', '1'),
  ],
  page: [
    always('x-pagination-limit', 'Items per page.', '50'),
    always('x-pagination-page', 'Number of the page, from 1.', '1'),
    always('x-pagination-total', 'Total number of items.', '120'),
    always('x-pagination-total-pages', 'Total number of pages.', '3'),
  ],
  download: [
    some('content-disposition', 'File name of a download.', 'attachment; filename="usage.csv"'),
  ],
  range: [
    some('accept-ranges', 'Range requests are supported.', 'bytes'),
    some('content-range', 'Range of the bytes, and size of the file.', 'bytes 0-1023/52428800'),
    some('etag', 'Version of the file, for `If-Range`.', '"0b6f0c2e-4a52-4c0e-9a3c-5d4f6b1c7e10"'),
  ],
  session: [
    some(
      'set-cookie',
      'Starts or ends a browser session.',
      'svc_session=; Max-Age=0; Path=/; HttpOnly; SameSite=Strict',
    ),
  ],
  'no-store': [some('cache-control', 'Caching of the response.', 'no-store')],
  'page-security': [
    always(
      'content-security-policy',
      'Content that a browser may run and load.',
      "default-src 'none'",
    ),
    always('referrer-policy', 'Links do not send a `Referer`.', 'no-referrer'),
  ],
  message: [
    some('request-id', 'Equal to `x-request-id`; SDKs of the Messages API read it.', REQUEST_ID),
  ],
  mcp: [
    some(
      'mcp-session-id',
      'On `initialize`: id of the client, with which it can cancel its calls.',
      '8f14e45f-ceea-467f-a1d6-1f2b3c4d5e6f',
    ),
  ],
  stream: [
    some('cache-control', 'Streams are not cached.', 'no-cache'),
    some('x-accel-buffering', 'On streams: disables buffering in proxies.', 'no'),
  ],
  payment: [
    some(
      'www-authenticate',
      'Challenge of the Machine Payments Protocol, if the operator enabled it.',
      'Payment id="…", realm="api.example.com", method="evm", intent="charge", request="…"',
    ),
    some(
      'Payment-Receipt',
      'Receipt of a payment by the Machine Payments Protocol, base64url of JSON.',
      'eyJtZXRob2QiOiJldm0ifQ',
    ),
    some('cache-control', 'Caching of a response with a challenge or a receipt.', 'private'),
    some(
      'PAYMENT-REQUIRED',
      'Payment options for x402 clients, base64 of JSON.',
      'eyJ4NDAyVmVyc2lvbiI6Mn0=',
    ),
    some(
      'PAYMENT-RESPONSE',
      'Settlement of the payment, base64 of JSON.',
      'eyJzdWNjZXNzIjp0cnVlfQ==',
    ),
    some('X-PAYMENT-RESPONSE', 'Older name of `PAYMENT-RESPONSE`.', 'eyJzdWNjZXNzIjp0cnVlfQ=='),
    some(
      'PAYMENT-CLAIM',
      'On a pending payment: secret with which a retry proves that it is the same request.',
      'q3Jz0hXw7cM5b1uYk9eTnVfR2sAoLdP6iGxZ8mKtWQE',
    ),
  ],
  replay: [
    some(
      'idempotent-replayed',
      '`true` if this is the stored response of an earlier request with the same `Idempotency-Key`; it is free.',
      'true',
    ),
  ],
} as const satisfies Readonly<Record<string, readonly HeaderInfo[]>>;

/** Headers of HTTP, which OpenAPI does not describe. */
export const PROTOCOL_HEADERS: ReadonlySet<string> = new Set([
  'connection',
  'content-encoding',
  'content-length',
  'content-type',
  'date',
  'keep-alive',
  'transfer-encoding',
]);

export interface HeaderReference {
  readonly $ref: string;
}

/** A group of headers of the table. */
export type HeaderGroup = keyof typeof HEADER_GROUPS;

/** With `sometimes` every header is optional. */
export function headerReferences(
  groups: readonly HeaderGroup[],
  when: 'as declared' | 'sometimes' = 'as declared',
): Record<string, HeaderReference> {
  const headers = groups.flatMap((group) => HEADER_GROUPS[group]);
  return Object.fromEntries(
    headers.map(({ name, always }) => {
      const component = always === true && when === 'sometimes' ? name + SOMETIMES : name;
      return [name, { $ref: `#/components/headers/${component}` }];
    }),
  );
}

interface HeaderComponent {
  readonly description: string;
  readonly required?: true;
  readonly schema: { readonly type: 'string' };
  readonly example: string;
}

/** Suffix of the optional component of a header that is otherwise always present. */
const SOMETIMES = '.sometimes';

export function headerComponents() {
  const components: Record<string, HeaderComponent> = {};
  for (const { name, about, example, always } of Object.values(HEADER_GROUPS).flat()) {
    const component = { description: about, schema: { type: 'string' as const }, example };
    components[name] = always === true ? { ...component, required: true } : component;
    if (always === true) components[name + SOMETIMES] = component;
  }
  return components;
}

/** Groups of headers that belong to many operations. */
const COMMON_GROUPS = {
  every: { description: 'On every response.', groups: ['standard'] },
  callers: {
    description: 'On responses to authenticated callers, if a balance or limit applies.',
    groups: ['balance', 'rate'],
  },
  refusals: { description: 'On every error response.', groups: ['error', 'no-store'] },
  pricedRefusals: {
    description: 'On error responses of priced operations, if the model is known.',
    groups: ['model', 'rpc'],
  },
} as const satisfies Readonly<
  Record<string, { readonly description: string; readonly groups: readonly HeaderGroup[] }>
>;

/** Returns headers that responses have in addition to those of their operation. */
export function commonHeaders(): Readonly<Record<keyof typeof COMMON_GROUPS, CommonHeaders>> {
  const entries = Object.entries(COMMON_GROUPS).map(([name, { description, groups }]) => [
    name,
    {
      description,
      // The model can be unknown.
      headers: headerReferences(groups, name === 'pricedRefusals' ? 'sometimes' : 'as declared'),
    },
  ]);
  return Object.fromEntries(entries) as never; // has one entry per group
}

export interface CommonHeaders {
  readonly description: string;
  readonly headers: Readonly<Record<string, HeaderReference>>;
}
