/**
 * Every response header: its meaning and when it is present. The document replaces `svc` by the
 * name of the service. Headers that many responses have stand in `commonHeaders`.
 */

export interface HeaderInfo {
  readonly name: string;
  readonly about: string;
  readonly example: string;
  /** On every answer of its group. */
  readonly always?: true;
}

/** A header that every answer of its group has. */
function always(name: string, about: string, example: string): HeaderInfo {
  return { name, about, example, always: true };
}

/** A header that some answers of its group have. */
function some(name: string, about: string, example: string): HeaderInfo {
  return { name, about, example };
}

const REQUEST_ID = '019aa3f1c0de4b7e8c1d2e3f4a5b6c7d';

export const HEADER_GROUPS = {
  standard: [
    always(
      'x-request-id',
      'Id of the request, 32 characters; the receipt is found by it.',
      REQUEST_ID,
    ),
    always(
      'CF-RAY',
      'Id for support: the one that a proxy in front gave, else the request id.',
      REQUEST_ID,
    ),
    always(
      'x-svc-version',
      'Revision of the server, the same as `info.version` of this document.',
      '20261121.000000',
    ),
    always('x-content-type-options', 'The content type is meant as it stands.', 'nosniff'),
    some(
      'x-svc-timestamp',
      'Time of the server, when the operator turned it on.',
      '2026-11-21T04:00:00.000Z',
    ),
    some(
      'x-svc-request-timestamp-ms',
      'The time that the client sent under this name.',
      '1795233600000',
    ),
    some('x-svc-middleface-version', 'The version that the client sent under this name.', '1.0.0'),
    some('x-svc-mobile-version', 'The version that the client sent under this name.', '1.0.0'),
    some('vary', 'What the answer depends on.', 'Accept-Encoding'),
    some('access-control-allow-origin', 'For browsers: the origin that may read the answer.', '*'),
    some(
      'access-control-expose-headers',
      'For browsers: the headers that a page may read.',
      'x-request-id',
    ),
  ],
  error: [
    some('request-id', 'On `/messages` the same as `x-request-id`.', REQUEST_ID),
    always('x-svc-host-name', 'The host that refused, for support.', 'api-1'),
    some('retry-after', 'Seconds to wait before another try.', '30'),
    some('x-should-retry', '`false` when the same request cannot succeed.', 'false'),
    some('x-retry-count', 'Further engines that were asked.', '1'),
    some('accept-encoding', 'With a 415 for a `Content-Encoding`: those that are read.', 'gzip'),
  ],
  id: [always('x-request-id', 'Id of the request, 32 characters.', REQUEST_ID)],
  'rpc-limit': [
    some('x-ratelimit-limit', 'Blockchain RPC, with a 429: most requests a minute.', '100'),
    some('x-ratelimit-remaining', 'Blockchain RPC, with a 429: requests that are left.', '0'),
    some(
      'x-ratelimit-reset',
      'Blockchain RPC, with a 429: Unix time of the next minute.',
      '1795233660',
    ),
  ],
  allow: [always('allow', 'Methods of the path.', 'GET, POST')],
  authenticate: [some('www-authenticate', 'How to send credentials.', 'Bearer')],
  model: [
    always('x-svc-model-id', 'The model that answered.', 'atlas-24b'),
    always('x-svc-model-name', 'Its name for people.', 'Atlas 24B'),
    some('x-svc-model-router', 'The engine that ran it.', 'rack1'),
    some(
      'x-svc-model-deprecation-warning',
      'With a deprecated model: what will happen.',
      'The model is retired on 2027-01-31',
    ),
    some('x-svc-model-deprecation-date', 'With a deprecated model: when.', '2027-01-31'),
    some('x-retry-count', 'Further engines that were asked.', '1'),
    some('x-svc-is-blurred', 'The engine blurred the image.', 'false'),
    some(
      'x-svc-is-content-violation',
      'The engine says that the content violates its policy.',
      'false',
    ),
    some(
      'x-svc-is-adult-model-content-violation',
      'The engine says that the content violates the policy of adult models.',
      'false',
    ),
    some('x-svc-contains-minor', 'The engine says that the image shows a minor.', 'false'),
    some('x-svc-control-instance', 'The control instance that the engine names.', 'c1'),
    some('x-auth-refreshed', 'A credential was refreshed during the request.', 'true'),
  ],
  rate: [
    some('x-ratelimit-limit-requests', 'Most requests in the window.', '75'),
    some('x-ratelimit-remaining-requests', 'Requests that are left in the window.', '74'),
    some(
      'x-ratelimit-reset-requests',
      'Unix time in seconds at which the window ends.',
      '1795233660',
    ),
    some('x-ratelimit-limit-tokens', 'Most tokens a minute.', '750000'),
    some('x-ratelimit-remaining-tokens', 'Tokens that are left in the minute.', '748211'),
    some('x-ratelimit-reset-tokens', 'Seconds until the tokens are full again.', '42'),
    some('x-ratelimit-type', 'Whose limit it is: `user`, `api_key` or `global`.', 'user'),
  ],
  balance: [
    some('x-svc-balance-usd', 'USD credit before the request.', '12.345678'),
    some('x-svc-balance-diem', 'Daily credit before the request.', '3.000000'),
    some('x-balance-remaining', 'Wallets: USD credit after the request.', '12.340000'),
  ],
  rpc: [
    always('x-svc-rpc-credits', 'Credits charged.', '20'),
    always('x-svc-rpc-cost-usd', 'What the credits cost.', '0.00001250'),
    some('x-retry-count', 'Further nodes that were asked.', '1'),
  ],
  page: [
    always('x-pagination-limit', 'Items a page.', '50'),
    always('x-pagination-page', 'Page, from 1.', '1'),
    always('x-pagination-total', 'Items in all.', '120'),
    always('x-pagination-total-pages', 'Pages in all.', '3'),
  ],
  download: [
    some(
      'content-disposition',
      'The name of the file, on downloads.',
      'attachment; filename="usage.csv"',
    ),
  ],
  range: [
    some('accept-ranges', 'Ranges of the file can be asked for.', 'bytes'),
    some('content-range', 'Which bytes of how many these are.', 'bytes 0-1023/52428800'),
    some('etag', 'Names the bytes, for `If-Range`.', '"0b6f0c2e-4a52-4c0e-9a3c-5d4f6b1c7e10"'),
  ],
  session: [
    some(
      'set-cookie',
      'Begins or ends the session of a browser.',
      'svc_session=; Max-Age=0; Path=/; HttpOnly; SameSite=Strict',
    ),
  ],
  'no-store': [some('cache-control', 'Whether the answer may be kept.', 'no-store')],
  'page-security': [
    always('content-security-policy', 'What a browser may run and load.', "default-src 'none'"),
    always('referrer-policy', 'Links tell nobody where they were.', 'no-referrer'),
  ],
  message: [
    some('request-id', 'The same as `x-request-id`, where clients of Messages look.', REQUEST_ID),
  ],
  mcp: [
    some(
      'mcp-session-id',
      'Of `initialize`: names the client, so that it can cancel its own calls.',
      '8f14e45f-ceea-467f-a1d6-1f2b3c4d5e6f',
    ),
  ],
  stream: [
    some('cache-control', 'On streams.', 'no-cache'),
    some('x-accel-buffering', 'On streams: tells proxies not to gather it.', 'no'),
  ],
  payment: [
    some(
      'www-authenticate',
      'Where the operator offers it: a challenge of the Machine Payments Protocol.',
      'Payment id="…", realm="api.example.com", method="evm", intent="charge", request="…"',
    ),
    some(
      'Payment-Receipt',
      'base64url JSON, for a payment of the Machine Payments Protocol.',
      'eyJtZXRob2QiOiJldm0ifQ',
    ),
    some('cache-control', 'Of an answer with a challenge or a receipt.', 'private'),
    some(
      'PAYMENT-REQUIRED',
      'base64 JSON of what can be paid, for x402 clients.',
      'eyJ4NDAyVmVyc2lvbiI6Mn0=',
    ),
    some(
      'PAYMENT-RESPONSE',
      'base64 JSON of the settlement of a payment.',
      'eyJzdWNjZXNzIjp0cnVlfQ==',
    ),
    some('X-PAYMENT-RESPONSE', 'The same under its older name.', 'eyJzdWNjZXNzIjp0cnVlfQ=='),
    some(
      'PAYMENT-CLAIM',
      'Beside a payment under way: a secret that marks the retry of this request.',
      'q3Jz0hXw7cM5b1uYk9eTnVfR2sAoLdP6iGxZ8mKtWQE',
    ),
  ],
  replay: [
    some(
      'idempotent-replayed',
      '`true` when an earlier answer with the same `Idempotency-Key` is repeated, free.',
      'true',
    ),
  ],
} as const satisfies Readonly<Record<string, readonly HeaderInfo[]>>;

