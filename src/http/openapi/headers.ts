/**
 * Every header that an answer can carry: what it means and when it is there. Names are written for
 * a service called `svc`; the document puts the service's own name in.
 */
import type { HeaderGroup } from '../describe.ts';

export interface HeaderInfo {
  readonly name: string;
  readonly about: string;
  readonly example: string;
  /** On every answer of its group. */
  readonly always?: true;
}

type Group = HeaderGroup | 'standard' | 'error' | 'allow' | 'authenticate';

export const HEADER_GROUPS: Readonly<Record<Group, readonly HeaderInfo[]>> = {
  standard: [
    {
      name: 'x-request-id',
      about: 'Id of the request, 32 characters; the receipt is found by it.',
      example: '019aa3f1c0de4b7e8c1d2e3f4a5b6c7d',
      always: true,
    },
    {
      name: 'CF-RAY',
      about: 'Id for support: the one that a proxy in front gave, else the request id.',
      example: '019aa3f1c0de4b7e8c1d2e3f4a5b6c7d',
      always: true,
    },
    {
      name: 'x-svc-version',
      about: 'Revision of the server, the same as `info.version` of this document.',
      example: '20261121.000000',
      always: true,
    },
    {
      name: 'x-content-type-options',
      about: 'The content type is meant as it stands.',
      example: 'nosniff',
      always: true,
    },
    {
      name: 'x-svc-timestamp',
      about: 'Time of the server, when the operator turned it on.',
      example: '2026-11-21T04:00:00.000Z',
    },
    {
      name: 'x-svc-request-timestamp-ms',
      about: 'The time that the client sent under this name.',
      example: '1795233600000',
    },
    {
      name: 'x-svc-middleface-version',
      about: 'The version that the client sent under this name.',
      example: '1.0.0',
    },
    {
      name: 'x-svc-mobile-version',
      about: 'The version that the client sent under this name.',
      example: '1.0.0',
    },
    { name: 'vary', about: 'What the answer depends on.', example: 'Accept-Encoding' },
    {
      name: 'access-control-allow-origin',
      about: 'For browsers: the origin that may read the answer.',
      example: '*',
    },
    {
      name: 'access-control-expose-headers',
      about: 'For browsers: the headers that a page may read.',
      example: 'x-request-id',
    },
  ],
  error: [
    {
      name: 'x-svc-host-name',
      about: 'The host that refused, for support.',
      example: 'api-1',
      always: true,
    },
    { name: 'retry-after', about: 'Seconds to wait before another try.', example: '30' },
    {
      name: 'x-should-retry',
      about: '`false` when the same request cannot succeed.',
      example: 'false',
    },
    { name: 'x-retry-count', about: 'Further engines that were asked.', example: '1' },
    {
      name: 'x-ratelimit-limit',
      about: 'Blockchain RPC, with a 429: most requests a minute.',
      example: '100',
    },
    {
      name: 'x-ratelimit-remaining',
      about: 'Blockchain RPC, with a 429: requests that are left.',
      example: '0',
    },
    {
      name: 'x-ratelimit-reset',
      about: 'Blockchain RPC, with a 429: Unix time of the next minute.',
      example: '1795233660',
    },
  ],
  allow: [{ name: 'allow', about: 'Methods of the path.', example: 'GET, POST', always: true }],
  authenticate: [
    { name: 'www-authenticate', about: 'How to send credentials.', example: 'Bearer' },
  ],
  model: [
    {
      name: 'x-svc-model-id',
      about: 'The model that answered.',
      example: 'atlas-24b',
      always: true,
    },
    {
      name: 'x-svc-model-name',
      about: 'Its name for people.',
      example: 'Atlas 24B',
      always: true,
    },
    { name: 'x-svc-model-router', about: 'The engine that ran it.', example: 'rack1' },
    {
      name: 'x-svc-model-deprecation-warning',
      about: 'With a deprecated model: what will happen.',
      example: 'The model is retired on 2027-01-31',
    },
    {
      name: 'x-svc-model-deprecation-date',
      about: 'With a deprecated model: when.',
      example: '2027-01-31',
    },
    { name: 'x-retry-count', about: 'Further engines that were asked.', example: '1' },
    { name: 'x-svc-is-blurred', about: 'The engine blurred the image.', example: 'false' },
    {
      name: 'x-svc-is-content-violation',
      about: 'The engine says that the content violates its policy.',
      example: 'false',
    },
    {
      name: 'x-svc-is-adult-model-content-violation',
      about: 'The engine says that the content violates the policy of adult models.',
      example: 'false',
    },
    {
      name: 'x-svc-contains-minor',
      about: 'The engine says that the image shows a minor.',
      example: 'false',
    },
    {
      name: 'x-svc-control-instance',
      about: 'The control instance that the engine names.',
      example: 'c1',
    },
    {
      name: 'x-auth-refreshed',
      about: 'A credential was refreshed during the request.',
      example: 'true',
    },
  ],
  rate: [
    {
      name: 'x-ratelimit-limit-requests',
      about: 'Most requests in the window.',
      example: '75',
    },
    {
      name: 'x-ratelimit-remaining-requests',
      about: 'Requests that are left in the window.',
      example: '74',
    },
    {
      name: 'x-ratelimit-reset-requests',
      about: 'Unix time in seconds at which the window ends.',
      example: '1795233660',
    },
    { name: 'x-ratelimit-limit-tokens', about: 'Most tokens a minute.', example: '750000' },
    {
      name: 'x-ratelimit-remaining-tokens',
      about: 'Tokens that are left in the minute.',
      example: '748211',
    },
    {
      name: 'x-ratelimit-reset-tokens',
      about: 'Seconds until the tokens are full again.',
      example: '42',
    },
    {
      name: 'x-ratelimit-type',
      about: 'Whose limit it is: `user`, `api_key` or `global`.',
      example: 'user',
    },
  ],
  balance: [
    {
      name: 'x-svc-balance-usd',
      about: 'USD credit before the request; not sent when zero.',
      example: '12.345678',
    },
    {
      name: 'x-svc-balance-diem',
      about: 'Daily credit before the request; not sent when zero.',
      example: '3.000000',
    },
    {
      name: 'x-balance-remaining',
      about: 'Wallets: USD credit after the request.',
      example: '12.340000',
    },
  ],
  rpc: [
    { name: 'x-svc-rpc-credits', about: 'Credits charged.', example: '20', always: true },
    {
      name: 'x-svc-rpc-cost-usd',
      about: 'What the credits cost.',
      example: '0.00001250',
      always: true,
    },
    { name: 'x-retry-count', about: 'Further nodes that were asked.', example: '1' },
  ],
  page: [
    { name: 'x-pagination-limit', about: 'Items a page.', example: '50', always: true },
    { name: 'x-pagination-page', about: 'Page, from 1.', example: '1', always: true },
    { name: 'x-pagination-total', about: 'Items in all.', example: '120', always: true },
    { name: 'x-pagination-total-pages', about: 'Pages in all.', example: '3', always: true },
  ],
  download: [
    {
      name: 'content-disposition',
      about: 'The name of the file, on downloads.',
      example: 'attachment; filename="usage.csv"',
    },
  ],
  'no-store': [
    { name: 'cache-control', about: 'Whether the answer may be kept.', example: 'no-store' },
  ],
  'page-security': [
    {
      name: 'content-security-policy',
      about: 'What a browser may run and load.',
      example: "default-src 'none'",
      always: true,
    },
    {
      name: 'referrer-policy',
      about: 'Links tell nobody where they were.',
      example: 'no-referrer',
      always: true,
    },
  ],
  stream: [
    { name: 'cache-control', about: 'On streams.', example: 'no-cache' },
    {
      name: 'x-accel-buffering',
      about: 'On streams: tells proxies not to gather it.',
      example: 'no',
    },
  ],
  payment: [
    {
      name: 'PAYMENT-REQUIRED',
      about: 'base64 JSON of what can be paid, for x402 clients.',
      example: 'eyJ4NDAyVmVyc2lvbiI6Mn0=',
    },
    {
      name: 'PAYMENT-RESPONSE',
      about: 'base64 JSON of the settlement of a payment.',
      example: 'eyJzdWNjZXNzIjp0cnVlfQ==',
    },
    {
      name: 'X-PAYMENT-RESPONSE',
      about: 'The same under its older name.',
      example: 'eyJzdWNjZXNzIjp0cnVlfQ==',
    },
    {
      name: 'PAYMENT-CLAIM',
      about: 'Beside a payment under way: a secret that marks the retry of this request.',
      example: 'q3Jz0hXw7cM5b1uYk9eTnVfR2sAoLdP6iGxZ8mKtWQE',
    },
  ],
  replay: [
    {
      name: 'idempotent-replayed',
      about: '`true` when an earlier answer with the same `Idempotency-Key` is repeated, free.',
      example: 'true',
    },
  ],
};

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
