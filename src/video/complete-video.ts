/** The complete flow: a caller is done with a video, and its media is deleted. Free, and harmless twice. */
import type { Catalog } from '../catalog/catalog.ts';
import type { Caller } from '../identity/identity.ts';
import type { Nano } from '../core/money.ts';
import type { Video, VideoCompleteRequest } from './video.ts';
import type { Sales } from '../billing/sale.ts';
import { videoModelIds, walletBalance } from './retrieve-video.ts';

export interface CompleteVideoParts {
  readonly catalog: Catalog;
  readonly sales: Sales;
  readonly video: Video;
}

/** Deletes the media of a job. Returns the balance to show to a wallet. Throws 404, 400. */
export async function completeVideo(
  parts: CompleteVideoParts,
  caller: Caller,
  request: VideoCompleteRequest,
): Promise<Nano | undefined> {
  await parts.video.complete({
    accountId: caller.accountId,
    queueId: request.queue_id,
    modelIds: videoModelIds(parts.catalog, request.model),
  });
  return await walletBalance(parts.sales, caller);
}
