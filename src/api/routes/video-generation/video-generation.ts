/**
 * The life of a video over HTTP: `POST /video/quote` (public), `/video/queue`, `/video/retrieve`,
 * `/video/cancel`, `/video/complete`, and `GET /video/jobs`.
 */
import { createReadStream } from 'node:fs';
import { pipeline } from 'node:stream/promises';
import { cancelVideo } from '../../../flows/cancel-video.ts';
import { completeVideo } from '../../../flows/complete-video.ts';
import { type QueueVideoParts, type QueuedVideo, queueVideo } from '../../../flows/queue-video.ts';
import type { VideoQuotes } from '../../../flows/quote-video.ts';
import { type RetrieveVideoParts, retrieveVideo } from '../../../flows/retrieve-video.ts';
import { rateHeaders } from '../../../flows/charge.ts';
import type { Clock } from '../../../kernel/clock.ts';
import { Fault } from '../../../kernel/faults.ts';
import { type Nano, formatUsd, maxNano, nano, toUsdNumber } from '../../../kernel/money.ts';
import type { Queryable } from '../../../store/store.ts';
import {
  type Retrieval,
  VideoCancelRequest,
  VideoCompleteRequest,
  VideoQueueRequest,
  VideoQuoteRequest,
  VideoRetrieveRequest,
} from '../../../video/video.ts';
import type { AnswerKeeper } from '../../answer-keeper.ts';
import { AnswerHeaders } from '../../answer-headers.ts';
import type { Exchange } from '../../exchange.ts';
import { readJson } from '../../json-body.ts';
import type { LargeBodies } from '../../large-bodies.ts';
import { JSON_BODY, type Route } from '../../route.ts';
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
  readonly largeBodies: LargeBodies;
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
      handle: (exchange) => quote(parts, exchange),
    },
    {
      method: 'POST',
      path: '/video/queue',
      auth: 'key-or-wallet',
      describe: VIDEO_QUEUE,
      body: JSON_BODY,
      sells: 'video',
      handle: (exchange) => queue(parts, exchange),
    },
    {
      method: 'POST',
      path: '/video/retrieve',
      auth: 'key-or-wallet',
      describe: VIDEO_RETRIEVE,
      body: JSON_BODY,
      handle: (exchange) => retrieve(parts, exchange),
    },
    {
      method: 'POST',
      path: '/video/complete',
      auth: 'key-or-wallet',
      describe: VIDEO_COMPLETE,
      body: JSON_BODY,
      handle: async (exchange) => {
        const request = await readJson(exchange, VideoCompleteRequest, parts.largeBodies);
        setBalance(exchange, await completeVideo(parts, exchange.caller, request));
        await exchange.json(200, { success: true });
      },
    },
    {
      method: 'POST',
      path: '/video/cancel',
      auth: 'key-or-wallet',
      describe: VIDEO_CANCEL,
      body: JSON_BODY,
      handle: async (exchange) => {
        const request = await readJson(exchange, VideoCancelRequest, parts.largeBodies);
        const { job, balanceNano } = await cancelVideo(parts, exchange.caller, request);
        setBalance(exchange, balanceNano);
        const status = statusOf(job);
        await exchange.json(200, { queue_id: job.id, status, credits_refunded: true });
      },
    },
    {
      method: 'GET',
      path: '/video/jobs',
      auth: 'key-or-wallet',
      describe: VIDEO_JOBS,
      handle: (exchange) => listJobs(parts.video, exchange),
    },
  ];
}

async function quote(parts: VideoRouteParts, exchange: Exchange): Promise<void> {
  const request = await readJson(exchange, VideoQuoteRequest, parts.largeBodies);
  const caller = exchange.callerIfKnown;
  const quoteNano = await parts.quotes.quote({
    request,
    asker: caller?.accountId ?? `address:${exchange.address}`,
    signal: exchange.signal,
  });
  await exchange.json(200, { quote: toUsdNumber(quoteNano) });
}

async function queue(parts: VideoRouteParts, exchange: Exchange): Promise<void> {
  const request = await readJson(exchange, VideoQueueRequest, parts.largeBodies);
  const { keeper } = exchange;
  const queued = await queueVideo(parts, {
    caller: exchange.caller,
    request,
    signal: exchange.workSignal,
    note: (notes) => Object.assign(exchange.notes, notes),
    ...(keeper && { keep: (tx, job) => keepQueued(parts, exchange, keeper, { tx, job }) }),
  });
  setQueuedHeaders(parts, exchange, queued);
  await exchange.json(200, queueAnswer(parts, queued));
}

/** The answer and the job are there together. Throws 409 when another request has the key by now. */
async function keepQueued(
  parts: VideoRouteParts,
  exchange: Exchange,
  keeper: AnswerKeeper,
  { tx, job }: { readonly tx: Queryable; readonly job: QueuedVideo },
): Promise<void> {
  setQueuedHeaders(parts, exchange, job);
  exchange.set('content-type', JSON_TYPE);
  await exchange.keepAnswer(200, Buffer.from(JSON.stringify(queueAnswer(parts, job))), tx);
  if (!keeper.kept) throw new Fault('REQUEST_IN_PROGRESS');
}

function setQueuedHeaders(parts: VideoRouteParts, exchange: Exchange, queued: QueuedVideo): void {
  const { model, deprecation, hold, rate, counted } = queued;
  const make = new AnswerHeaders(parts);
  exchange.setAll(make.model(model, deprecation));
  exchange.setAll(make.standing(hold.before, exchange.caller));
  exchange.setAll(rateHeaders(counted.window, rate, parts.clock.nowMs()));
  if (exchange.caller.kind === 'wallet') setBalance(exchange, leftAfter(hold));
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

async function retrieve(parts: VideoRouteParts, exchange: Exchange): Promise<void> {
  const request = await readJson(exchange, VideoRetrieveRequest, parts.largeBodies);
  const { retrieval, rate, counted, balanceNano } = await retrieveVideo(
    parts,
    exchange.caller,
    request,
  );
  exchange.setAll(rateHeaders(counted.window, rate, parts.clock.nowMs()));
  setBalance(exchange, balanceNano);
  if (retrieval.kind !== 'media') return exchange.json(200, retrieveAnswer(retrieval));
  await sendMedia(exchange, retrieval.media);
  // Not before the caller has all of it.
  if (request.delete_media_on_completion && !exchange.signal.aborted) {
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
  exchange: Exchange,
  media: { readonly path: string; readonly sizeBytes: number; readonly mimeType: string },
): Promise<void> {
  exchange.set('content-length', media.sizeBytes);
  exchange.set('cache-control', 'private, no-store');
  const writable = exchange.pipe(200, media.mimeType);
  try {
    await pipeline(createReadStream(media.path), writable);
  } catch (error) {
    if (!exchange.signal.aborted) throw error;
  }
}

function setBalance(exchange: Exchange, balanceNano: Nano | undefined): void {
  if (balanceNano === undefined) return;
  exchange.set('x-balance-remaining', formatUsd(balanceNano, WALLET_DECIMALS));
}
