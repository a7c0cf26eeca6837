/** What an account sees of itself, wired: keys, limits, usage, billing. */
import { apiKeyRoutes } from './api-keys.ts';
import { billingRoutes } from './billing.ts';
import { ManageKeys } from './manage-keys.ts';
import { rateLimitRoutes } from './rate-limits.ts';
import { usageRoutes } from './usage.ts';
import { callerRate } from '../http/caller-limits.ts';
import type { Ledger } from '../billing/ledger/ledger.ts';
import type { LimitLog, Windows } from '../billing/limits/limits.ts';
import type { Catalog } from '../catalog/catalog.ts';
import type { Config } from '../config/config.ts';
import type { Clock } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import { usdToNano } from '../core/money.ts';
import type { Store } from '../db/db.ts';
import type { Identity } from '../identity/identity.ts';
import type { Payments } from '../payments/payments.ts';
import type { Feature } from '../http/feature.ts';

export interface AccountParts {
  readonly config: () => Config;
  readonly stores: { readonly store: Store; readonly identity: Identity; readonly ledger: Ledger };
  readonly catalog: Catalog;
  readonly windows: Windows;
  readonly limitLog: LimitLog;
  readonly clock: Clock;
  readonly ids: Ids;
}

export function accountFeature(parts: AccountParts, payments: Payments | undefined): Feature {
  const { stores, catalog, clock } = parts;
  const { store, identity, ledger } = stores;
  const limits = () => parts.config().limits;
  const minimumCreditNano = () => usdToNano(limits().minimumCreditUsd);
  const modelIdOf = (name: string): string | undefined =>
    catalog.get(name)?.id ?? catalog.models().find((model) => model.aliases.includes(name))?.id;
  const keys = new ManageKeys({ ...parts, store, identity, ledger, limits, modelIdOf });
  return {
    routes: [
      ...apiKeyRoutes({ payments, identity, keys, clock }),
      ...rateLimitRoutes({
        ...parts,
        identity,
        ledger,
        minimumCreditNano,
        rateOf: (caller, model) => callerRate(limits(), caller, model),
      }),
      ...usageRoutes({ store, clock }),
      ...billingRoutes({ ledger, store, minimumCreditNano }),
    ],
  };
}
