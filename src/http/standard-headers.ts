/**
 * Headers that every answer carries, by the specification's table "Common response headers". Their
 * prefix is the service's name.
 */
import type { IncomingHttpHeaders } from 'node:http';
import { type Clock, isoTime } from '../core/clock.ts';
import type { HeaderRecord } from './request-context.ts';

export interface StandardHeaderOptions {
  readonly serviceName: string;
  /** `YYYYMMDD.HHMMSS`, the same as `info.version` of the OpenAPI document. */
  readonly version: string;
  readonly hostName: string;
  readonly timestamps: boolean;
  readonly corsOrigins: readonly string[];
}

/** What scripts of other origins may read. */
const EXPOSED = [
  'PAYMENT-REQUIRED, PAYMENT-RESPONSE, X-PAYMENT-RESPONSE, PAYMENT-CLAIM, X-Balance-Remaining',
  'x-request-id, CF-RAY, Retry-After, Idempotent-Replayed, Content-Disposition',
  'x-should-retry, x-retry-count, Mcp-Session-Id, Payment-Receipt, WWW-Authenticate',
  'x-pagination-limit, x-pagination-page, x-pagination-total, x-pagination-total-pages',
  'x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests',
  'x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens',
  'x-ratelimit-type',
];

/** The same under the service's prefix. */
const OWN_EXPOSED = [
  'model-id, model-name, model-router, model-deprecation-warning, model-deprecation-date',
  'balance-usd, balance-diem, version, timestamp, host-name, rpc-credits, rpc-cost-usd',
];

/** The last is a response header that the stock x402 client sends as a request header. */
const REQUEST_HEADERS = [
  'authorization, x-api-key, content-type, idempotency-key, payment-signature, payment-claim',
  'x-payment, payment-authorization, anthropic-version, anthropic-beta',
  'x-402-payment, sign-in-with-x, x-sign-in-with-x, access-control-expose-headers',
];

/** SDKs add headers of their own (`x-stainless-…`), which no list here could foresee. */
const HEADER_LIST = /^[A-Za-z0-9-]{1,64}(?:,[ ]?[A-Za-z0-9-]{1,64}){0,49}$/;

const PREFLIGHT_MAX_AGE_SECONDS = 7_200;
const CLIENT_VERSION = /^[A-Za-z0-9._+-]{1,64}$/;
const RAY = /^[A-Za-z0-9-]{1,64}$/;

function words(lines: readonly string[]): string[] {
  return lines.flatMap((line) => line.split(', '));
}

export type StandardHeaders = ReturnType<typeof standardHeaders>;

export function standardHeaders(clock: Clock, options: StandardHeaderOptions) {
  const { serviceName, version, hostName, timestamps, corsOrigins } = options;
  const prefix = `x-${serviceName}-`;
  const errorFormatHeader = `${prefix}error-format`;
  const exposed = [...EXPOSED, ...words(OWN_EXPOSED).map((name) => prefix + name)].join(', ');
  const tagsHeader = `${prefix}metadata`;
  const own = [errorFormatHeader, tagsHeader, `${prefix}request-timestamp-ms`];
  const allowed = [...words(REQUEST_HEADERS), ...own];
  const echoed = [
    { name: `${prefix}request-timestamp-ms`, form: /^\d{1,16}$/ },
    { name: `${prefix}middleface-version`, form: CLIENT_VERSION },
    { name: `${prefix}mobile-version`, form: CLIENT_VERSION },
  ];
  const versionName = `${prefix}version`;
  const timestampName = `${prefix}timestamp`;
  const anyOrigin = corsOrigins.includes('*');
  /** Those that are known as soon as a request begins. */
  const of = (request: IncomingHttpHeaders, requestId: string): HeaderRecord => {
    const { origin, 'cf-ray': ray } = request;
    const headers: HeaderRecord = {
      // A proxy in front that gave the request an id keeps it.
      'CF-RAY': typeof ray === 'string' && RAY.test(ray) ? ray : requestId,
      'x-request-id': requestId,
      [versionName]: version,
      // What callers and engines made is shown as what it says it is, never as a page.
      'x-content-type-options': 'nosniff',
    };
    if (timestamps) headers[timestampName] = isoTime(clock.nowMs());
    if (origin !== undefined && (anyOrigin || corsOrigins.includes(origin))) {
      headers['access-control-allow-origin'] = anyOrigin ? '*' : origin;
      headers['access-control-expose-headers'] = exposed;
      if (!anyOrigin) headers['vary'] = 'Origin';
    }
    for (const { name, form } of echoed) {
      const value = request[name];
      if (typeof value === 'string' && form.test(value)) headers[name] = value;
    }
    return headers;
  };
  /** The answer to a browser's preflight; what it asks for is allowed by its name. */
  const preflight = (request: IncomingHttpHeaders, methods: readonly string[]): HeaderRecord => {
    const asked = request['access-control-request-headers'] ?? '';
    const further = HEADER_LIST.test(asked) ? asked.toLowerCase().split(',') : [];
    const names = new Set([...allowed, ...further.map((name) => name.trim())]);
    return {
      'access-control-allow-methods': [...methods, 'OPTIONS'].join(', '),
      'access-control-allow-headers': [...names].join(', '),
      'access-control-max-age': String(PREFLIGHT_MAX_AGE_SECONDS),
    };
  };
  /** What an answer that is a failure has besides. */
  const failed: HeaderRecord = { [`${prefix}host-name`]: hostName };
  return { errorFormatHeader, tagsHeader, of, preflight, failed };
}
