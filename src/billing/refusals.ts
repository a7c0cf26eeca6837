/** Rejections of requests that may not run: 429 for limits, 402 for money and caps. */
import { isoTimeOrNull } from '../core/clock.ts';
import type { Caller } from '../identity/identity.ts';
import { Fault } from '../core/faults.ts';
import { type Nano, formatUsd, larger, nano, toUsdNumber } from '../core/money.ts';
import type { CapRefusal, HoldRefusal } from './ledger/ledger.ts';
import type { PaymentTooSmall } from './take-payment.ts';
import { type RateRule, type WindowState, rateHeaders } from './limits/limits.ts';

/** Short, because the server's own wait is over and the client's retry waits again. */
const HELD_RETRY_SECONDS = 1;

export type WalletRefusal = (
  caller: Caller,
  credit: {
    readonly balance: Nano;
    readonly needed: Nano;
    /** The most that the payment of the request may spend; `undefined` if the account pays. */
    readonly signed?: Nano | undefined;
  },
) => Promise<Fault>;

export interface MoneyRefusals {
  readonly minimumCreditNano: () => Nano;
  readonly walletRefusal: WalletRefusal;
}

export function limitRefusal(
  modelId: string,
  rate: RateRule,
  reason: 'requests' | 'tokens',
  state: WindowState,
  nowMs: number,
): Fault {
  const limit = reason === 'requests' ? state.requestLimit : state.tokenLimit;
  const seconds = Math.max(1, Math.ceil((state.resetsAtMs - nowMs) / 1_000));
  return new Fault('RATE_LIMIT_EXCEEDED', {
    message: `The limit of ${limit} ${reason} per minute for ${modelId} is reached; try again in ${seconds} s`,
    retryAfterSeconds: seconds,
    headers: rateHeaders(state, rate, nowMs),
  });
}

/** Returns the error for a request that costs at least `minNano` and could not be held. */
export async function moneyRefusal(
  { minimumCreditNano, walletRefusal }: MoneyRefusals,
  caller: Caller,
  minNano: Nano,
  refusal: HoldRefusal | PaymentTooSmall,
): Promise<Fault> {
  if (refusal.reason === 'held') return creditHeld();
  const isWallet = caller.kind === 'wallet';
  const needed = larger(minNano, minimumCreditNano());
  if (refusal.reason === 'payment') {
    const { limitNano: signed } = refusal;
    return walletRefusal(caller, { balance: signed, needed, signed });
  }
  if (refusal.reason !== 'balance') {
    return capRefusal(refusal, caller);
  }
  if (isWallet) return walletRefusal(caller, { balance: refusal.postedNano, needed });
  return new Fault('INSUFFICIENT_BALANCE', {
    message: `The balance is too low for this request: ${formatUsd(refusal.postedNano, 6)} USD is posted and at least ${formatNeeded(needed)} USD is needed; add credit (INSUFFICIENT_BALANCE)`,
    fields: creditFields(refusal.postedNano, needed),
  });
}

function creditFields(balanceNano: Nano, neededNano: Nano): Readonly<Record<string, number>> {
  return {
    currentBalanceUsd: toUsdNumber(balanceNano),
    minimumBalanceUsd: toUsdNumber(neededNano),
  };
}

const NANO_PER_MICRO = 1_000n;

/** Rounded up, so that a balance of the printed amount is enough for the request. */
function formatNeeded(neededNano: Nano): string {
  const micro = (neededNano + NANO_PER_MICRO - 1n) / NANO_PER_MICRO;
  return formatUsd(nano(micro * NANO_PER_MICRO), 6);
}

export async function expensiveRefusal(
  { minimumCreditNano, walletRefusal }: MoneyRefusals,
  caller: Caller,
  spendableNano: Nano,
  neededNano: Nano,
): Promise<Fault> {
  if (spendableNano >= neededNano) return creditHeld();
  const needed = larger(neededNano, minimumCreditNano());
  if (caller.kind === 'wallet') {
    const signed = caller.payment?.limitNano;
    return walletRefusal(caller, { balance: spendableNano, needed, signed });
  }
  return new Fault('INSUFFICIENT_BALANCE', {
    fields: creditFields(spendableNano, needed),
    message: `The balance is too low for this request: with its files, pages and search results it can cost ${formatNeeded(neededNano)} USD and ${formatUsd(spendableNano, 6)} USD are available; add credit (INSUFFICIENT_BALANCE)`,
  });
}

export function withHeaders(fault: Fault, headers: Readonly<Record<string, string>>): Fault {
  const { code, message, options } = fault;
  return new Fault(code, { ...options, message, headers: { ...options.headers, ...headers } });
}

/** Running requests hold the credit: the same request can succeed shortly. */
function creditHeld(): Fault {
  return new Fault('CREDIT_HELD', { retryAfterSeconds: HELD_RETRY_SECONDS });
}

function capRefusal(
  refusal: CapRefusal,
  { kind, capId: ownId }: Pick<Caller, 'kind' | 'capId'>,
): Fault {
  const isUsd = refusal.reason === 'cap-usd';
  const currency = isUsd ? 'USD' : 'DIEM';
  const resetsAt = isoTimeOrNull(refusal.resetsAtMs);
  const resets = resetsAt === null ? 'it does not reset' : `it resets at ${resetsAt}`;
  const { budgetId, capId } = refusal;
  const ofKey =
    capId === ownId
      ? `spend limit of this ${kind === 'wallet' ? 'wallet token' : 'API key'}`
      : `spend limit of the API key ${capId}, which made this one,`;
  const what = budgetId === undefined ? ofKey : `budget ${budgetId}`;
  const amount = formatUsd(refusal.limitNano, 6);
  const spent = formatUsd(refusal.spentNano, 6);
  return new Fault(
    isUsd ? 'API_KEY_USD_SPEND_LIMIT_EXCEEDED' : 'API_KEY_DIEM_SPEND_LIMIT_EXCEEDED',
    {
      message: `The ${what} is reached: ${spent} of ${amount} ${currency} is spent; ${resets}`,
      canRetry: false,
      fields: { limit: { currency, amount, spent, resetsAt } },
    },
  );
}
