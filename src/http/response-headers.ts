/**
 * Response headers by the specification's table "Common response headers": those of every response,
 * and those of inference (model, router, balance, limits, deprecation, retries).
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
  /** Those that are known as soon as a request begins. */
  const of = (request: IncomingHttpHeaders, requestId: string): Headers => {
    const { origin, 'cf-ray': ray } = request;
    // The names of the service are set one by one: computed in the literal, they make an object that
    // takes twice as long to fill and to write.
    const headers: Headers = {
      // A proxy in front that gave the request an id keeps it.
      'CF-RAY': typeof ray === 'string' && RAY.test(ray) ? ray : requestId,
      'x-request-id': requestId,
    };
    headers[versionName] = version;
    // What callers and engines made is shown as what it says it is, never as a page.
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
  /** The answer to a browser's preflight; what it asks for is allowed by its name. */
  const preflight = (request: IncomingHttpHeaders, methods: readonly string[]): Headers => {
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
  const failed: Headers = { [`${prefix}host-name`]: hostName };
  return { errorFormats, tagsHeader, of, preflight, failed };
}

/** What is known of an answer, or so far, for a refusal. */
export interface KnownFacts {
  readonly model: CatalogModel;
  readonly deprecation: DeprecationNotice | undefined;
  readonly sale?: Sale | undefined;
  /** The engine that answers, and the attempt that did; unknown while a stream is kept alive. */
  readonly replica?: string | undefined;
  readonly attempts?: number;
  /** Headers that the engine sent and that are passed on, such as content flags. */
  readonly flags?: Readonly<Record<string, string>> | undefined;
  /** Posted USD after the request; for a stream, what its hold leaves. */
  readonly remainingNano?: Nano;
}

/** Wallet balances are shown with 6 decimals. */
const WALLET_DECIMALS = 6;
/** The usual balance of daily credit. */
const ZERO = formatUsd(0n, WALLET_DECIMALS);

const UNPRINTED = /[^\x20-\x7e]/;
const FLAG =
  /^x-([a-z\d]{1,64})-(is-blurred|is-content-violation|is-adult-model-content-violation|contains-minor|control-instance)$/;

/** The names that begin with the service's own. */
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

/** Makes the headers of answers for one service. */
export class ResponseHeaders {
  readonly #names: ReturnType<typeof ownNames>;
  readonly #serviceName: string;
  readonly #clock: Clock;

  constructor(parts: { readonly serviceName: string; readonly clock: Clock }) {
    this.#names = ownNames(parts.serviceName);
    this.#serviceName = parts.serviceName;
    this.#clock = parts.clock;
  }

  /**
   * Adds the headers of inference, as far as they are known: all for a result, fewer for an error.
   */
  answered(facts: KnownFacts, headers: Headers = {}): Headers {
    const names = this.#names;
    const { model, deprecation, sale, replica, attempts = 1, remainingNano } = facts;
    // An engine names its models as it likes.
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

  /** Content flags among the headers of an engine, by our own name or as `svc`, under our own. */
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

  /** Adds what an answer of no model says: the limits, and the balances where it was charged. */
  counted({ hold, window, request }: Sale, remainingNano: Nano | undefined, headers: Headers) {
    addRateHeaders(headers, window, request.rate, this.#clock.nowMs());
    if (remainingNano === undefined) return;
    this.#addAmounts(headers, hold.before);
    if (request.caller.kind === 'wallet') addRemaining(headers, remainingNano);
  }

  /** The balance of a caller whose answer went through no admission. */
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

/** What a wallet has left; a key is not told. */
function addRemaining(headers: Headers, remaining: Nano): Headers {
  headers['x-balance-remaining'] = formatUsd(remaining, WALLET_DECIMALS);
  return headers;
}

/** Header values are Latin-1: anything else would be refused by Node. */
function headerText(text: string): string {
  return text.replaceAll(/[^\x20-\x7e]/g, '?');
}
