/** What an account sees of itself, wired: keys, limits, usage, billing. */
import type { AccountParts } from './account-parts.ts';
import { activityRoutes } from './activity.ts';
import { apiKeyRoutes } from './api-keys.ts';
import { billingRoutes } from './billing.ts';
import { PriceKeeper } from './receipts.ts';
import { rateLimitRoutes } from './rate-limits.ts';
import { usageRoutes } from './usage.ts';
import type { Feature } from '../http/route.ts';
import type { Payments } from '../payments/payments.ts';

export type { EndpointLimits } from './account-parts.ts';

export function accountFeature(parts: AccountParts, payments: Payments | undefined): Feature {
  const kept = new PriceKeeper(parts);
  return {
    perProcessJob: () => kept.keep(),
    start: () => void kept.keep().catch(() => undefined), // the database is away: the job tries again
    routes: [
      ...apiKeyRoutes(parts, payments),
      ...rateLimitRoutes(parts),
      ...usageRoutes(parts),
      ...activityRoutes(parts),
      ...billingRoutes(parts),
    ],
  };
}