/** Headers of HTTP itself, which OpenAPI leaves to the protocol. */
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

/** `sometimes`: headers that the groups always have can be missing here. */
export function headerReferences(
  groups: readonly HeaderGroup[],
  when: 'as said' | 'sometimes' = 'as said',
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

/** Marks the component of a header that is always there, for answers that may lack it. */
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

/** Groups that no operation names, each with the answers that carry it. */
const COMMON_GROUPS = {
  every: { description: 'On every answer.', groups: ['standard'] },
  callers: {
    description: 'On answers to a caller who is known, where a balance or a limit is told.',
    groups: ['balance', 'rate'],
  },
  refusals: { description: 'On every answer that is a refusal.', groups: ['error', 'no-store'] },
  pricedRefusals: {
    description: 'On refusals of priced operations, as far as a model was found.',
    groups: ['model', 'rpc'],
  },
} as const satisfies Readonly<
  Record<string, { readonly description: string; readonly groups: readonly HeaderGroup[] }>
>;

/** The headers that answers have beside those of their operation, said once for all of them. */
export function commonHeaders(): Readonly<Record<keyof typeof COMMON_GROUPS, CommonHeaders>> {
  const entries = Object.entries(COMMON_GROUPS).map(([name, { description, groups }]) => [
    name,
    {
      description,
      // A request is refused before its model is known, or after.
      headers: headerReferences(groups, name === 'pricedRefusals' ? 'sometimes' : 'as said'),
    },
  ]);
  return Object.fromEntries(entries) as never; // one for each group
}

export interface CommonHeaders {
  readonly description: string;
  readonly headers: Readonly<Record<string, HeaderReference>>;
}
