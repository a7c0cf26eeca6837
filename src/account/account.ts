/** What an account sees of itself, wired: keys, limits, usage, billing. */
import type { AccountParts } from './account-parts.ts';
import { apiKeyRoutes } from './api-keys.ts';
import { billingRoutes } from './billing.ts';
import { rateLimitRoutes } from './rate-limits.ts';
import { usageRoutes } from './usage.ts';
import type { Feature } from '../http/route.ts';
import type { Payments } from '../payments/payments.ts';

export function accountFeature(parts: AccountParts, payments: Payments | undefined): Feature {
  return {
    routes: [
      ...apiKeyRoutes(parts, payments),
      ...rateLimitRoutes(parts),
      ...usageRoutes(parts),
      ...billingRoutes(parts),
    ],
  };
}
