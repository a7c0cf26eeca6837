/**
 * Headers of an inference answer: model, router, balance, limits, deprecation, retries. Common
 * response headers, each when the table says so.
 */
import type { CatalogModel, DeprecationNotice } from '../catalog/catalog.ts';
import type { Admission, RateRule } from '../flows/charge.ts';
import { rateHeaders } from '../flows/charge.ts';
import type { Caller } from '../identity/identity.ts';
import { type Nano, formatUsd } from '../kernel/money.ts';

export interface AnswerFacts {
  readonly model: CatalogModel;
  readonly deprecation: DeprecationNotice | undefined;
  readonly admission: Admission;
  readonly rate: RateRule;
  readonly replica: string | undefined;
  readonly attempts: number;
  readonly flags: Readonly<Record<string, string>>;
  readonly remainingNano: Nano;
}

/** Wallet balances are shown with 6 decimals. */
const WALLET_DECIMALS = 6;

export function answerHeaders(
  facts: AnswerFacts,
  serviceName: string,
  nowMs: number,
): Record<string, string> {
  const headers: Record<string, string> = {
    ...modelHeaders(facts.model, facts.deprecation, serviceName),
    ...admissionHeaders(facts.admission, facts.rate, serviceName, nowMs),
    ...facts.flags,
  };
  if (facts.replica !== undefined) headers[`x-${serviceName}-model-router`] = facts.replica;
  if (facts.attempts > 1) headers['x-retry-count'] = String(facts.attempts - 1);
  if (facts.admission.request.caller.kind === 'wallet') {
    headers['x-balance-remaining'] = formatUsd(facts.remainingNano, WALLET_DECIMALS);
  }
  return headers;
}

/** What an answer says of the model as soon as that is known, a refusal included. */
export function modelHeaders(
  model: CatalogModel,
  deprecation: DeprecationNotice | undefined,
  serviceName: string,
): Record<string, string> {
  const prefix = `x-${serviceName}-model-`;
  const headers: Record<string, string> = {
    [`${prefix}id`]: model.id,
    [`${prefix}name`]: headerText(model.name),
  };
  if (deprecation === undefined) return headers;
  headers[`${prefix}deprecation-warning`] = headerText(deprecation.warning);
  headers[`${prefix}deprecation-date`] = deprecation.date;
  return headers;
}

/** What an answer says of balance and limits once the request is admitted. */
export function admissionHeaders(
  admission: Admission,
  rate: RateRule,
  serviceName: string,
  nowMs: number,
): Record<string, string> {
  return {
    ...balanceHeaders(admission, `x-${serviceName}-`),
    ...rateHeaders(admission.window, rate, nowMs),
  };
}

/** The balance of a caller whose answer went through no admission. */
export function standingHeaders(
  balances: { readonly usdNano: Nano; readonly diemNano: Nano },
  caller: Pick<Caller, 'kind'>,
  serviceName: string,
): Record<string, string> {
  const headers = amountHeaders(balances, `x-${serviceName}-`);
  if (caller.kind === 'wallet') {
    headers['x-balance-remaining'] = formatUsd(balances.usdNano, WALLET_DECIMALS);
  }
  return headers;
}

/** Balances before the request, when they are not zero. */
export function balanceHeaders(admission: Admission, prefix: string): Record<string, string> {
  return amountHeaders(admission.hold.before, prefix);
}

function amountHeaders(
  { usdNano, diemNano }: { readonly usdNano: Nano; readonly diemNano: Nano },
  prefix: string,
): Record<string, string> {
  const headers: Record<string, string> = {};
  if (usdNano > 0n) headers[`${prefix}balance-usd`] = formatUsd(usdNano, WALLET_DECIMALS);
  if (diemNano > 0n) headers[`${prefix}balance-diem`] = formatUsd(diemNano, WALLET_DECIMALS);
  return headers;
}

/** Header values are Latin-1: anything else would be refused by Node. */
function headerText(text: string): string {
  return text.replaceAll(/[^\x20-\x7e]/g, '?');
}
