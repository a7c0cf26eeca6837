/**
 * Headers of an inference answer: model, router, balance, limits, deprecation, retries. Common
 * response headers, each when the table says so.
 */
import type { CatalogModel, DeprecationNotice } from '../catalog/catalog.ts';
import type { AnswerFacts } from './answer-facts.ts';
import { type RateRule, type Sale, addRateHeaders } from '../billing/sale.ts';
import type { Caller } from '../identity/identity.ts';
import type { Clock } from '../core/clock.ts';
import { type Nano, formatUsd } from '../core/money.ts';
import type { Balances } from '../billing/ledger/ledger.ts';
import type { RequestContext } from './request-context.ts';

/** Wallet balances are shown with 6 decimals. */
const WALLET_DECIMALS = 6;

type Headers = Record<string, string>;

/** The names that begin with the service's own. */
interface OwnNames {
  readonly modelId: string;
  readonly modelName: string;
  readonly modelRouter: string;
  readonly deprecationWarning: string;
  readonly deprecationDate: string;
  readonly balanceUsd: string;
  readonly balanceDiem: string;
}

function ownNames(serviceName: string): OwnNames {
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
  readonly #names: OwnNames;
  readonly #clock: Clock;

  constructor(parts: { readonly serviceName: string; readonly clock: Clock }) {
    this.#names = ownNames(parts.serviceName);
    this.#clock = parts.clock;
  }

  /** All of a complete answer. */
  answered(facts: AnswerFacts): Headers {
    const headers = this.model(facts.model, facts.deprecation);
    this.#addAdmitted(headers, facts.admission, facts.rate);
    Object.assign(headers, facts.flags);
    if (facts.replica !== undefined) headers[this.#names.modelRouter] = facts.replica;
    if (facts.attempts > 1) headers['x-retry-count'] = String(facts.attempts - 1);
    return addRemaining(headers, facts.admission.request.caller, facts.remainingNano);
  }

  /** What an answer says of the model as soon as that is known, a refusal included. */
  model(model: CatalogModel, deprecation: DeprecationNotice | undefined): Headers {
    const names = this.#names;
    const headers: Headers = {};
    headers[names.modelId] = model.id;
    headers[names.modelName] = headerText(model.name);
    if (deprecation === undefined) return headers;
    headers[names.deprecationWarning] = headerText(deprecation.warning);
    headers[names.deprecationDate] = deprecation.date;
    return headers;
  }

  /** What an answer says of balance and limits once the request is admitted. */
  admitted(admission: Sale, rate: RateRule): Headers {
    const headers: Headers = {};
    this.#addAdmitted(headers, admission, rate);
    return headers;
  }

  /** The balances of a request whose limits the answer does not show. */
  charged(admission: Sale, remainingNano: Nano): Headers {
    const headers: Headers = {};
    this.#addAmounts(headers, admission.hold.before);
    return addRemaining(headers, admission.request.caller, remainingNano);
  }

  /** The balance of a caller whose answer went through no admission. */
  balanceHeaders(balances: Balances, caller: Pick<Caller, 'kind'>): Headers {
    const headers: Headers = {};
    this.#addAmounts(headers, balances);
    return addRemaining(headers, caller, balances.usdNano);
  }

  #addAdmitted(headers: Headers, { hold, window }: Sale, rate: RateRule): void {
    this.#addAmounts(headers, hold.before);
    addRateHeaders(headers, window, rate, this.#clock.nowMs());
  }

  /** Balances before the request, when they are not zero. */
  #addAmounts(headers: Headers, { usdNano, diemNano }: Balances): void {
    if (usdNano > 0n) headers[this.#names.balanceUsd] = formatUsd(usdNano, WALLET_DECIMALS);
    if (diemNano > 0n) headers[this.#names.balanceDiem] = formatUsd(diemNano, WALLET_DECIMALS);
  }
}

/**
 * The headers of one answer while its flow runs: set once, with the answer, or with the refusal as
 * far as things were known by then.
 */
export class GatheredHeaders {
  readonly #context: RequestContext;
  readonly #make: AnswerHeaders;
  #model:
    | { readonly model: CatalogModel; readonly deprecation: DeprecationNotice | undefined }
    | undefined;
  #admitted: { readonly admission: Sale; readonly rate: RateRule } | undefined;

  constructor(context: RequestContext, make: AnswerHeaders) {
    this.#context = context;
    this.#make = make;
  }

  resolved(model: CatalogModel, deprecation: DeprecationNotice | undefined): void {
    this.#model = { model, deprecation };
  }

  admitted(admission: Sale, rate: RateRule): void {
    this.#admitted = { admission, rate };
  }

  answered(facts: AnswerFacts): void {
    this.#context.setAll(this.#make.answered(facts));
  }

  /** Runs a flow; a refusal that it throws says what the flow had learned. */
  async during<T>(flow: () => Promise<T>): Promise<T> {
    try {
      return await flow();
    } catch (error) {
      const { model, deprecation } = this.#model ?? {};
      if (model !== undefined) this.#context.setAll(this.#make.model(model, deprecation));
      const admitted = this.#admitted;
      if (admitted !== undefined) {
        this.#context.setAll(this.#make.admitted(admitted.admission, admitted.rate));
      }
      throw error;
    }
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
