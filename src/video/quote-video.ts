/**
 * The quote flow: the price of a video, in public. Only an upscale has to look at a file for it,
 * and since anybody may ask, such looks are few, short and bounded per address.
 */
import type { Catalog } from '../catalog/catalog.ts';
import type { Media, MediaCall } from '../engines/media/media.ts';
import type { Clock } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import type { Nano } from '../core/money.ts';
import type { Windows } from '../billing/limits/limits.ts';
import type { MediaFiles } from '../documents/media-files.ts';
import { checkQuote, requireVideoSettings } from './model-checks.ts';
import { type SourceFacts, quoteVideo } from './quote.ts';
import type { VideoQuoteRequest } from './video-requests.ts';

export interface QuoteVideoParts {
  readonly catalog: Catalog;
  readonly files: MediaFiles;
  readonly media: () => Promise<Media>;
  readonly windows: Windows;
  readonly clock: Clock;
  readonly maxBytes: number;
}

export interface QuoteVideoCall {
  readonly request: VideoQuoteRequest;
  /** Who asks: an account, or an address. */
  readonly asker: string;
  readonly signal: AbortSignal;
}

/** Quotes that look at a file, per asker and minute, and on the whole server at once. */
const LOOKS_PER_MINUTE = 10;
const LOOKS_AT_ONCE = 4;
const LOOK_TIMEOUT_MS = 60_000;
const MS_PER_SECOND = 1_000;

/** Quotes videos; remembers how many files are being looked at. */
export class VideoQuotes {
  readonly #parts: QuoteVideoParts;
  #looks = 0;

  constructor(parts: QuoteVideoParts) {
    this.#parts = parts;
  }

  /** The price of a request. Faults: 400, 404, 413, 422, 429. */
  async quote(call: QuoteVideoCall): Promise<Nano> {
    const { request } = call;
    const { model } = this.#parts.catalog.require(request.model, 'video');
    const settings = requireVideoSettings(model);
    checkQuote(settings, request);
    if (settings.task !== 'upscale') {
      const seconds = request.reference_video_total_duration;
      const referenceMs = seconds && Math.round(seconds * MS_PER_SECOND);
      return quoteVideo(settings, request, { referenceMs });
    }
    const source = await this.#lookAt(request.video_url ?? '', call);
    return quoteVideo(settings, request, { source });
  }

  async #lookAt(url: string, { asker, signal }: QuoteVideoCall) {
    const nowMs = this.#parts.clock.nowMs();
    const taken = await this.#parts.windows.take(
      {
        bucket: `${asker}|video-quote`,
        tokens: 0,
        requestLimit: LOOKS_PER_MINUTE,
        tokenLimit: 0,
      },
      nowMs,
    );
    if (!taken.ok) throw tooMany((taken.state.resetsAtMs - nowMs) / MS_PER_SECOND);
    if (this.#looks >= LOOKS_AT_ONCE) throw tooMany(1);
    this.#looks += 1;
    try {
      const { files, media, maxBytes } = this.#parts;
      return await files.within(asker, async (bag) => {
        const file = await bag.fetch(url, { maxBytes, timeoutMs: LOOK_TIMEOUT_MS, signal });
        return await measureSource(await media(), file.path, { signal, holder: asker });
      });
    } finally {
      this.#looks -= 1;
    }
  }
}

/** Facts of the video to upscale. Faults: INVALID_VIDEO_FORMAT, VIDEO_DURATION_TOO_SHORT. */
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
  return { durationMs, height: video.height, framesPerSecond: video.framesPerSecond };
}

function tooMany(seconds: number): Fault {
  return new Fault('RATE_LIMIT_EXCEEDED', {
    message: `At most ${LOOKS_PER_MINUTE} quotes of a video file a minute, and ${LOOKS_AT_ONCE} on this server at once`,
    retryAfterSeconds: Math.max(1, Math.ceil(seconds)),
  });
}
