/**
 * Sends deliveries: a signed POST to a public URL by Standard Webhooks, repeated with growing pauses for a
 * day. After a crash a message may arrive twice, with the same id.
 */
import { type Clock, MINUTE_MS, SECOND_MS } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { type Log, reasonOf } from '../core/log.ts';
import { JobWorker } from '../db/db.ts';
import type { Guard } from '../net/guard.ts';
import { MAILTO, type Mailer, mailAddress } from './email.ts';
import {
  type Delivery,
  type Receiver,
  TEST_EVENT,
  callbackSecretOf,
  callbackSignature,
  signaturesOf,
} from './webhook.ts';
import type { Attempted, Claim, WebhookTable } from './webhook-table.ts';

const TIMEOUT_MS = 10 * SECOND_MS;
/** After 1, 4, 16, 64, 256 and 1024 minutes: 23 hours in all. */
const MAX_ATTEMPTS = 7;
const FIRST_PAUSE_MS = MINUTE_MS;
const PAUSE_FACTOR = 4;
/** A delivery that a crash interrupted is repeated after this time. */
export const RETAKE_MS = 2 * MINUTE_MS;
/** Concurrent first attempts, and concurrent repeated attempts. */
const MAX_CONCURRENT = 32;
/** HTTP status with which a receiver ends a delivery. */
const GONE = 410;

export interface SendParts {
  readonly table: WebhookTable;
  readonly guard: Pick<Guard, 'post'>;
  /** `undefined` disables callbacks. */
  readonly callbackSecret: string | undefined;
  /** `undefined` without a mail server. */
  readonly mailer: Mailer | undefined;
  /** Name of the service in header names. */
  readonly serviceName: string;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Sends due deliveries after `nudge()`. First attempts have slots of their own, so that failing addresses
 * cannot occupy them; a slow address delays only its own account.
 */
export function deliveryWorker(parts: SendParts): JobWorker<Delivery> {
  const { table, clock, log } = parts;
  return new JobWorker({
    name: 'webhooks',
    claim: async (running) => {
      const lane = (attempt: Claim['attempt']): Promise<Delivery[]> => {
        const own = running.filter(({ attempts }) => (attempt === 'first') === (attempts === 1));
        const busyAccountIds = [...new Set(own.map(({ accountId }) => accountId))];
        const times = { nowMs: clock.nowMs(), laterMs: RETAKE_MS };
        const limit = MAX_CONCURRENT - own.length;
        return table.claim({ attempt, ...times, limit, busyAccountIds });
      };
      return [...(await lane('first')), ...(await lane('repeated'))];
    },
    run: async (delivery, signal) => {
      if (delivery.url?.startsWith(MAILTO) === true) {
        await sendOne(parts, { ...NO_SECRETS, url: delivery.url }, delivery, signal);
        return;
      }
      const receiver = await receiverOf(parts, delivery);
      if (receiver !== undefined) await sendOne(parts, receiver, delivery, signal);
      // The webhook was deleted while the delivery was added.
      else await table.forget(delivery.id);
    },
    // E-mails wait for a connection to the mail server.
    renew: {
      everyMs: RETAKE_MS / 3,
      lease: ({ id }) => table.extend(id, clock.nowMs(), RETAKE_MS),
    },
    clock,
    log,
  });
}

async function receiverOf(
  { table, callbackSecret }: SendParts,
  { accountId, webhookId, url }: Delivery,
): Promise<Receiver | undefined> {
  if (url === undefined) return await table.find(accountId, webhookId);
  if (callbackSecret === undefined) return undefined;
  const secret = callbackSecretOf(callbackSecret, accountId);
  return { url, secret, oldSecret: undefined, oldSecretUntilMs: undefined };
}

/** Makes one attempt, stores its result and returns it. */
export async function sendOne(
  parts: SendParts,
  receiver: Receiver,
  delivery: Delivery,
  signal: AbortSignal,
): Promise<Delivery> {
  const { table, clock, log } = parts;
  const response = await respond(parts, receiver, delivery, signal);
  // The server stops; the next start repeats the attempt.
  if (signal.aborted) return delivery;
  const nowMs = clock.nowMs();
  const attempted = outcomeOf(nowMs, delivery, response);
  if (attempted.state === 'failed')
    log.info({ delivery: delivery.id }, 'A webhook message has failed permanently');
  await table.attempted(delivery.id, nowMs, attempted);
  return { ...delivery, ...attempted };
}

interface Response {
  readonly status: number | undefined;
  /** `undefined` after success. */
  readonly problem: string | undefined;
  /** The receiver will never accept the message. */
  readonly isFinal?: boolean;
}

const NO_SECRETS = { secret: '', oldSecret: undefined, oldSecretUntilMs: undefined } as const;
const NO_MAIL: Response = { status: undefined, problem: 'The server sends no e-mail' };

async function respond(
  parts: SendParts,
  receiver: Receiver,
  delivery: Delivery,
  signal: AbortSignal,
): Promise<Response> {
  const { mailer, table } = parts;
  if (!receiver.url.startsWith(MAILTO)) return await post(parts, receiver, delivery, signal);
  const address = mailAddress(receiver.url);
  if (mailer === undefined || address === undefined) return NO_MAIL;
  const { accountId, webhookId } = delivery;
  const webhook = await table.find(accountId, webhookId);
  // A mail server that does not respond must not delay the end of the server.
  const stopped = new Promise<Response>((resolve) => {
    signal.addEventListener('abort', () => resolve(NO_MAIL), { once: true });
  });
  return await Promise.race([mailer.send(address, delivery, webhook), stopped]);
}

function outcomeOf(
  nowMs: number,
  { event, attempts }: Delivery,
  { status, problem, isFinal = status === GONE }: Response,
): Attempted {
  if (problem === undefined) {
    return { state: 'delivered', dueMs: 0, endedMs: nowMs, status, problem };
  }
  const isLast = attempts >= MAX_ATTEMPTS || isFinal || event === TEST_EVENT;
  if (isLast) return { state: 'failed', dueMs: 0, endedMs: nowMs, status, problem };
  const dueMs = nowMs + FIRST_PAUSE_MS * PAUSE_FACTOR ** (attempts - 1);
  return { state: 'pending', dueMs, endedMs: 0, status, problem };
}

async function post(
  { guard, serviceName, clock, log }: SendParts,
  receiver: Receiver,
  { id, url: callbackUrl, subject, body }: Delivery,
  signal: AbortSignal,
): Promise<Response> {
  const unixSeconds = Math.floor(clock.nowMs() / SECOND_MS);
  const signed = { id, unixSeconds, body };
  const headers = {
    'content-type': 'application/json',
    'webhook-id': id,
    'webhook-timestamp': String(unixSeconds),
    'webhook-signature': signaturesOf(receiver, signed),
    ...(callbackUrl !== undefined && {
      [`x-${serviceName}-signature`]: callbackSignature(receiver.secret, signed),
      [`x-${serviceName}-event-id`]: subject,
    }),
  };
  try {
    const status = await guard.post(receiver.url, { body, headers, timeoutMs: TIMEOUT_MS, signal });
    const isSuccess = status >= 200 && status < 300;
    return { status, problem: isSuccess ? undefined : `The URL responded with status ${status}` };
  } catch (error) {
    // Repeated like an error response. The message of a Fault is for the owner.
    log.debug({ delivery: id, reason: reasonOf(error) }, 'A webhook message got no response');
    const problem = error instanceof Fault ? error.message : 'The URL did not respond';
    return { status: undefined, problem };
  }
}
