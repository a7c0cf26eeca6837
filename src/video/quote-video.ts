/**
 * `POST /video/quote`: the price of a video, without authentication. Only an upscale has to read a
 * file; these reads are limited in number per address, size and time.
 */
import { requireRegion, withPrices } from '../http/model-sale.ts';
import type { Catalog } from '../catalog/catalog.ts';
import { FairShare } from '../core/fair-share.ts';
import { Fault } from '../core/faults.ts';
import { toUsdNumber } from '../core/money.ts';
import type { MediaFiles } from '../documents/media-files.ts';
import type { Media, MediaCall } from '../engines/media/media.ts';
import { type LimitParts, limitRequests } from '../http/limit-requests.ts';
import { type ReadLargeJson, readJson } from '../http/read-request.ts';
import type { RequestContext } from '../http/request-context.ts';
import { checkQuote, requireVideoSettings } from './model-checks.ts';
import { type SourceFacts, quoteVideo } from './video-pricing.ts';
import { VideoQuoteRequest } from './video-requests.ts';

export interface QuoteVideoParts extends LimitParts {
  readonly catalog: Catalog;
  readonly files: MediaFiles;
  readonly media: () => Promise<Media>;
  readonly maxBytes: number;
  readonly readLargeJson: ReadLargeJson;
}

/** Quotes that read a file: per caller and minute, and concurrently on the server, shared by callers. */
const READS_PER_MINUTE = 10;
const CONCURRENT_READS = 4;
const TOO_MANY = `At most ${READS_PER_MINUTE} quotes that read a video file per minute, and ${CONCURRENT_READS} at once on this server`;
const READ_TIMEOUT_MS = 60_000;
const MS_PER_SECOND = 1_000;

export class VideoQuotes {
  readonly #parts: QuoteVideoParts;
  readonly #reads = new FairShare(CONCURRENT_READS);

  constructor(parts: QuoteVideoParts) {
    this.#parts = parts;
  }

  /** Responds with the price of a request. Faults: 400, 404, 413, 422, 429. */
  async answer(context: RequestContext): Promise<void> {
    const { catalog, readLargeJson } = this.#parts;
    const request = await readJson(context, VideoQuoteRequest, readLargeJson);
    const found = catalog.require(request.model, 'video');
    const prices = context.callerIfKnown?.prices;
    const { model } = prices === undefined ? found : withPrices(found, prices);
    requireRegion(model, context);
    const settings = requireVideoSettings(model);
    checkQuote(settings, request);
    const seconds = request.reference_video_total_duration;
    const measured =
      settings.task === 'upscale'
        ? { source: await this.#measure(request.video_url ?? '', context) }
        : { referenceMs: seconds && Math.round(seconds * MS_PER_SECOND) };
    await context.json(200, { quote: toUsdNumber(quoteVideo(settings, request, measured)) });
  }

  async #measure(url: string, context: RequestContext): Promise<SourceFacts> {
    const { files, media, maxBytes } = this.#parts;
    const { signal } = context;
    const caller = context.callerIfKnown?.accountId ?? `address:${context.countedAddress}`;
    await limitRequests(this.#parts, `${caller}|video-quote`, READS_PER_MINUTE, TOO_MANY);
    if (!this.#reads.take(caller)) {
      throw new Fault('RATE_LIMIT_EXCEEDED', { message: TOO_MANY, retryAfterSeconds: 1 });
    }
    try {
      return await files.within(caller, async (workspace) => {
        const file = await workspace.fetch(url, { maxBytes, timeoutMs: READ_TIMEOUT_MS, signal });
        return await measureSource(await media(), file.path, { signal, caller });
      });
    } finally {
      this.#reads.giveBack(caller);
    }
  }
}

/** Properties of the video to upscale. Faults: INVALID_VIDEO_FORMAT, VIDEO_DURATION_TOO_SHORT. */
export async function measureSource(
  media: Media,
  path: string,
  call: MediaCall,
): Promise<SourceFacts> {
  const { video, durationSeconds } = await media.probe(path, call);
  if (video === null) {
    throw new Fault('INVALID_VIDEO_FORMAT', { message: 'The file has no video' });
  }
  const durationMs = Math.round(durationSeconds * MS_PER_SECOND);
  if (durationMs < 1) {
    throw new Fault('VIDEO_DURATION_TOO_SHORT', { message: 'The video has no length' });
  }
  const { width, height, framesPerSecond } = video;
  return { durationMs, width, height, framesPerSecond };
}
