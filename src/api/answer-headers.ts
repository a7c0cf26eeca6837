/**
 * Headers of an inference answer: model, router, balance, limits, deprecation, retries. Common
 * response headers, each when the table says so.
 */
import type { CatalogModel, DeprecationNotice } from '../catalog/catalog.ts';
import type { Admission, RateRule } from '../flows/charge.ts';
import { rateHeaders } from '../flows/charge.ts';
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
  const prefix = `x-${serviceName}-`;
  const headers: Record<string, string> = {
    [`${prefix}model-id`]: facts.model.id,
    [`${prefix}model-name`]: headerText(facts.model.name),
    ...balanceHeaders(facts.admission, prefix),
    ...rateHeaders(facts.admission.window, facts.rate, nowMs),
    ...facts.flags,
  };
  if (facts.replica !== undefined) headers[`${prefix}model-router`] = facts.replica;
  if (facts.attempts > 1) headers['x-retry-count'] = String(facts.attempts - 1);
  if (facts.deprecation !== undefined) {
    headers[`${prefix}model-deprecation-warning`] = headerText(facts.deprecation.warning);
    headers[`${prefix}model-deprecation-date`] = facts.deprecation.date;
  }
  if (facts.admission.request.caller.kind === 'wallet') {
    headers['x-balance-remaining'] = formatUsd(facts.remainingNano, WALLET_DECIMALS);
  }
  return headers;
}

/** Balances before the request, when they are not zero. */
export function balanceHeaders(admission: Admission, prefix: string): Record<string, string> {
  const { usdNano, diemNano } = admission.hold.before;
  const headers: Record<string, string> = {};
  if (usdNano > 0n) headers[`${prefix}balance-usd`] = formatUsd(usdNano, WALLET_DECIMALS);
  if (diemNano > 0n) headers[`${prefix}balance-diem`] = formatUsd(diemNano, WALLET_DECIMALS);
  return headers;
}

/** Header values are Latin-1: anything else would be refused by Node. */
function headerText(text: string): string {
  return text.replaceAll(/[^\x20-\x7e]/g, '?');
}
