/**
 * The queue flow: check the request against its model, fetch and measure its media, set the quote
 * aside for as long as the job lives, and hand it to the video folder, which survives a restart.
 *
 * Nothing is fetched for a caller without credit, and nothing is held before the price is known.
 */
import type { Catalog, CatalogModel, DeprecationNotice } from '../catalog/catalog.ts';
import type { VideoModelSettings } from '../config/config.ts';
import type { Media } from '../engines/media/media.ts';
import type { Caller } from '../identity/identity.ts';
import { Fault } from '../core/faults.ts';
import { type Nano, formatUsd } from '../core/money.ts';
import type { Hold } from '../billing/ledger/ledger.ts';
import type { Queryable } from '../db/db.ts';
import type { Counted, RateRule, Sales } from '../billing/sale.ts';
import { type MediaBag, type MediaFiles, mediaTypeOf } from '../documents/media-files.ts';
import { requireAccess } from '../catalog/model-access.ts';
import type { GivenInput } from './media-store.ts';
import {
  checkQueue,
  checkReferenceLength,
  engineRequest,
  requireVideoSettings,
} from './model-checks.ts';
import { measureSource } from './quote-video.ts';
import { type Measured, quoteVideo } from './quote.ts';
import { type VideoQueueRequest, mediaUrlsOf } from './video-requests.ts';
import { type QueuedJob, RESULT_BYTES, type Video } from './video.ts';

export interface QueueVideoParts {
  readonly catalog: Catalog;
  readonly sales: Sales;
  readonly video: Video;
  readonly files: MediaFiles;
  readonly media: () => Promise<Media>;
  /** Of one video, and of all media of a request together. */
  readonly maxBytes: number;
  readonly takesWebhooks: boolean;
  readonly rateOf: (caller: Caller, model: CatalogModel) => RateRule;
}

export interface QueueVideoCall {
  readonly caller: Caller;
  readonly request: VideoQueueRequest;
  readonly signal: AbortSignal;
  readonly note: (notes: { model?: string; costUsd?: string }) => void;
  /** Keeps the answer in the transaction that makes the job real, maybe twice. */
  readonly keep?: (tx: Queryable, queued: QueuedVideo) => Promise<void>;
}

export interface QueuedVideo extends QueuedJob {
  readonly model: CatalogModel;
  readonly deprecation: DeprecationNotice | undefined;
  readonly quoteNano: Nano;
  readonly rate: RateRule;
  readonly counted: Counted;
  readonly hold: Hold;
}

interface Kind {
  readonly want: 'image' | 'video' | 'audio' | 'document';
  readonly maxBytes?: number;
}

/** What a field holds, by its name. Sizes: decisions.md 1 and 11. */
const KINDS: readonly (readonly [RegExp, Kind])[] = [
  [/document/, { want: 'document', maxBytes: 25_000_000 }],
  [/audio/, { want: 'audio', maxBytes: 15_000_000 }],
  [/video/, { want: 'video' }],
];
const IMAGE: Kind = { want: 'image', maxBytes: 25_000_000 };
const MAX_AUDIO_SECONDS = 30;

