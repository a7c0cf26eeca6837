/** What an account sees of itself, wired: keys, limits, usage, billing. */
import { apiKeyRoutes } from '../api/routes/api-keys/api-keys.ts';
import { walletKeyRoutes } from '../api/routes/api-keys-web3/api-keys-web3.ts';
import { rateLimitRoutes } from '../api/routes/api-keys-rate-limits/api-keys-rate-limits.ts';
import { billingRoutes } from '../api/routes/billing/billing.ts';
import { usageRoutes } from '../api/routes/usage/usage.ts';
import { callerRate } from '../flows/caller-limits.ts';
import { ManageKeys } from '../flows/manage-keys.ts';
import { UsageReports } from '../flows/usage-reports.ts';
import { usdToNano } from '../kernel/money.ts';
import type { Payments } from '../payments/payments.ts';
import type { Shared, Subject } from './subject.ts';

export function accountSubject(shared: Shared, payments: Payments | undefined): Subject {
  const { office, catalog, clock } = shared;
  const { store, identity, ledger } = office;
  const limits = () => shared.config().limits;
  const minimumCreditNano = () => usdToNano(limits().minimumCreditUsd);
  const modelIdOf = (name: string): string | undefined =>
    catalog.get(name)?.id ?? catalog.models().find((model) => model.aliases.includes(name))?.id;
  const keys = new ManageKeys({ ...shared, store, identity, ledger, limits, modelIdOf });
  const reports = new UsageReports(store);
  return {
    routes: [
      ...apiKeyRoutes({ keys, clock }),
      ...walletKeyRoutes({ payments, identity, keys, clock }),
      ...rateLimitRoutes({
        ...shared,
        identity,
        ledger,
        minimumCreditNano,
        rateOf: (caller, model) => callerRate(limits(), caller, model),
      }),
      ...usageRoutes({ reports, clock }),
      ...billingRoutes({ ledger, reports, minimumCreditNano }),
    ],
  };
}
