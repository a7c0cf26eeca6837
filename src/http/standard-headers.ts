/**
 * Headers that every answer carries, by the specification's table "Common response headers". Their
 * prefix is the service's name.
 */
import { type Clock, isoTime } from '../core/clock.ts';
import type { RequestContext } from './request-context.ts';

export interface StandardHeaders {
  readonly errorFormatHeader: string;
  /** Sets those that are known as soon as a request begins. */
  begin(context: RequestContext): void;
  failed(): Record<string, string>;
  /** The answer to a browser's preflight. */
  preflight(context: RequestContext, methods: readonly string[]): Record<string, string>;
}

export interface StandardHeaderOptions {
  readonly serviceName: string;
  /** `YYYYMMDD.HHMMSS`, the same as `info.version` of the OpenAPI document. */
  readonly version: string;
  readonly hostName: string;
  readonly timestamps: boolean;
  readonly corsOrigins: readonly string[];
}

const EXPOSED = [
  'PAYMENT-REQUIRED',
  'PAYMENT-RESPONSE',
  'X-PAYMENT-RESPONSE',
  'PAYMENT-CLAIM',
  'X-Balance-Remaining',
  'x-request-id',
  'CF-RAY',
  'Retry-After',
  'Idempotent-Replayed',
  'Content-Disposition',
  'x-should-retry',
  'x-retry-count',
  'x-pagination-limit',
  'x-pagination-page',
  'x-pagination-total',
  'x-pagination-total-pages',
  'x-ratelimit-limit-requests',
  'x-ratelimit-remaining-requests',
  'x-ratelimit-reset-requests',
  'x-ratelimit-limit-tokens',
  'x-ratelimit-remaining-tokens',
  'x-ratelimit-reset-tokens',
  'x-ratelimit-type',
];

/** The same under the service's prefix. */
const OWN_EXPOSED = [
  'model-id',
  'model-name',
  'model-router',
  'model-deprecation-warning',
  'model-deprecation-date',
  'balance-usd',
  'balance-diem',
  'version',
  'timestamp',
  'host-name',
  'rpc-credits',
  'rpc-cost-usd',
];

const REQUEST_HEADERS = [
  'authorization',
  'content-type',
  'idempotency-key',
  'payment-signature',
  'payment-claim',
  'x-payment',
  'x-402-payment',
  'sign-in-with-x',
  'x-sign-in-with-x',
  // The stock x402 client sends this response header as a request header.
  'access-control-expose-headers',
];

/** SDKs add headers of their own (`x-stainless-…`), which no list here could foresee. */
const HEADER_LIST = /^[A-Za-z0-9-]{1,64}(?:,[ ]?[A-Za-z0-9-]{1,64}){0,49}$/;

const PREFLIGHT_MAX_AGE_SECONDS = 7_200;
const CLIENT_VERSION = /^[A-Za-z0-9._+-]{1,64}$/;
const RAY = /^[A-Za-z0-9-]{1,64}$/;

export function standardHeaders(clock: Clock, options: StandardHeaderOptions): StandardHeaders {
  const prefix = `x-${options.serviceName}-`;
  const exposed = [...EXPOSED, ...OWN_EXPOSED.map((name) => prefix + name)].join(', ');
  const echoed = [
    { name: `${prefix}request-timestamp-ms`, form: /^\d{1,16}$/ },
    { name: `${prefix}middleface-version`, form: CLIENT_VERSION },
    { name: `${prefix}mobile-version`, form: CLIENT_VERSION },
  ];
  const anyOrigin = options.corsOrigins.includes('*');
  const versionName = `${prefix}version`;
  const timestampName = `${prefix}timestamp`;
  return {
    errorFormatHeader: `${prefix}error-format`,
    begin: (context) => {
      // A proxy in front that gave the request an id keeps it.
      context.set('CF-RAY', rayOf(context));
      context.set('x-request-id', context.requestId);
      context.set(versionName, options.version);
      // What callers and engines made is shown as what it says it is, never as a page.
      context.set('x-content-type-options', 'nosniff');
      if (options.timestamps) context.set(timestampName, isoTime(clock.nowMs()));
      const origin = context.header('origin');
      if (origin !== undefined && (anyOrigin || options.corsOrigins.includes(origin))) {
        context.set('access-control-allow-origin', anyOrigin ? '*' : origin);
        context.set('access-control-expose-headers', exposed);
        if (!anyOrigin) context.set('vary', 'Origin');
      }
      for (const { name, form } of echoed) {
        const value = context.header(name);
        if (value !== undefined && form.test(value)) context.set(name, value);
      }
    },
    failed: () => ({ [`${prefix}host-name`]: options.hostName }),
    preflight: (context, methods) => ({
      'access-control-allow-methods': [...methods, 'OPTIONS'].join(', '),
      'access-control-allow-headers': allowedHeaders(context, prefix),
      'access-control-max-age': String(PREFLIGHT_MAX_AGE_SECONDS),
    }),
  };
}

function rayOf(context: RequestContext): string {
  const given = context.header('cf-ray');
  return given !== undefined && RAY.test(given) ? given : context.requestId;
}

/** Request headers that a browser may send; what it asks for besides is allowed by its name. */
function allowedHeaders(context: RequestContext, prefix: string): string {
  const asked = context.header('access-control-request-headers') ?? '';
  const further = HEADER_LIST.test(asked) ? asked.split(',').map((name) => name.trim()) : [];
  const own = [`${prefix}error-format`, `${prefix}request-timestamp-ms`];
  const names = [...REQUEST_HEADERS, ...own, ...further.map((name) => name.toLowerCase())];
  return [...new Set(names)].filter((name) => name !== '').join(', ');
}