/** Queues one video. Throws a Fault for every refusal. */
export async function queueVideo(
  parts: QueueVideoParts,
  call: QueueVideoCall,
): Promise<QueuedVideo> {
  const { caller, request } = call;
  const { model, deprecation } = parts.catalog.require(request.model, 'video');
  call.note({ model: model.id });
  requireAccess(model, caller);
  const settings = requireVideoSettings(model);
  checkQueue(settings, request);
  if (request.webhook_url !== undefined && !parts.takesWebhooks) throw noWebhooks();
  const rate = parts.rateOf(caller, model);
  const counted = await parts.sales.count({ caller, modelId: model.id, rate, tokensEstimate: 0 });
  if (mustFetch(request)) await parts.sales.requireCredit(caller);
  return await parts.files.within(caller.accountId, async (bag) => {
    const { inputs, measured } = await fetchInputs(parts, call, settings, bag);
    await bag.reserve(RESULT_BYTES);
    const quoteNano = quoteVideo(settings, request, measured);
    let hold: Hold | undefined;
    const queuedWith = (job: QueuedJob): QueuedVideo => {
      if (hold === undefined) throw new Error('A job was queued without its hold');
      return { ...job, model, deprecation, quoteNano, rate, counted, hold };
    };
    const { keep } = call;
    const job = await parts.video.queue(
      {
        accountId: caller.accountId,
        keyId: caller.keyId,
        modelId: model.id,
        quoteNano,
        request: engineRequest(settings, request, measured),
        inputs,
        webhookUrl: request.webhook_url,
        withDownload: settings.downloadUrl,
      },
      {
        hold: async ({ id }) => {
          // The job is written and counts by itself now.
          bag.free();
          hold = await parts.sales.holdForJob({ id, caller, priceNano: quoteNano });
        },
        ...(keep && { together: (tx, queued) => keep(tx, queuedWith(queued)) }),
      },
    );
    call.note({ costUsd: formatUsd(quoteNano) });
    return queuedWith(job);
  });
}

function mustFetch(request: VideoQueueRequest): boolean {
  return mediaUrlsOf(request).some(({ url }) => !url.startsWith('data:'));
}

function noWebhooks(): Fault {
  return new Fault('INVALID_REQUEST', {
    message: 'webhook_url: This server sends no webhooks; poll POST /video/retrieve',
    details: { _errors: [], webhook_url: { _errors: ['This server sends no webhooks'] } },
  });
}

async function fetchInputs(
  parts: QueueVideoParts,
  call: QueueVideoCall,
  settings: VideoModelSettings,
  bag: MediaBag,
): Promise<{ inputs: GivenInput[]; measured: Measured }> {
  const { request, signal } = call;
  const inputs: GivenInput[] = [];
  let leftBytes = parts.maxBytes;
  let referenceMs: number | undefined;
  let source: Measured['source'];
  const looked = { signal, holder: call.caller.accountId };
  for (const { role, url } of mediaUrlsOf(request)) {
    const { want, maxBytes = parts.maxBytes } =
      KINDS.find(([name]) => name.test(role))?.[1] ?? IMAGE;
    const file = await bag.fetch(url, { maxBytes: Math.min(leftBytes, maxBytes), signal });
    leftBytes -= file.sizeBytes;
    inputs.push({ role, path: file.path, mimeType: await typeOf(file.path, want) });
    const lengthMs = async (): Promise<number> => {
      const { durationSeconds } = await (await parts.media()).probe(file.path, looked);
      return Math.round(durationSeconds * 1_000);
    };
    if (settings.task === 'upscale' && role === 'video_url') {
      source = await measureSource(await parts.media(), file.path, looked);
    } else if (role.startsWith('reference_video_urls')) {
      referenceMs = (referenceMs ?? 0) + (await lengthMs());
    } else if (want === 'audio') {
      checkAudio(await lengthMs(), role);
    }
  }
  if (referenceMs !== undefined) checkReferenceLength(settings, referenceMs);
  return { inputs, measured: { source, referenceMs } };
}

async function typeOf(path: string, want: Kind['want']): Promise<string> {
  if (want === 'document') return 'application/octet-stream';
  const type = await mediaTypeOf(path, want === 'image' ? 'image' : 'av');
  if (want !== 'audio' || /^audio\/(?:wav|mpeg)$/.test(type)) return type;
  throw new Fault('INVALID_AUDIO_FORMAT', { message: 'Send WAV or MP3 audio' });
}

function checkAudio(ms: number, role: string): void {
  if (ms <= MAX_AUDIO_SECONDS * 1_000) return;
  throw new Fault('VIDEO_DURATION_TOO_LONG', {
    message: `${role}: The audio has ${Math.ceil(ms / 1_000)} seconds: send at most ${MAX_AUDIO_SECONDS}`,
  });
}
