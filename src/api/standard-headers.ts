/**
 * Headers that every answer carries, by the specification's table "Common response headers". Their
 * prefix is the service's name.
 */
import { type Clock, isoTime } from '../kernel/clock.ts';
import type { Exchange } from './exchange.ts';

export interface StandardHeaders {
  readonly errorFormatHeader: string;
  begin(exchange: Exchange): Record<string, string>;
  failed(): Record<string, string>;
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
  'X-Balance-Remaining',
  'x-request-id',
  'CF-RAY',
  'Retry-After',
  'Idempotent-Replayed',
  'x-ratelimit-limit-requests',
  'x-ratelimit-remaining-requests',
  'x-ratelimit-reset-requests',
  'x-ratelimit-limit-tokens',
  'x-ratelimit-remaining-tokens',
  'x-ratelimit-reset-tokens',
  'x-ratelimit-type',
];

const PREFLIGHT_MAX_AGE_SECONDS = 7_200;
const RAY = /^[A-Za-z0-9-]{1,64}$/;

export function standardHeaders(clock: Clock, options: StandardHeaderOptions): StandardHeaders {
  const prefix = `x-${options.serviceName}-`;
  const exposed = [
    ...EXPOSED,
    ...['model-id', 'model-name', 'balance-usd', 'balance-diem', 'version'].map(
      (name) => prefix + name,
    ),
    `${prefix}rpc-credits`,
    `${prefix}rpc-cost-usd`,
  ].join(', ');
  const anyOrigin = options.corsOrigins.includes('*');
  return {
    errorFormatHeader: `${prefix}error-format`,
    begin: (exchange) => {
      const headers: Record<string, string> = {
        // A proxy in front that gave the request an id keeps it.
        'CF-RAY': rayOf(exchange),
        'x-request-id': exchange.requestId,
        [`${prefix}version`]: options.version,
      };
      if (options.timestamps) headers[`${prefix}timestamp`] = isoTime(clock.nowMs());
      const origin = exchange.header('origin');
      if (origin !== undefined && (anyOrigin || options.corsOrigins.includes(origin))) {
        headers['access-control-allow-origin'] = anyOrigin ? '*' : origin;
        headers['access-control-expose-headers'] = exposed;
        if (!anyOrigin) headers['vary'] = 'Origin';
      }
      const clientTime = exchange.header(`${prefix}request-timestamp-ms`);
      if (clientTime !== undefined && /^\d{1,16}$/.test(clientTime)) {
        headers[`${prefix}request-timestamp-ms`] = clientTime;
      }
      return headers;
    },
    failed: () => ({ [`${prefix}host-name`]: options.hostName }),
  };
}

function rayOf(exchange: Exchange): string {
  const given = exchange.header('cf-ray');
  return given !== undefined && RAY.test(given) ? given : exchange.requestId;
}

/** The answer to a browser's preflight. */
export function preflightHeaders(methods: readonly string[]): Record<string, string> {
  return {
    'access-control-allow-origin': '*',
    'access-control-allow-methods': [...methods, 'OPTIONS'].join(', '),
    'access-control-allow-headers': [
      'authorization',
      'content-type',
      'idempotency-key',
      'payment-signature',
      'x-payment',
      'x-402-payment',
      'sign-in-with-x',
      'x-sign-in-with-x',
      // The stock x402 client sends this response header as a request header.
      'access-control-expose-headers',
      'x-svc-error-format',
    ].join(', '),
    'access-control-max-age': String(PREFLIGHT_MAX_AGE_SECONDS),
  };
}
