/**
 * Tells callers that a job has ended: a signed POST to the address that they gave, repeated with
 * growing pauses until it is taken or given up.
 *
 * The signature is HMAC-SHA256 over `<unix seconds>.<body>` with a secret of the caller's own,
 * derived from the operator's; it is told to the caller when a job with a webhook is queued.
 */
import { createHmac } from 'node:crypto';
import { type Clock, MINUTE_MS, SECOND_MS, isoTime } from '../core/clock.ts';
import { type Log, reasonOf } from '../core/log.ts';
import type { Guard } from '../net/guard.ts';
import type { JobTable } from './job-table.ts';
import { type VideoJob, statusOf } from './job.ts';

const MAX_ATTEMPTS = 6;
const FIRST_PAUSE_MS = 10 * SECOND_MS;
const PAUSE_FACTOR = 6;
const TIMEOUT_MS = 10 * SECOND_MS;
/** A crash in the middle of a call repeats it after this time. */
const RETAKE_MS = 2 * MINUTE_MS;
const MAX_RUNNING = 32;

/** The signing secret of one account. */
export function webhookSecretOf(masterSecret: string, accountId: string): string {
  return createHmac('sha256', masterSecret).update(`webhook:${accountId}`).digest('hex');
}

/** The value of the signature header: `t=<unix seconds>,v1=<hex>`. */
export function webhookSignature(secret: string, unixSeconds: number, body: string): string {
  const mac = createHmac('sha256', secret).update(`${unixSeconds}.${body}`).digest('hex');
  return `t=${unixSeconds},v1=${mac}`;
}

/** What a webhook says. */
export function webhookBody(job: VideoJob): string {
  const status = statusOf(job);
  return JSON.stringify({
    event: `video.${status.toLowerCase()}`,
    queue_id: job.id,
    model: job.modelId,
    status,
    created_at: isoTime(job.createdMs),
    finished_at: isoTime(job.finishedMs),
    execution_duration: job.executionMs,
    ...(job.failure !== null && { error: job.failure.message, credits_refunded: true }),
  });
}

interface WebhookParts {
  readonly table: JobTable;
  /** Posts to a public address only. */
  readonly post: Guard['post'];
  readonly masterSecret: string;
  /** The service's word in header names. */
  readonly serviceName: string;
  readonly clock: Clock;
  readonly log: Log;
}

/** Sends what is due, without waiting for it: addresses of callers hold up neither jobs nor each other. */
export class WebhookSender {
  readonly #parts: WebhookParts;
  readonly #signal: AbortSignal;
  /** The account of each call. */
  readonly #running = new Map<Promise<void>, string>();

  constructor(parts: WebhookParts, signal: AbortSignal) {
    this.#parts = parts;
    this.#signal = signal;
  }

  /** Begins what there is room for. */
  async send(): Promise<void> {
    // A call that is not made would count as an attempt, and wait for the time of a crash.
    if (this.#signal.aborted) return;
    const { table, clock } = this.#parts;
    const most = MAX_RUNNING - this.#running.size;
    if (most === 0) return;
    const busyAccountIds = [...new Set(this.#running.values())];
    const nowMs = clock.nowMs();
    const dueMs = nowMs + RETAKE_MS;
    for (const job of await table.claimWebhooks({ nowMs, dueMs, most, busyAccountIds })) {
      const call = this.#sendOne(job).finally(() => this.#running.delete(call));
      this.#running.set(call, job.accountId);
    }
  }

  /** What runs has ended; the signal cuts it short. */
  async ended(): Promise<void> {
    await Promise.all(this.#running.keys());
  }

  async #sendOne(job: VideoJob): Promise<void> {
    try {
      await sendOne(this.#parts, job, this.#signal);
    } catch (error) {
      // The database is away: it is due again after a while.
      this.#parts.log.debug({ job: job.id, reason: reasonOf(error) }, 'A webhook was not noted');
    }
  }
}

async function sendOne(parts: WebhookParts, job: VideoJob, signal: AbortSignal): Promise<void> {
  const { table, clock, log } = parts;
  const isTaken = await post(parts, job, signal).catch((error: unknown) => {
    // No answer counts like a refusal: it is tried again.
    log.debug({ job: job.id, reason: reasonOf(error) }, 'A webhook got no answer');
    return false;
  });
  // The server ends: the attempt is repeated when another one runs.
  if (signal.aborted && !isTaken) return;
  if (isTaken || job.webhookAttempts >= MAX_ATTEMPTS) {
    if (!isTaken) log.info({ job: job.id }, 'A webhook was given up');
    return await table.webhookDue(job.id, 0);
  }
  const pauseMs = FIRST_PAUSE_MS * PAUSE_FACTOR ** (job.webhookAttempts - 1);
  await table.webhookDue(job.id, clock.nowMs() + pauseMs);
}

async function post(parts: WebhookParts, job: VideoJob, signal: AbortSignal): Promise<boolean> {
  const { masterSecret, serviceName, clock } = parts;
  const body = webhookBody(job);
  const secret = webhookSecretOf(masterSecret, job.accountId);
  const signature = webhookSignature(secret, Math.floor(clock.nowMs() / SECOND_MS), body);
  const headers = {
    'content-type': 'application/json',
    [`x-${serviceName}-signature`]: signature,
    [`x-${serviceName}-event-id`]: job.id,
  };
  const message = { body, headers, timeoutMs: TIMEOUT_MS, signal };
  const status = await parts.post(job.webhookUrl, message);
  return status >= 200 && status < 300;
}
