/**
 * The retrieve flow: how far a caller's video is, or the video. Looking is free; it has a rate limit
 * of its own beside that of queueing.
 */
import type { Catalog } from '../catalog/catalog.ts';
import type { LimitsSection } from '../config/config.ts';
import type { Caller } from '../identity/identity.ts';
import type { Nano } from '../core/money.ts';
import type { Retrieval, Video, VideoRetrieveRequest } from './video.ts';
import type { Counted, RateRule, Sales } from '../billing/sale.ts';

export interface RetrieveVideoParts {
  readonly catalog: Catalog;
  readonly sales: Sales;
  readonly video: Video;
  readonly limits: () => LimitsSection;
}

export interface RetrievedVideo {
  readonly retrieval: Retrieval;
  readonly rate: RateRule;
  readonly counted: Counted;
  /** Posted USD, for wallets. */
  readonly balanceNano: Nano | undefined;
}

const BUCKET = 'video-retrieve';

/** What a caller gets for its job now. Throws the failure of a failed job. */
export async function retrieveVideo(
  parts: RetrieveVideoParts,
  caller: Caller,
  request: VideoRetrieveRequest,
): Promise<RetrievedVideo> {
  const rate = retrieveRate(parts.limits(), caller);
  const counted = await parts.sales.count({ caller, modelId: BUCKET, rate, tokensEstimate: 0 });
  const retrieval = await parts.video.retrieve({
    accountId: caller.accountId,
    queueId: request.queue_id,
    modelIds: videoModelIds(parts.catalog, request.model),
  });
  const balanceNano = await walletBalance(parts.sales, caller);
  return { retrieval, rate, counted, balanceNano };
}

/** What the balance header shows to a wallet; keys get none. */
export async function walletBalance(sales: Sales, caller: Caller): Promise<Nano | undefined> {
  return caller.kind === 'wallet' ? await sales.balanceOf(caller) : undefined;
}

/**
 * The ids under which jobs of a named model may have been queued: the one that serves the name now,
 * and the name itself, since a replaced model or one that is gone still has its jobs.
 */
export function videoModelIds(
  catalog: Catalog,
  name: string | undefined,
): readonly string[] | undefined {
  if (name === undefined) return undefined;
  const resolution = catalog.resolve(name, 'video');
  return resolution.ok ? [resolution.model.id, name] : [name];
}

function retrieveRate(limits: LimitsSection, caller: Caller): RateRule {
  const ofPlan = limits.plans[caller.plan].videoRetrieve;
  const ofKey = caller.keyLimits.requestsPerMinute;
  if (ofKey !== undefined) return { requestsPerMinute: ofKey, tokensPerMinute: 0, type: 'api_key' };
  const requestsPerMinute = caller.accountLimits.requestsPerMinute ?? ofPlan;
  return { requestsPerMinute, tokensPerMinute: 0, type: 'user' };
}
