/**
 * Headers of an inference answer: model, router, balance, limits, deprecation, retries. Common
 * response headers, each when the table says so.
 */
import { type Sale, addRateHeaders } from '../billing/sale.ts';
import type { Balances } from '../billing/ledger/ledger.ts';
import type { CatalogModel, DeprecationNotice } from '../catalog/catalog.ts';
import type { Clock } from '../core/clock.ts';
import { type Nano, formatUsd } from '../core/money.ts';
import type { Caller } from '../identity/identity.ts';

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

/** The same of an inference answer that is complete, whatever the work was. */
export interface AnswerFacts extends KnownFacts {
  readonly sale: Sale;
  readonly replica: string | undefined;
  readonly attempts: number;
  readonly remainingNano: Nano;
}

/** Wallet balances are shown with 6 decimals. */
const WALLET_DECIMALS = 6;

type Headers = Record<string, string>;

const FLAG =
  /^x-([a-z\d]+)-(is-blurred|is-content-violation|is-adult-model-content-violation|contains-minor|control-instance)$/;

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
export class AnswerHeaders {
  readonly #names: ReturnType<typeof ownNames>;
  readonly #serviceName: string;
  readonly #clock: Clock;

  constructor(parts: { readonly serviceName: string; readonly clock: Clock }) {
    this.#names = ownNames(parts.serviceName);
    this.#serviceName = parts.serviceName;
    this.#clock = parts.clock;
  }

  /** What an answer says as far as it is known: all of a complete one, less of a refusal. */
  answered(facts: KnownFacts): Headers {
    const names = this.#names;
    const { model, deprecation, sale, replica, attempts = 1, remainingNano } = facts;
    const headers: Headers = {};
    headers[names.modelId] = model.id;
    headers[names.modelName] = headerText(model.name);
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
    if (sale === undefined || remainingNano === undefined) return headers;
    return addRemaining(headers, sale.request.caller, remainingNano);
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

  /** What an answer of no model says: the limits, and the balances where it was charged. */
  counted({ hold, window, request }: Sale, remainingNano: Nano | undefined): Headers {
    const headers: Headers = {};
    addRateHeaders(headers, window, request.rate, this.#clock.nowMs());
    if (remainingNano === undefined) return headers;
    this.#addAmounts(headers, hold.before);
    return addRemaining(headers, request.caller, remainingNano);
  }

  /** The balance of a caller whose answer went through no admission. */
  balanceHeaders(balances: Balances, caller: Pick<Caller, 'kind'>): Headers {
    const headers: Headers = {};
    this.#addAmounts(headers, balances);
    return addRemaining(headers, caller, balances.usdNano);
  }

  /** Balances before the request, when they are not zero. */
  #addAmounts(headers: Headers, { usdNano, diemNano }: Balances): void {
    if (usdNano > 0n) headers[this.#names.balanceUsd] = formatUsd(usdNano, WALLET_DECIMALS);
    if (diemNano > 0n) headers[this.#names.balanceDiem] = formatUsd(diemNano, WALLET_DECIMALS);
  }
}

/** What a wallet has left; a key is not told. */
function addRemaining(headers: Headers, caller: Pick<Caller, 'kind'>, remaining: Nano): Headers {
  if (caller.kind !== 'wallet') return headers;
  headers['x-balance-remaining'] = formatUsd(remaining, WALLET_DECIMALS);
  return headers;
}

/** Header values are Latin-1: anything else would be refused by Node. */
function headerText(text: string): string {
  return text.replaceAll(/[^\x20-\x7e]/g, '?');
}
