/** What a request takes from the window of its rate limit. */
import type { WindowResult, WindowTake } from './limits/limits.ts';
import type { CountRequest } from './sale-request.ts';

/** Work of a batch runs when there is room to spare: the limits of a minute are not for it. */
export const UNCOUNTED: WindowResult & { readonly ok: true } = {
  ok: true,
  state: { requestLimit: 0, requestsLeft: 0, tokenLimit: 0, tokensLeft: 0, resetsAtMs: 0 },
  reserved: { bucket: '', minute: 0, tokens: 0 },
};

export function takeOf(request: CountRequest): WindowTake {
  const { caller, modelId, rate, ownLimit } = request;
  return {
    // As `bucketOf`: this is on the way of every request.
    bucket: `${rate.type === 'api_key' ? (caller.limitKeyId ?? caller.keyId) : caller.accountId}|${ownLimit?.bucket ?? modelId}`,
    tokens: request.tokensEstimate,
    requestLimit: rate.requestsPerMinute,
    tokenLimit: rate.tokensPerMinute,
  };
}
