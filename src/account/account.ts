/** The routes of accounts and of the operator about accounts: keys, limits, usage, billing. */
import { activityRoutes } from './activity.ts';
import { apiKeyRoutes } from './api-keys.ts';
import { billingRoutes } from './billing.ts';
import { budgetRoutes } from './budgets.ts';
import { childKeyRoutes } from './child-keys.ts';
import { creditRoutes } from './credits.ts';
import { PriceKeeper } from './receipts.ts';
import { type EventParts, eventRoutes } from './events.ts';
import { memberRoutes } from './members.ts';
import { operatorAccountRoutes } from './operator/operator-accounts.ts';
import { operatorBudgetRoutes } from './operator/operator-budgets.ts';
import { operatorKeyRoutes } from './operator/operator-keys.ts';
import { operatorRequestRoutes } from './operator/operator-requests.ts';
import { operatorRefundRoutes } from './operator/operator-refunds.ts';
import { operatorUsageRoutes } from './operator/operator-usage.ts';
import { rateLimitRoutes } from './rate-limits.ts';
import { usageRoutes } from './usage.ts';
import { addReportDays } from '../billing/ledger/ledger.ts';
import type { Feature } from '../http/route.ts';
import type { Payments, Signing } from '../payments/payments.ts';

export type { EndpointLimits } from './account-parts.ts';
export { explainRequest } from './operator/explain-request.ts';

export function accountFeature(
  parts: EventParts,
  payments: Payments | undefined,
  signing: Signing | undefined,
): Feature {
  const prices = new PriceKeeper(parts);
  return {
    perProcessJob: () => prices.keep(),
    leaderJob: async () => {
      await parts.stores.ledger.dropEndedBudgets();
      const { clock, log } = parts;
      await addReportDays({ store: parts.stores.store, clock, log });
    },
    start: () => void prices.keep().catch(() => undefined), // the job tries again
    routes: [
      ...apiKeyRoutes(parts, payments),
      ...childKeyRoutes(parts),
      ...budgetRoutes(parts),
      ...rateLimitRoutes(parts),
      ...usageRoutes(parts, signing),
      ...activityRoutes(parts),
      ...billingRoutes(parts),
      ...creditRoutes(parts),
      ...eventRoutes(parts),
      ...memberRoutes(parts),
      ...operatorAccountRoutes(parts),
      ...operatorRefundRoutes(parts, payments),
      ...operatorKeyRoutes(parts),
      ...operatorBudgetRoutes(parts),
      ...operatorUsageRoutes(parts),
      ...operatorRequestRoutes(parts),
    ],
  };
}
