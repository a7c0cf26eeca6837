/**
 * HTTP endpoints of video generation: `POST /video/quote` (public), `/video/queue`,
 * `/video/retrieve`, `/video/cancel`, `/video/complete`, and `GET /video/jobs`.
 */
import type { WindowState } from '../../billing/limits/limits.ts';
import { type LimitOf, type RateRule, limitRefusal, rateHeaders } from '../../billing/sale.ts';
import { type ResolvedPlans, limitsOfPlan } from '../../config/config.ts';
import { isoTime } from '../../core/clock.ts';
import { toUsdNumber } from '../../core/money.ts';
import { readJson, readQuery } from '../../http/read-request.ts';
import type { RequestContext } from '../../http/request-context.ts';
import { sendFile } from '../../http/send-file.ts';
import { JSON_BODY, type Route, get } from '../../http/route.ts';
import type { Caller } from '../../identity/identity.ts';
import { type VideoJob, statusOf } from '../job.ts';
import { type QueueVideoParts, queue, showBalance } from '../queue-video.ts';
import type { VideoQuotes } from '../quote-video.ts';
import {
  VideoCancelRequest,
  VideoCompleteRequest,
  VideoRetrieveRequest,
} from '../video-requests.ts';
import type { Lookup, Retrieval } from '../video.ts';
import * as DESCRIPTIONS from './describe.ts';

export interface VideoRouteParts extends QueueVideoParts {
  readonly quotes: VideoQuotes;
  readonly plans: () => ResolvedPlans;
}

/** Retrieving is free and has its own rate limit. */
const RETRIEVE_BUCKET = 'video-retrieve';

export function videoRoutes(parts: VideoRouteParts): Route[] {
  const post = { method: 'POST', auth: 'key-or-wallet', body: JSON_BODY } as const;
  return [
    {
      ...post,
      path: '/video/quote',
      auth: 'public',
      describe: DESCRIPTIONS.VIDEO_QUOTE,
      handle: (context) => parts.quotes.answer(context),
    },
    {
      ...post,
      path: '/video/queue',
      describe: DESCRIPTIONS.VIDEO_QUEUE,
      sells: 'video',
      handle: (context) => queue(parts, context),
    },
    {
      ...post,
      path: '/video/retrieve',
      describe: DESCRIPTIONS.VIDEO_RETRIEVE,
      limitOf: (caller) => retrieveLimit(parts, caller),
      handle: (context) => retrieve(parts, context),
    },
    {
      ...post,
      path: '/video/complete',
      describe: DESCRIPTIONS.VIDEO_COMPLETE,
      handle: async (context) => {
        const request = await readJson(context, VideoCompleteRequest, parts.readLargeJson);
        await parts.video.complete(lookup(parts, context.caller, request));
        await setBalance(parts, context);
        await context.json(200, { success: true });
      },
    },
    {
      ...post,
      path: '/video/cancel',
      describe: DESCRIPTIONS.VIDEO_CANCEL,
      handle: async (context) => {
        const request = await readJson(context, VideoCancelRequest, parts.readLargeJson);
        const job = await parts.video.cancel(lookup(parts, context.caller, request));
        await setBalance(parts, context);
        const status = statusOf(job);
        await context.json(200, { queue_id: job.id, status, credits_refunded: true });
      },
    },
    get('/video/jobs', 'key-or-wallet', DESCRIPTIONS.VIDEO_JOBS, (context) =>
      listJobs(parts, context),
    ),
  ];
}

/**
 * Selects a job of the caller. With a model name, accepts the model that serves the name now and
 * the name itself, because a replaced or removed model still has jobs.
 */
function lookup(
  { catalog }: VideoRouteParts,
  { accountId }: Caller,
  { model: name, queue_id: queueId }: VideoCancelRequest,
): Lookup {
  if (name === undefined) return { accountId, queueId };
  const found = catalog.resolve(name, 'video');
  return { accountId, queueId, modelIds: found === undefined ? [name] : [found.model.id, name] };
}

async function retrieve(parts: VideoRouteParts, context: RequestContext): Promise<void> {
  const { sales, video, clock, readLargeJson } = parts;
  const request = await readJson(context, VideoRetrieveRequest, readLargeJson);
  const { caller } = context;
  const limit = retrieveLimit(parts, caller);
  const counted = await sales.count({ ...limit, tokensEstimate: 0 });
  const retrieval = await video.retrieve(lookup(parts, caller, request));
  context.setAll(rateHeaders(counted.window, limit.rate, clock.nowMs()));
  await setBalance(parts, context);
  if (retrieval.kind !== 'media') return context.json(200, retrieveResponse(retrieval));
  await sendFile(context, retrieval.media);
  // Delete only after the caller has received all bytes.
  if (request.delete_media_on_completion && !context.signal.aborted) {
    await video.removeMedia(request.queue_id);
  }
}

/** Per account, or per key if the key has its own limit. */
export function retrieveLimit(
  { plans, clock }: Pick<VideoRouteParts, 'plans' | 'clock'>,
  caller: Caller,
): LimitOf {
  const ofPlan = limitsOfPlan(plans(), caller.plan).videoRetrieve;
  const ofKey = caller.keyLimits.requestsPerMinute;
  const requestsPerMinute = ofKey ?? caller.accountLimits.requestsPerMinute ?? ofPlan;
  const type = ofKey === undefined ? 'user' : 'api_key';
  const rate: RateRule = { requestsPerMinute, tokensPerMinute: 0, type };
  const refusal = (state: WindowState) =>
    limitRefusal('looking for videos', rate, 'requests', state, clock.nowMs());
  return {
    caller,
    modelId: RETRIEVE_BUCKET,
    rate,
    ownLimit: { bucket: RETRIEVE_BUCKET, loggedAs: 'endpoint:api/v1/video/retrieve', refusal },
  };
}

function retrieveResponse(retrieval: Exclude<Retrieval, { kind: 'media' }>): object {
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

/** Sets the balance headers, for wallets only. */
async function setBalance({ sales }: VideoRouteParts, context: RequestContext): Promise<void> {
  const { caller } = context;
  if (caller.kind === 'wallet') showBalance(context, await sales.balanceOf(caller));
}

async function listJobs({ video }: VideoRouteParts, context: RequestContext): Promise<void> {
  const { limit, before } = readQuery(context, DESCRIPTIONS.JobsQuery);
  const beforeMs = before === undefined ? Number.MAX_SAFE_INTEGER : Date.parse(before);
  const { accountId } = context.caller;
  const jobs = await video.list(accountId, beforeMs, limit);
  const last = jobs.at(-1);
  const older = last === undefined ? [] : await video.list(accountId, last.createdMs, 1);
  const data = jobs.map(jobItem);
  await context.json(200, { object: 'list', data, has_more: older.length > 0 });
}

function jobItem(job: VideoJob): object {
  const isDone = job.state === 'completed';
  return {
    queue_id: job.id,
    model: job.modelId,
    status: statusOf(job),
    progress: isDone ? 1 : job.fraction,
    quote: toUsdNumber(job.quoteNano),
    created_at: isoTime(job.createdMs),
    ...(job.finishedMs !== 0 && { finished_at: isoTime(job.finishedMs) }),
    execution_duration: job.executionMs,
    ...(isDone && { media: { stored: job.hasMedia, expires_at: isoTime(job.mediaUntilMs) } }),
    ...(job.failure !== null && { error: job.failure.message, credits_refunded: true }),
  };
}
