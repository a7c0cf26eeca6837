/**
 * Schemas that several sections use. Amounts of USD are decimal text after parsing, so that they are exact;
 * `core/money.ts` converts them to integers.
 */
import * as z from 'zod';

import { reasonOf } from '../core/log.ts';
import { usdToNano } from '../core/money.ts';
import { parseUpstreamUrl } from '../core/upstream-url.ts';
import { isProxyUrl, PROXY_RULE } from './outgoing-proxy.ts';

/** A larger amount is probably in a wrong unit. */
const LARGEST_USD = 1_000_000_000n;

/** A non-negative amount of USD with at most 9 decimals, kept as text. */
export const Usd = z
  .union([z.number(), z.string()])
  .transform((value, context) => {
    const text = String(value).trim();
    const problem = problemOfUsd(text);
    if (problem === undefined) return text;
    context.addIssue({ code: 'custom', message: problem });
    return z.NEVER;
  })
  .meta({ format: 'usd' });

function problemOfUsd(text: string): string | undefined {
  try {
    if (usdToNano(text) <= LARGEST_USD * 1_000_000_000n) return undefined;
    return `Must be at most ${LARGEST_USD} USD`;
  } catch {
    // The RangeError names powers of ten; this message has both rules.
    return 'Must be an amount of USD, zero or more, with at most 9 decimals, for example 0.30';
  }
}

/** An optional group of settings; a missing group has all defaults. */
export function group<Shape extends z.ZodRawShape>(settings: Shape) {
  // Every member has a default or is optional, so `{}` is valid.
  return z.strictObject(settings).prefault({} as never);
}

/** A text of at least one character. */
export const Text = z.string().min(1);

/** A text that is never printed, such as a key or a password. */
export function secret(): z.ZodString {
  return z.string().min(1, 'Must not be empty').meta({ secret: true });
}

/** An absolute http or https URL, without a trailing slash. */
export function httpUrl() {
  return z
    .string()
    .refine(isHttpUrl, 'Must be an absolute http:// or https:// URL')
    .transform((url) => url.replace(/\/+$/, ''));
}

function isHttpUrl(text: string): boolean {
  const url = URL.parse(text);
  return url !== null && (url.protocol === 'http:' || url.protocol === 'https:');
}

/** As `httpUrl`, without credentials and query, so that paths can be appended. */
export function baseUrl() {
  return httpUrl()
    .superRefine(explainUpstream)
    .refine((url) => !url.includes('?'), 'Must not contain a query, because paths are appended');
}

/** As `baseUrl`, but with an optional query, or a local socket such as `unix:/path.sock:/v1`. */
export function engineUrl() {
  return z
    .string()
    .superRefine(explainUpstream)
    .transform((url) => url.replace(/\/+$/, ''));
}

function explainUpstream(url: string, context: z.RefinementCtx): void {
  try {
    parseUpstreamUrl(url);
  } catch (error) {
    // The text is written for the operator.
    context.addIssue({ code: 'custom', message: reasonOf(error) });
  }
}

/** Proxy and TLS settings of engines and of RPC nodes. */
export function routeSettings() {
  return {
    proxy: Text.refine(isProxyUrl, PROXY_RULE)
      .optional()
      .describe(
        'HTTP proxy for connections to this server, by CONNECT: `http(s)://[user:password@]host[:port]`. Default: `HTTPS_PROXY` or `HTTP_PROXY`, except for hosts of `NO_PROXY` and loopback.',
      ),
    ca: pemFile().describe(
      'PEM file of the certificate authorities to trust. Default: those of the system.',
    ),
    cert: pemFile().describe('PEM file of the client certificate.'),
    key: pemFile().describe(
      'PEM file of the private key of `cert`, without a passphrase. Default: the key in `cert`.',
    ),
  };
}

function pemFile() {
  return Text.refine((path) => !path.includes('-----BEGIN'), {
    message: 'Must be the path of a PEM file, not its text',
  })
    .meta({ secret: false })
    .optional();
}

/** A date (`2026-11-01`) or a UTC time (`2026-11-01T12:00:00Z`), kept as ISO text. */
export function isoDate() {
  return z
    .string()
    .refine((text) => ISO_DATE.test(text) && !Number.isNaN(Date.parse(text)), {
      message: 'Must be a date such as 2026-11-01 or a UTC time such as 2026-11-01T12:00:00Z',
    })
    .transform((text) => new Date(text).toISOString());
}

const ISO_DATE = /^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2}(\.\d{1,3})?)?Z)?$/;

/** A whole number of at least 1. */
export function count() {
  return z.number().int().min(1);
}

/** A whole number from 1 to `max` with a default. */
export function whole(fallback: number, max?: number) {
  return (max === undefined ? count() : count().max(max)).default(fallback);
}

export function flag(fallback: boolean) {
  return z.boolean().default(fallback);
}

export function usd(fallback: string) {
  return Usd.default(fallback);
}

/** Rejects an item of a list whose `key` has the value of an earlier item. */
export function distinct<Key extends string>(key: Key, message: string) {
  return (
    items: readonly Readonly<Record<Key, unknown>>[],
    context: z.core.$RefinementCtx,
  ): void => {
    for (const [index, item] of items.entries()) {
      if (items.findIndex((one) => one[key] === item[key]) === index) continue;
      context.addIssue({ code: 'custom', path: [index, key], message });
    }
  };
}
