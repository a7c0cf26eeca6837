/**
 * The life of a video over HTTP: `POST /video/quote` (public), `/video/queue`, `/video/retrieve`,
 * `/video/cancel`, `/video/complete`, and `GET /video/jobs`.
 */
import { createReadStream } from 'node:fs';
import { pipeline } from 'node:stream/promises';
import { cancelVideo } from '../cancel-video.ts';
import { completeVideo } from '../complete-video.ts';
import { type QueueVideoParts, type QueuedVideo, queueVideo } from '../queue-video.ts';
import type { VideoQuotes } from '../quote-video.ts';
import { type RetrieveVideoParts, retrieveVideo } from '../retrieve-video.ts';
import { type AnswerKeeper, rateHeaders } from '../../billing/sale.ts';
import type { Clock } from '../../core/clock.ts';
import { Fault } from '../../core/faults.ts';
import { type Nano, formatUsd, maxNano, nano, toUsdNumber } from '../../core/money.ts';
import type { Queryable } from '../../db/db.ts';
import {
  type Retrieval,
  VideoCancelRequest,
  VideoCompleteRequest,
  VideoQueueRequest,
  VideoQuoteRequest,
  VideoRetrieveRequest,
} from '../video.ts';
import { AnswerHeaders } from '../../http/answer-headers.ts';
import type { RequestContext } from '../../http/request-context.ts';
import { type ReadLargeJson, readJson } from '../../http/json-body.ts';
import { JSON_BODY, type Route } from '../../http/route.ts';
import {
  VIDEO_CANCEL,
  VIDEO_COMPLETE,
  VIDEO_JOBS,
  VIDEO_QUEUE,
  VIDEO_QUOTE,
  VIDEO_RETRIEVE,
} from './describe.ts';
import { listJobs, statusOf } from './job-list.ts';

export interface VideoRouteParts extends QueueVideoParts, RetrieveVideoParts {
  readonly quotes: VideoQuotes;
  readonly serviceName: string;
  /** `https://host/api/v1`. */
  readonly publicBase: () => string;
  readonly readLargeJson: ReadLargeJson;
  readonly clock: Clock;
}

const WALLET_DECIMALS = 6;
const JSON_TYPE = 'application/json; charset=utf-8';

export function videoRoutes(parts: VideoRouteParts): Route[] {
  return [
    {
      method: 'POST',
      path: '/video/quote',
      auth: 'public',
      describe: VIDEO_QUOTE,
      body: JSON_BODY,
      handle: (context) => quote(parts, context),
    },
    {
      method: 'POST',
      path: '/video/queue',
      auth: 'key-or-wallet',
      describe: VIDEO_QUEUE,
      body: JSON_BODY,
      sells: 'video',
      handle: (context) => queue(parts, context),
    },
    {
      method: 'POST',
      path: '/video/retrieve',
      auth: 'key-or-wallet',
      describe: VIDEO_RETRIEVE,
      body: JSON_BODY,
      handle: (context) => retrieve(parts, context),
    },
    {
      method: 'POST',
      path: '/video/complete',
      auth: 'key-or-wallet',
      describe: VIDEO_COMPLETE,
      body: JSON_BODY,
      handle: async (context) => {
        const request = await readJson(context, VideoCompleteRequest, parts.readLargeJson);
        setBalance(context, await completeVideo(parts, context.caller, request));
        await context.json(200, { success: true });
      },
    },
    {
      method: 'POST',
      path: '/video/cancel',
      auth: 'key-or-wallet',
      describe: VIDEO_CANCEL,
      body: JSON_BODY,
      handle: async (context) => {
        const request = await readJson(context, VideoCancelRequest, parts.readLargeJson);
        const { job, balanceNano } = await cancelVideo(parts, context.caller, request);
        setBalance(context, balanceNano);
        const status = statusOf(job);
        await context.json(200, { queue_id: job.id, status, credits_refunded: true });
      },
    },
    {
      method: 'GET',
      path: '/video/jobs',
      auth: 'key-or-wallet',
      describe: VIDEO_JOBS,
      handle: (context) => listJobs(parts.video, context),
    },
  ];
}

async function quote(parts: VideoRouteParts, context: RequestContext): Promise<void> {
  const request = await readJson(context, VideoQuoteRequest, parts.readLargeJson);
  const caller = context.callerIfKnown;
  const quoteNano = await parts.quotes.quote({
    request,
    asker: caller?.accountId ?? `address:${context.address}`,
    signal: context.signal,
  });
  await context.json(200, { quote: toUsdNumber(quoteNano) });
}

