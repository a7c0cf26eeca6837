/**
 * Response headers: those of every response, and those of inference (model, router, balance,
 * limits, deprecation, retries).
 */
import type { IncomingHttpHeaders } from 'node:http';
import { type Sale, addRateHeaders } from '../billing/sale.ts';
import type { Balances } from '../billing/ledger/ledger.ts';
import type { CatalogModel, DeprecationNotice } from '../catalog/catalog.ts';
import { type Clock, isoTime } from '../core/clock.ts';
import { type Nano, formatUsd } from '../core/money.ts';
import type { Caller } from '../identity/identity.ts';
import type { ErrorFormats } from './error-format.ts';

type Headers = Record<string, string>;

export interface StandardHeaderOptions {
  readonly serviceName: string;
  /** `YYYYMMDD.HHMMSS`, the same as `info.version` of the OpenAPI document. */
  readonly version: string;
  readonly hostName: string;
  readonly timestamps: boolean;
  readonly corsOrigins: readonly string[];
}

/** Response headers that scripts of other origins may read. */
const EXPOSED = [
  'PAYMENT-REQUIRED, PAYMENT-RESPONSE, X-PAYMENT-RESPONSE, PAYMENT-CLAIM, X-Balance-Remaining',
  'x-request-id, CF-RAY, Retry-After, Idempotent-Replayed, Content-Disposition',
  'x-should-retry, x-retry-count, Mcp-Session-Id, Payment-Receipt, WWW-Authenticate',
  'x-pagination-limit, x-pagination-page, x-pagination-total, x-pagination-total-pages',
  'x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests',
  'x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens',
  'x-ratelimit-type',
];

/** The same, without the prefix of the service. */
const OWN_EXPOSED = [
  'model-id, model-name, model-router, model-deprecation-warning, model-deprecation-date',
  'balance-usd, balance-diem, version, timestamp, host-name, rpc-credits, rpc-cost-usd',
];

/** The x402 client sends the last one, a response header, in requests. */
const REQUEST_HEADERS = [
  'authorization, x-api-key, content-type, idempotency-key, payment-signature, payment-claim',
  'x-payment, payment-authorization, anthropic-version, anthropic-beta',
  'x-402-payment, sign-in-with-x, x-sign-in-with-x, access-control-expose-headers',
];

/** SDKs send headers of their own (`x-stainless-…`), so that preflights allow any name. */
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
  const errorFormats: ErrorFormats = { header: `${prefix}error-format`, serviceName };
  const exposed = [...EXPOSED, ...words(OWN_EXPOSED).map((name) => prefix + name)].join(', ');
  const tagsHeader = `${prefix}metadata`;
  const own = [errorFormats.header, tagsHeader, `${prefix}request-timestamp-ms`];
  const allowed = [...words(REQUEST_HEADERS), ...own];
  const echoed: Readonly<Record<string, RegExp>> = {
    [`${prefix}request-timestamp-ms`]: /^\d{1,16}$/,
    [`${prefix}middleface-version`]: CLIENT_VERSION,
    [`${prefix}mobile-version`]: CLIENT_VERSION,
  };
  const versionName = `${prefix}version`;
  const timestampName = `${prefix}timestamp`;
  const anyOrigin = corsOrigins.includes('*');
  /** The headers that are known when a request begins. */
  const of = (request: IncomingHttpHeaders, requestId: string): Headers => {
    const { origin, 'cf-ray': ray } = request;
    // Computed names in the literal would make an object that takes twice as long to fill and write.
    const headers: Headers = {
      // Keeps the id that a proxy gave the request.
      'CF-RAY': typeof ray === 'string' && RAY.test(ray) ? ray : requestId,
      'x-request-id': requestId,
    };
    headers[versionName] = version;
    // Content of callers and engines is never shown as a page.
    headers['x-content-type-options'] = 'nosniff';
    if (timestamps) headers[timestampName] = isoTime(clock.nowMs());
    if (origin !== undefined && (anyOrigin || corsOrigins.includes(origin))) {
      headers['access-control-allow-origin'] = anyOrigin ? '*' : origin;
      headers['access-control-expose-headers'] = exposed;
      if (!anyOrigin) headers['vary'] = 'Origin';
    }
    for (const name in echoed) {
      const value = request[name];
      if (typeof value === 'string' && echoed[name]?.test(value) === true) headers[name] = value;
    }
    return headers;
  };
  /** The headers of a preflight response, which allow every requested header. */
  const preflight = (request: IncomingHttpHeaders, methods: readonly string[]): Headers => {
    const requested = request['access-control-request-headers'] ?? '';
    const further = HEADER_LIST.test(requested) ? requested.toLowerCase().split(',') : [];
    const names = new Set([...allowed, ...further.map((name) => name.trim())]);
    return {
      'access-control-allow-methods': [...methods, 'OPTIONS'].join(', '),
      'access-control-allow-headers': [...names].join(', '),
      'access-control-max-age': String(PREFLIGHT_MAX_AGE_SECONDS),
    };
  };
  /** Further headers of an error response. */
  const failed: Headers = { [`${prefix}host-name`]: hostName };
  return { errorFormats, tagsHeader, of, preflight, failed };
}

