/** Where requests are paid, wired: rate windows, admission, the hold and its settle. */
import type { Config } from '../config/config.ts';
import { Charge, type ChargeParts } from '../billing/sale.ts';
import type { Clock } from '../core/clock.ts';
import type { Log } from '../core/log.ts';
import { usdToNano } from '../core/money.ts';
import type { LimitLog, Windows } from '../billing/limits/limits.ts';
import type { Stores } from './stores.ts';
import { perConfig } from '../config/per-config.ts';
import { sharedLimits } from './shared-limits.ts';
import type { Wallets } from '../wallet/wallet.ts';

export type OnSettle = NonNullable<ChargeParts['settled']>;

export interface SaleSetup {
  readonly config: () => Config;
  readonly stores: Stores;
  readonly limitLog: LimitLog;
  readonly clock: Clock;
  readonly log: Log;
  readonly wallets: Wallets;
  /** Told of every settle. */
  readonly settled: OnSettle;
}

export interface SaleParts {
  readonly charge: Charge;
  readonly windows: Windows;
  readonly limitLog: LimitLog;
}

export function openSale(parts: SaleSetup): SaleParts {
  const { config, stores, limitLog, clock, log, wallets, settled } = parts;
  const { windows, admissions } = sharedLimits(stores, clock);
  const charge = new Charge({
    ledger: stores.ledger,
    windows,
    admissions,
    limitLog,
    clock,
    log,
    minimumCreditNano: perConfig(config, ({ limits }) => usdToNano(limits.minimumCreditUsd)),
    walletRefusal: (caller, credit) => wallets.refusal(caller, credit),
    settled,
  });
  return { charge, windows, limitLog };
}
