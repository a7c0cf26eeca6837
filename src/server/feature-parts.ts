/** Dependencies that all features share. */
import type { Catalog, CatalogModel } from '../catalog/catalog.ts';
import type { ConfigInForce } from '../config/config.ts';
import type { Engines } from '../engines/engines.ts';
import type { RateRule, Sales } from '../billing/sale.ts';
import type { Clock } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import type { Log } from '../core/log.ts';
import type { LimitLog, Windows } from '../billing/limits/limits.ts';
import { type Caller, walletOfAccount } from '../identity/identity.ts';
import type { Guard } from '../net/guard.ts';
import type { FailureLog } from '../observability/failure-log.ts';
import type { Stores } from './stores.ts';

export interface FeatureParts {
  /** Current settings. Features keep the first value of sections that need a restart. */
  readonly config: ConfigInForce;
  readonly stores: Stores;
  readonly catalog: Catalog;
  readonly engines: Engines;
  readonly sales: Sales;
  readonly windows: Windows;
  readonly limitLog: LimitLog;
  readonly failureLog: FailureLog;
  /** Returns the rate limit of a caller for a model, by the current settings. */
  readonly rateOf: (caller: Caller, model: CatalogModel) => RateRule;
  /** The only way to fetch a URL from a caller. */
  readonly guard: Guard;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
}

/** Throws 402 for a wallet without credit: wallets are free, so that one caller can have any number. */
export function walletCredit({ sales }: Pick<FeatureParts, 'sales'>) {
  return async (caller: Caller): Promise<void> => {
    if (walletOfAccount(caller.accountId) !== undefined) await sales.requireCredit(caller);
  };
}
