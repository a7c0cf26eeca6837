/**
 * `POST /video/queue`: validates the request against its model, fetches and measures its media,
 * places a hold for the quote that lasts as long as the job, and queues the job, which survives
 * restarts.
 *
 * Media is fetched and decoded only for callers with credit, and the hold is placed only after the
 * price is known.
 */
import { type Hold, expectedSettlement } from '../billing/ledger/ledger.ts';
import { type Counted, type RateRule, type Sales, rateHeaders } from '../billing/sale.ts';
import type { Catalog, CatalogModel, ResolvedModel } from '../catalog/catalog.ts';
import { requireAccess, withPrices } from '../http/model-sale.ts';
import type { VideoModelSettings } from '../config/config.ts';
import type { Clock } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { type Nano, decimalUsd, formatUsd, toUsdNumber } from '../core/money.ts';
import {
  type MediaWorkspace,
  type MediaFiles,
  imageSizeOf,
  mediaTypeOf,
  requirePixels,
} from '../documents/media-files.ts';
import type { EngineInput, Media } from '../engines/media/media.ts';
import type { ResponseHeaders } from '../http/response-headers.ts';
import { requireCallbackUrl } from '../http/callback-url.ts';
import { type ReadLargeJson, readJson } from '../http/read-request.ts';
import type { RequestContext } from '../http/request-context.ts';
import { JSON_TYPE } from '../http/route.ts';
import type { Caller } from '../identity/identity.ts';
import type { Guard } from '../net/guard.ts';
import { requireConsent } from './consent.ts';
import {
  checkQueue,
  checkReferenceLength,
  engineRequest,
  requireVideoSettings,
} from './model-checks.ts';
import { measureSource } from './quote-video.ts';
import { type Measured, hasSound, quoteVideo } from './video-pricing.ts';
import { VideoQueueRequest, mediaUrlsOf } from './video-requests.ts';
import { RESULT_BYTES } from './result-space.ts';
import type { QueuedJob, Video } from './video.ts';

export interface QueueVideoParts {
  readonly catalog: Catalog;
  readonly sales: Sales;
  readonly video: Video;
  readonly files: MediaFiles;
  readonly guard: Pick<Guard, 'check'>;
  readonly media: () => Promise<Media>;
  /** Limit of one video, and of all media of a request together. */
  readonly maxBytes: number;
  readonly sendsWebhooks: boolean;
  readonly docsUrl: () => string;
  readonly headers: ResponseHeaders;
  /** `https://host/api/v1`. */
  readonly publicBase: () => string;
  readonly readLargeJson: ReadLargeJson;
  readonly clock: Clock;
  readonly rateOf: (caller: Caller, model: CatalogModel) => RateRule;
}

interface Priced extends ResolvedModel {
  readonly rate: RateRule;
  readonly counted: Counted;
  readonly quoteNano: Nano;
}

const WALLET_DECIMALS = 6;

interface MediaKind {
  readonly type: 'image' | 'video' | 'audio' | 'document';
  readonly maxBytes?: number;
}

const KINDS: readonly (readonly [RegExp, MediaKind])[] = [
  [/document/, { type: 'document', maxBytes: 25_000_000 }],
  [/audio/, { type: 'audio', maxBytes: 15_000_000 }],
  [/video/, { type: 'video' }],
];
const IMAGE: MediaKind = { type: 'image', maxBytes: 25_000_000 };
const MAX_AUDIO_SECONDS = 30;