async function queue(parts: VideoRouteParts, context: RequestContext): Promise<void> {
  const request = await readJson(context, VideoQueueRequest, parts.readLargeJson);
  const { keeper } = context;
  const queued = await queueVideo(parts, {
    caller: context.caller,
    request,
    signal: context.workSignal,
    note: (notes) => Object.assign(context.notes, notes),
    ...(keeper && { keep: (tx, job) => keepQueued(parts, context, keeper, { tx, job }) }),
  });
  if (keeper !== undefined) keeper.token.isSpent = true;
  setQueuedHeaders(parts, context, queued);
  await context.json(200, queueAnswer(parts, queued));
}

/** The answer and the job are there together. Throws 409 when another request has the key by now. */
async function keepQueued(
  parts: VideoRouteParts,
  context: RequestContext,
  keeper: AnswerKeeper,
  { tx, job }: { readonly tx: Queryable; readonly job: QueuedVideo },
): Promise<void> {
  setQueuedHeaders(parts, context, job);
  const body = Buffer.from(JSON.stringify(queueAnswer(parts, job)));
  const isKept = await parts.sales.keep(tx, keeper, { type: JSON_TYPE, body });
  if (!isKept) throw new Fault('REQUEST_IN_PROGRESS');
}

function setQueuedHeaders(
  parts: VideoRouteParts,
  context: RequestContext,
  queued: QueuedVideo,
): void {
  const { model, deprecation, hold, rate, counted } = queued;
  const make = new AnswerHeaders(parts);
  context.setAll(make.model(model, deprecation));
  context.setAll(make.balanceHeaders(hold.before, context.caller));
  context.setAll(rateHeaders(counted.window, rate, parts.clock.nowMs()));
  if (context.caller.kind === 'wallet') setBalance(context, leftAfter(hold));
}

function queueAnswer(parts: VideoRouteParts, queued: QueuedVideo): object {
  const { model, id, downloadToken, webhookSecret, quoteNano } = queued;
  const download = `${parts.publicBase()}/video/download/${downloadToken}`;
  return {
    model: model.id,
    queue_id: id,
    ...(downloadToken === undefined ? {} : { download_url: download }),
    ...(webhookSecret === undefined ? {} : { webhook_secret: webhookSecret }),
    quote: toUsdNumber(quoteNano),
  };
}

/** What is left once the hold is taken: daily credit pays first. */
function leftAfter(hold: QueuedVideo['hold']): Nano {
  const { usdNano, diemNano } = hold.before;
  const fromUsd = maxNano(nano(0n), nano(hold.grantedNano - diemNano));
  return maxNano(nano(0n), nano(usdNano - fromUsd));
}

async function retrieve(parts: VideoRouteParts, context: RequestContext): Promise<void> {
  const request = await readJson(context, VideoRetrieveRequest, parts.readLargeJson);
  const { retrieval, rate, counted, balanceNano } = await retrieveVideo(
    parts,
    context.caller,
    request,
  );
  context.setAll(rateHeaders(counted.window, rate, parts.clock.nowMs()));
  setBalance(context, balanceNano);
  if (retrieval.kind !== 'media') return context.json(200, retrieveAnswer(retrieval));
  await sendMedia(context, retrieval.media);
  // Not before the caller has all of it.
  if (request.delete_media_on_completion && !context.signal.aborted) {
    await parts.video.removeMedia(request.queue_id);
  }
}

function retrieveAnswer(retrieval: Exclude<Retrieval, { kind: 'media' }>): object {
  const times = {
    average_execution_time: Math.round(retrieval.averageMs),
    execution_duration: Math.round(retrieval.executionMs),
  };
  if (retrieval.kind === 'download') return { status: 'COMPLETED', ...times };
  return {
    status: 'PROCESSING',
    ...times,
    progress: retrieval.fraction,
    remaining_time: retrieval.remainingMs,
  };
}

/** Streams a stored video; a caller who leaves in the middle is not an error. */
export async function sendMedia(
  context: RequestContext,
  media: { readonly path: string; readonly sizeBytes: number; readonly mimeType: string },
): Promise<void> {
  context.set('content-length', media.sizeBytes);
  context.set('cache-control', 'private, no-store');
  const writable = context.pipe(200, media.mimeType);
  try {
    await pipeline(createReadStream(media.path), writable);
  } catch (error) {
    if (!context.signal.aborted) throw error;
  }
}

function setBalance(context: RequestContext, balanceNano: Nano | undefined): void {
  if (balanceNano === undefined) return;
  context.set('x-balance-remaining', formatUsd(balanceNano, WALLET_DECIMALS));
}
