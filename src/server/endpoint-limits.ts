/** Limits of routes without a model, for `GET /api_keys/rate_limits`. */
import type { EndpointLimits } from '../account/account.ts';
import type { WindowState } from '../billing/limits/limits.ts';
import { type LimitOf, limitRefusal } from '../billing/sale.ts';
import { type Config, rpcLimitsOf } from '../config/config.ts';
import type { Clock } from '../core/clock.ts';
import type { Caller } from '../identity/identity.ts';
import { creditCap, RPC_ENDPOINT, rpcLimit } from '../rpc/proxy-rpc.ts';
import type { Credits } from '../rpc/rpc.ts';
import { retrieveLimit } from '../video/video-generation/video-generation.ts';
import type { FeatureParts } from './feature-parts.ts';

const UNSOLD = 'unsold';
const UNSOLD_ENDPOINTS = 'endpoint:api/v1/*';

/** Returns the limit of all unpriced routes together, which each account has. */
export function unsoldLimit(
  { limits }: Config,
  clock: Clock,
  caller: Caller,
  loggedAs = UNSOLD_ENDPOINTS,
): LimitOf {
  const rate = {
    requestsPerMinute: limits.unsoldPerMinute,
    tokensPerMinute: 0,
    type: 'user',
  } as const;
  const refusal = (state: WindowState) =>
    limitRefusal('requests that cost nothing', rate, 'requests', state, clock.nowMs());
  return { caller, modelId: UNSOLD, rate, ownLimit: { bucket: UNSOLD, loggedAs, refusal } };
}

export function accountParts<T extends FeatureParts>(
  shared: T,
  server: { readonly isClosing: boolean },
  credits: Credits,
) {
  const isClosing = () => server.isClosing;
  return { ...shared, endpointLimits: endpointLimits(shared, credits), isClosing };
}

function endpointLimits({ config, clock }: FeatureParts, credits: Credits): EndpointLimits {
  const rpcLimits = (plan: string) => rpcLimitsOf(config.current, plan);
  return {
    of: (caller) => {
      const { resolvedPlans, rpc } = config.current;
      const video = retrieveLimit({ plans: () => resolvedPlans, clock }, caller);
      const unsold = unsoldLimit(config.current, clock, caller);
      return rpc.enabled
        ? [rpcLimit({ limits: rpcLimits }, caller), video, unsold]
        : [video, unsold];
    },
    credits: async (caller) => {
      const { rpc } = config.current;
      if (!rpc.enabled) return undefined;
      const { counted, cap: amount } = creditCap({ limits: rpcLimits }, caller);
      return { endpoint: RPC_ENDPOINT, amount, used: await credits.used(counted) };
    },
  };
}