export async function queue(parts: QueueVideoParts, context: RequestContext): Promise<void> {
  const request = await readJson(context, VideoQueueRequest, parts.readLargeJson);
  const { caller, notes, keeper, tags } = context;
  const { sales, catalog } = parts;
  const found = catalog.require(request.model, 'video');
  const resolved = caller.prices === undefined ? found : withPrices(found, caller.prices);
  const { model } = resolved;
  notes.model = model.id;
  context.known = { model, deprecation: resolved.deprecation };
  requireAccess(model, caller, context);
  const settings = requireVideoSettings(model);
  const listed = model.listModel?.video;
  checkQueue(settings, request);
  requireConsent(settings, request, parts.docsUrl());
  if (request.webhook_url !== undefined && !parts.sendsWebhooks) throw noWebhooks();
  const rate = parts.rateOf(caller, model);
  const counted = await sales.count({ caller, modelId: model.id, rate, tokensEstimate: 0 });
  const media = mediaUrlsOf(request);
  if (media.length > 0) await sales.requireCredit(caller, priceWithout(media, settings, request));
  // Resolved after rate limiting, so that a caller cannot cause unlimited DNS lookups.
  const { webhook_url: webhookUrl } = request;
  if (webhookUrl !== undefined) await requireCallbackUrl(parts.guard, 'webhook_url', webhookUrl);
  const response = await parts.files.within(caller.accountId, async (workspace) => {
    const { inputs, measured } = await fetchInputs(parts, context, settings, request, workspace);
    await workspace.reserve(RESULT_BYTES);
    const quoteNano = quoteVideo(settings, request, measured);
    const priced: Priced = { ...resolved, rate, counted, quoteNano };
    let hold: Hold | undefined;
    const job = await parts.video.queue(
      {
        accountId: caller.accountId,
        keyId: caller.keyId,
        modelId: model.id,
        quoteNano,
        listNano: listed && quoteVideo(listed, request, measured),
        costs: supplierQuotes(model, settings, request, measured),
        request: engineRequest(settings, request, measured),
        hasSound: hasSound(settings, request),
        inputs,
        tags,
        webhookUrl: request.webhook_url,
        withDownload: settings.downloadUrl,
      },
      {
        written: () => workspace.free(),
        hold: async ({ id }) => {
          const job = { id, caller, modelId: model.id, priceNano: quoteNano, tags };
          hold = await sales.holdForJob(job);
        },
        // Stores the response in the transaction of the job; another request may own the key by
        // now.
        together: async (tx, queued) => {
          if (keeper === undefined) return;
          setHeaders(parts, context, priced, hold);
          const body = Buffer.from(JSON.stringify(responseOf(parts, priced, queued)));
          await keeper.keep(tx, { type: JSON_TYPE, body });
        },
      },
    );
    notes.costUsd = formatUsd(quoteNano);
    setHeaders(parts, context, priced, hold);
    return responseOf(parts, priced, job);
  });
  keeper?.kept();
  await context.json(200, response);
}

/** The price of a request, unless it depends on the length or the size of its media. */
function priceWithout(
  media: ReturnType<typeof mediaUrlsOf>,
  settings: VideoModelSettings,
  request: VideoQueueRequest,
): Nano | undefined {
  const isMeasured =
    settings.pricing.kind === 'upscale' ||
    media.some(({ role }) => role.startsWith('reference_video_urls'));
  return isMeasured ? undefined : quoteVideo(settings, request);
}

/** The cost at each replica with prices of its supplier; `undefined` if there is none. */
function supplierQuotes(
  { replicas }: Pick<CatalogModel, 'replicas'>,
  settings: VideoModelSettings,
  request: VideoQueueRequest,
  measured: Measured,
) {
  const quotes = replicas.flatMap(({ engine, model, videoCost }) => {
    if (videoCost === undefined) return [];
    const quoteNano = quoteVideo({ ...settings, pricing: videoCost }, request, measured);
    return { engine, model, usd: decimalUsd(quoteNano) };
  });
  return quotes.length === 0 ? undefined : quotes;
}

