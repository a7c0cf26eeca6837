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

export class StandardHeaders {
  readonly errorFormatHeader: string;
  /** What an answer that is a failure has besides. */
  readonly failed: Readonly<HeaderRecord>;
  readonly #clock: Clock;
  readonly #options: StandardHeaderOptions;
  readonly #versionName: string;
  readonly #timestampName: string;
  readonly #exposed: string;
  readonly #allowed: readonly string[];
  readonly #echoed: readonly { readonly name: string; readonly form: RegExp }[];
  readonly #anyOrigin: boolean;

  constructor(clock: Clock, options: StandardHeaderOptions) {
    const prefix = `x-${options.serviceName}-`;
    this.errorFormatHeader = `${prefix}error-format`;
    this.failed = { [`${prefix}host-name`]: options.hostName };
    this.#clock = clock;
    this.#options = options;
    this.#versionName = `${prefix}version`;
    this.#timestampName = `${prefix}timestamp`;
    this.#exposed = [...EXPOSED, ...OWN_EXPOSED.map((name) => prefix + name)].join(', ');
    this.#allowed = [...REQUEST_HEADERS, this.errorFormatHeader, `${prefix}request-timestamp-ms`];
    this.#echoed = [
      { name: `${prefix}request-timestamp-ms`, form: /^\d{1,16}$/ },
      { name: `${prefix}middleface-version`, form: CLIENT_VERSION },
      { name: `${prefix}mobile-version`, form: CLIENT_VERSION },
    ];
    this.#anyOrigin = options.corsOrigins.includes('*');
  }

  /** Those that are known as soon as a request begins. */
  of(request: IncomingHttpHeaders, requestId: string): HeaderRecord {
    const { version, timestamps, corsOrigins } = this.#options;
    const { origin, 'cf-ray': ray } = request;
    const headers: HeaderRecord = {
      // A proxy in front that gave the request an id keeps it.
      'CF-RAY': typeof ray === 'string' && RAY.test(ray) ? ray : requestId,
      'x-request-id': requestId,
      [this.#versionName]: version,
      // What callers and engines made is shown as what it says it is, never as a page.
      'x-content-type-options': 'nosniff',
    };
    if (timestamps) headers[this.#timestampName] = isoTime(this.#clock.nowMs());
    if (origin !== undefined && (this.#anyOrigin || corsOrigins.includes(origin))) {
      headers['access-control-allow-origin'] = this.#anyOrigin ? '*' : origin;
      headers['access-control-expose-headers'] = this.#exposed;
      if (!this.#anyOrigin) headers['vary'] = 'Origin';
    }
    for (const { name, form } of this.#echoed) {
      const value = request[name];
      if (typeof value === 'string' && form.test(value)) headers[name] = value;
    }
    return headers;
  }

  /** The answer to a browser's preflight; what it asks for is allowed by its name. */
  preflight(request: IncomingHttpHeaders, methods: readonly string[]): HeaderRecord {
    const asked = request['access-control-request-headers'] ?? '';
    const further = HEADER_LIST.test(asked) ? asked.toLowerCase().split(',') : [];
    const allowed = new Set([...this.#allowed, ...further.map((name) => name.trim())]);
    return {
      'access-control-allow-methods': [...methods, 'OPTIONS'].join(', '),
      'access-control-allow-headers': [...allowed].join(', '),
      'access-control-max-age': String(PREFLIGHT_MAX_AGE_SECONDS),
    };
  }
}
