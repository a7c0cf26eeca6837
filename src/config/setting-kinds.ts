/**
 * The kinds of setting that several sections share.
 *
 * Amounts of USD come in as a number or a decimal text and leave as decimal text, so that no amount
 * is ever the nearest double of what was written; `core/money.ts` turns them into integers.
 */
import { z } from 'zod';

import { reasonOf } from '../core/log.ts';
import { usdToNano } from '../core/money.ts';
import { parseUpstreamUrl } from '../core/upstream-url.ts';
import { isProxyUrl, PROXY_RULE } from './outgoing-proxy.ts';

/** Above this an amount is a mistake of unit, not a price. */
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
    // The RangeError says which rule failed in terms of powers; the operator gets both rules.
    return 'Must be an amount of USD, zero or more, with at most 9 decimals, for example 0.30';
  }
}

/** A group of settings that may be left out as a whole. */
export function group<Shape extends z.ZodRawShape>(settings: Shape) {
  // Every member of a group has a default or is optional: `{}` is a group of defaults.
  return z.strictObject(settings).prefault({} as never);
}

/** A text of at least one character. */
export const Text = z.string().min(1);

/** A text that is never printed: keys, passwords, signing secrets. */
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

/** The address of a server that paths are put behind: as `httpUrl`, without credentials and query. */
export function baseUrl() {
  return httpUrl().superRefine(explainUpstream);
}

/** As `baseUrl`, or a local socket: `unix:/path.sock:/v1`. */
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
    // What it says is for whoever wrote the setting.
    context.addIssue({ code: 'custom', message: reasonOf(error) });
  }
}

/** How an upstream is reached: settings of engines and of RPC nodes. */
export function routeSettings() {
  return {
    proxy: Text.refine(isProxyUrl, PROXY_RULE)
      .optional()
      .describe(
        'HTTP proxy that opens a tunnel (CONNECT) to it: `http(s)://[user:password@]host[:port]`. Default: `HTTPS_PROXY` or `HTTP_PROXY`, except for hosts of `NO_PROXY` and loopback.',
      ),
    ca: pemFile().describe('PEM file of the authorities to trust in place of those of the system.'),
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

/** A whole number of at least 1, and at most `max`, with its default. */
export function whole(fallback: number, max?: number) {
  return (max === undefined ? count() : count().max(max)).default(fallback);
}

export function flag(fallback: boolean) {
  return z.boolean().default(fallback);
}

export function usd(fallback: string) {
  return Usd.default(fallback);
}
