/**
 * The 200 bodies of the wallet endpoints.
 */
import { type Nano, formatUsd, toUsdNumber } from '../core/money.ts';
import type { Amounts } from './settings.ts';
import type { TopUpReceipt } from './top-up-records.ts';

/** The 200 body of a top-up; one that is only shown again says so in place of the balance. */
export function topUpBody(receipt: TopUpReceipt): Readonly<Record<string, unknown>> {
  return {
    success: true,
    data: {
      walletAddress: receipt.wallet,
      amountCredited: toUsdNumber(receipt.amountNano),
      ...(receipt.newBalanceNano === undefined
        ? { alreadyCredited: true }
        : { newBalance: toUsdNumber(receipt.newBalanceNano) }),
      paymentId: receipt.paymentId,
    },
  };
}

/** The 200 body of `GET /x402/balance/{walletAddress}`. `daily` only for linked staking accounts. */
export function balanceBody(
  wallet: string,
  balance: Nano,
  amounts: Amounts,
  daily?: Nano,
): Readonly<Record<string, unknown>> {
  return {
    success: true,
    data: {
      walletAddress: wallet,
      balanceUsd: Number(formatUsd(balance, 6)),
      canConsume: balance + (daily ?? 0n) >= amounts.minimumBalance,
      minimumTopUpUsd: toUsdNumber(amounts.minimumTopUp),
      suggestedTopUpUsd: toUsdNumber(amounts.suggestedTopUp),
      ...(daily === undefined ? {} : { diemBalanceUsd: Number(formatUsd(daily, 6)) }),
    },
  };
}