/** The facts behind the inference headers, as far as they are known. */
export interface KnownFacts {
  readonly model: CatalogModel;
  readonly deprecation: DeprecationNotice | undefined;
  readonly sale?: Sale | undefined;
  /** The engine that responded; unknown while a stream only sends keep-alives. */
  readonly replica?: string | undefined;
  readonly attempts?: number;
  /** Content flags in the response headers of the engine. */
  readonly flags?: Readonly<Record<string, string>> | undefined;
  /** Posted USD after the request; for a stream, the least amount. */
  readonly remainingNano?: Nano;
}

const WALLET_DECIMALS = 6;
const ZERO = formatUsd(0n, WALLET_DECIMALS);

const UNPRINTED = /[^\x20-\x7e]/;
const FLAG =
  /^x-([a-z\d]{1,64})-(is-blurred|is-content-violation|is-adult-model-content-violation|contains-minor|control-instance)$/;

function ownNames(serviceName: string) {
  const prefix = `x-${serviceName}-`;
  return {
    modelId: `${prefix}model-id`,
    modelName: `${prefix}model-name`,
    modelRouter: `${prefix}model-router`,
    deprecationWarning: `${prefix}model-deprecation-warning`,
    deprecationDate: `${prefix}model-deprecation-date`,
    balanceUsd: `${prefix}balance-usd`,
    balanceDiem: `${prefix}balance-diem`,
  };
}

export class ResponseHeaders {
  readonly #names: ReturnType<typeof ownNames>;
  readonly #serviceName: string;
  readonly #clock: Clock;

  constructor(parts: { readonly serviceName: string; readonly clock: Clock }) {
    this.#names = ownNames(parts.serviceName);
    this.#serviceName = parts.serviceName;
    this.#clock = parts.clock;
  }

  /** Adds the headers of inference to `headers`, as far as they are known. */
  answered(facts: KnownFacts, headers: Headers = {}): Headers {
    const names = this.#names;
    const { model, deprecation, sale, replica, attempts = 1, remainingNano } = facts;
    // Names from engines can have other characters than headers allow.
    const { id, name } = model;
    headers[names.modelId] = UNPRINTED.test(id) ? headerText(id) : id;
    headers[names.modelName] = UNPRINTED.test(name) ? headerText(name) : name;
    if (deprecation !== undefined) {
      headers[names.deprecationWarning] = headerText(deprecation.warning);
      headers[names.deprecationDate] = deprecation.date;
    }
    if (sale !== undefined) {
      const { hold, window, request } = sale;
      this.#addAmounts(headers, hold.before);
      addRateHeaders(headers, window, request.rate, this.#clock.nowMs());
    }
    Object.assign(headers, facts.flags);
    if (replica !== undefined) headers[names.modelRouter] = replica;
    if (attempts > 1) headers['x-retry-count'] = String(attempts - 1);
    if (sale?.request.caller.kind !== 'wallet' || remainingNano === undefined) return headers;
    return addRemaining(headers, remainingNano);
  }

  /** Returns the content flags of an engine (`x-<service>-…` or `x-svc-…`) under our name. */
  flagsOf(given: Readonly<Record<string, string | string[] | undefined>>): Headers | undefined {
    let flags: Headers | undefined;
    for (const name in given) {
      if (!name.startsWith('x-')) continue;
      const [, prefix, flag] = FLAG.exec(name) ?? [];
      const value = given[name];
      if (flag === undefined || typeof value !== 'string') continue;
      const own = `x-${this.#serviceName}-${flag}`;
      flags ??= {};
      if (prefix === this.#serviceName) flags[own] = value;
      else if (prefix === 'svc') flags[own] ??= value;
    }
    return flags;
  }

  /** Adds the headers of a response without a model: limits, and balances if it was charged. */
  counted({ hold, window, request }: Sale, remainingNano: Nano | undefined, headers: Headers) {
    addRateHeaders(headers, window, request.rate, this.#clock.nowMs());
    if (remainingNano === undefined) return;
    this.#addAmounts(headers, hold.before);
    if (request.caller.kind === 'wallet') addRemaining(headers, remainingNano);
  }

  /** The balance headers of a response without a sale. */
  balanceHeaders(balances: Balances, caller: Pick<Caller, 'kind'>): Headers {
    const headers: Headers = {};
    this.#addAmounts(headers, balances);
    return caller.kind === 'wallet' ? addRemaining(headers, balances.usdNano) : headers;
  }

  /** Balances before the request. */
  #addAmounts(headers: Headers, { usdNano, diemNano }: Balances): void {
    headers[this.#names.balanceUsd] = usdNano === 0n ? ZERO : formatUsd(usdNano, WALLET_DECIMALS);
    headers[this.#names.balanceDiem] =
      diemNano === 0n ? ZERO : formatUsd(diemNano, WALLET_DECIMALS);
  }
}

/** The remaining balance, for wallets only. */
function addRemaining(headers: Headers, remaining: Nano): Headers {
  headers['x-balance-remaining'] = formatUsd(remaining, WALLET_DECIMALS);
  return headers;
}

/** Replaces characters that Node rejects in header values. */
function headerText(text: string): string {
  return text.replaceAll(/[^\x20-\x7e]/g, '?');
}
