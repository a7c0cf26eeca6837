/**
 * The cancel flow: a caller does not want a video any more. What was set aside for it is free again;
 * a video that is made already is to be paid.
 */
import type { Catalog } from '../catalog/catalog.ts';
import type { Caller } from '../identity/identity.ts';
import type { Nano } from '../core/money.ts';
import type { Video, VideoCancelRequest, VideoJob } from './video.ts';
import type { Sales } from '../billing/sale.ts';
import { videoModelIds, walletBalance } from './retrieve-video.ts';

export interface CancelVideoParts {
  readonly catalog: Catalog;
  readonly sales: Sales;
  readonly video: Video;
}

export interface CancelledVideo {
  readonly job: VideoJob;
  /** To show to a wallet. */
  readonly balanceNano: Nano | undefined;
}

/** Ends a job of the caller. Throws 404, 400. */
export async function cancelVideo(
  parts: CancelVideoParts,
  caller: Caller,
  request: VideoCancelRequest,
): Promise<CancelledVideo> {
  const job = await parts.video.cancel({
    accountId: caller.accountId,
    queueId: request.queue_id,
    modelIds: videoModelIds(parts.catalog, request.model),
  });
  return { job, balanceNano: await walletBalance(parts.sales, caller) };
}