function setHeaders(
  parts: QueueVideoParts,
  context: RequestContext,
  { model, deprecation, rate, counted }: Priced,
  hold: Hold | undefined,
): void {
  if (hold === undefined) throw new Error('A job was queued without its hold');
  const { headers } = parts;
  context.setAll(headers.answered({ model, deprecation }));
  context.setAll(headers.balanceHeaders(hold.before, context.caller));
  context.setAll(rateHeaders(counted.window, rate, parts.clock.nowMs()));
  if (context.caller.kind !== 'wallet') return;
  showBalance(context, expectedSettlement(hold).after.usdNano);
}

export function showBalance(context: RequestContext, balanceNano: Nano): void {
  context.set('x-balance-remaining', formatUsd(balanceNano, WALLET_DECIMALS));
}

function responseOf(
  { publicBase }: QueueVideoParts,
  { model, quoteNano }: Priced,
  { id, downloadToken, webhookSecret }: QueuedJob,
): object {
  const download = `${publicBase()}/video/download/${downloadToken}`;
  return {
    model: model.id,
    queue_id: id,
    ...(downloadToken !== undefined && { download_url: download }),
    ...(webhookSecret !== undefined && { webhook_secret: webhookSecret }),
    quote: toUsdNumber(quoteNano),
  };
}

function noWebhooks(): Fault {
  return new Fault('INVALID_REQUEST', {
    message: 'webhook_url: This server sends no webhooks: poll POST /video/retrieve',
    details: { _errors: [], webhook_url: { _errors: ['This server sends no webhooks'] } },
  });
}

async function fetchInputs(
  parts: QueueVideoParts,
  { caller, workSignal: signal }: RequestContext,
  settings: VideoModelSettings,
  request: VideoQueueRequest,
  workspace: MediaWorkspace,
): Promise<{ inputs: EngineInput[]; measured: Measured }> {
  const inputs: EngineInput[] = [];
  let leftBytes = parts.maxBytes;
  let referenceMs: number | undefined;
  let source: Measured['source'];
  const mediaCall = { signal, caller: caller.accountId };
  for (const { role, url } of mediaUrlsOf(request)) {
    const { type, maxBytes = parts.maxBytes } =
      KINDS.find(([name]) => name.test(role))?.[1] ?? IMAGE;
    const file = await workspace.fetch(url, { maxBytes: Math.min(leftBytes, maxBytes), signal });
    leftBytes -= file.sizeBytes;
    inputs.push({ role, path: file.path, mimeType: await mimeTypeOf(file.path, type) });
    if (type === 'image') requirePixels(await imageSizeOf(file.path));
    const lengthMs = async (): Promise<number> => {
      const { durationSeconds } = await (await parts.media()).probe(file.path, mediaCall);
      return Math.round(durationSeconds * 1_000);
    };
    if (settings.task === 'upscale' && role === 'video_url') {
      source = await measureSource(await parts.media(), file.path, mediaCall);
    } else if (role.startsWith('reference_video_urls')) {
      referenceMs = (referenceMs ?? 0) + (await lengthMs());
    } else if (type === 'audio') {
      checkAudio(await lengthMs(), role);
    }
  }
  if (referenceMs !== undefined) checkReferenceLength(settings, referenceMs);
  return { inputs, measured: { source, referenceMs } };
}

async function mimeTypeOf(path: string, type: MediaKind['type']): Promise<string> {
  if (type === 'document') return 'application/octet-stream';
  const mimeType = await mediaTypeOf(path, type === 'image' ? 'image' : 'av');
  if (type !== 'audio' || /^audio\/(?:wav|mpeg)$/.test(mimeType)) return mimeType;
  throw new Fault('INVALID_AUDIO_FORMAT', { message: 'Send WAV or MP3 audio' });
}

function checkAudio(ms: number, role: string): void {
  if (ms <= MAX_AUDIO_SECONDS * 1_000) return;
  throw new Fault('VIDEO_DURATION_TOO_LONG', {
    message: `${role}: The audio has ${Math.ceil(ms / 1_000)} seconds: send at most ${MAX_AUDIO_SECONDS}`,
  });
}
