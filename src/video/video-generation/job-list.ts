/** `GET /video/jobs`: a caller's own videos, newest first, with what became of each. */
import { z } from 'zod';
import { isoTime } from '../../core/clock.ts';
import { toUsdNumber } from '../../core/money.ts';
import { type Video, type VideoJob, wasCancelled } from '../video.ts';
import { invalidRequest } from '../../json/validation.ts';
import type { RequestContext } from '../../http/request-context.ts';

const MAX_JOBS = 100;
const DEFAULT_JOBS = 20;

const Query = z.object({
  limit: z.coerce.number().int().min(1).max(MAX_JOBS).default(DEFAULT_JOBS),
  before: z.iso.datetime({ offset: true }).optional(),
});

export async function listJobs(video: Video, context: RequestContext): Promise<void> {
  const parsed = Query.safeParse(Object.fromEntries(context.query));
  if (!parsed.success) throw invalidRequest(parsed.error);
  const { limit, before } = parsed.data;
  const beforeMs = before === undefined ? Number.MAX_SAFE_INTEGER : Date.parse(before);
  const jobs = await video.list(context.caller.accountId, beforeMs, limit + 1);
  const data = jobs.slice(0, limit);
  await context.json(200, {
    object: 'list',
    data: data.map(jobItem),
    has_more: jobs.length > limit,
  });
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
    ...(job.finishedMs === 0 ? {} : { finished_at: isoTime(job.finishedMs) }),
    execution_duration: job.executionMs,
    ...(isDone ? { media: { stored: job.hasMedia, expires_at: isoTime(job.mediaUntilMs) } } : {}),
    ...(job.failure === null ? {} : { error: job.failure.message, credits_refunded: true }),
  };
}

/** The words of retrieve, and those that it says with its status. */
export function statusOf(job: VideoJob): 'PROCESSING' | 'COMPLETED' | 'FAILED' | 'CANCELLED' {
  if (job.state === 'completed') return 'COMPLETED';
  if (wasCancelled(job)) return 'CANCELLED';
  return job.state === 'failed' ? 'FAILED' : 'PROCESSING';
}
