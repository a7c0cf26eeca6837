/**
 * Sends deliveries: a signed POST to a public address, as Standard Webhooks says it, repeated with
 * growing pauses for a day until it is taken or given up. It may arrive twice, after a crash, under
 * the same id.
 */
import { type Clock, MINUTE_MS, SECOND_MS } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { type Log, reasonOf } from '../core/log.ts';
import type { Guard } from '../net/guard.ts';
import { type Delivery, TEST_EVENT, type Webhook, signaturesOf } from './webhook.ts';
import type { Attempted, Claim, WebhookTable } from './webhook-table.ts';

const TIMEOUT_MS = 10 * SECOND_MS;
/** After 1, 4, 16, 64, 256 and 1024 minutes: 23 hours in all. */
const MAX_ATTEMPTS = 7;
const FIRST_PAUSE_MS = MINUTE_MS;
const PAUSE_FACTOR = 4;
/** A crash in the middle of a call repeats it after this time. */
export const RETAKE_MS = 2 * MINUTE_MS;
/** First attempts at once, and as many repeated ones. */
const AT_ONCE = 32;
/** How long one round may take up new ones. */
const ROUND_MS = 45 * SECOND_MS;
/** While some wait for slow addresses, free places are filled so often. */
const REFILL_MS = 250;
/** The address does not want to hear of us again. */
const GONE = 410;

export interface SendParts {
  readonly table: WebhookTable;
  /** Posts to a public address only. */
  readonly guard: Pick<Guard, 'post'>;
  readonly clock: Clock;
  readonly log: Log;
}

type Find = (delivery: Delivery) => Promise<Webhook | undefined>;

/**
 * Sends what is due, for some time at most; what is left is sent in the next round. What was never
 * tried has places of its own, which no address that failed before can keep.
 */
export async function sendDue(parts: SendParts, find: Find, signal: AbortSignal): Promise<void> {
  await Promise.all([
    sendLane(parts, find, signal, 'first'),
    sendLane(parts, find, signal, 'repeated'),
  ]);
}

/** A slow address keeps its own place and its account's turn; every other place is filled again. */
async function sendLane(
  parts: SendParts,
  find: Find,
  signal: AbortSignal,
  attempt: Claim['attempt'],
): Promise<void> {
  const { table, clock } = parts;
  const untilMs = clock.monotonicMs() + ROUND_MS;
  const running = new Map<Promise<void>, string>();
  let failure: { readonly reason: unknown } | undefined;
  const send = async (delivery: Delivery): Promise<void> => {
    try {
      const webhook = await find(delivery);
      if (webhook !== undefined) await sendOne(parts, webhook, delivery, signal);
      // Deleted meanwhile, and its deliveries with it, but for one that was being added.
      else await table.forget(delivery.id);
    } catch (error) {
      failure ??= { reason: error }; // the database is away: nothing more is taken up
    }
  };
  while (!signal.aborted && clock.monotonicMs() < untilMs) {
    const due = await table.claim({
      attempt,
      nowMs: clock.nowMs(),
      laterMs: RETAKE_MS,
      most: AT_ONCE - running.size,
      busyAccountIds: [...new Set(running.values())],
    });
    for (const delivery of due) {
      const one = send(delivery).finally(() => running.delete(one));
      running.set(one, delivery.accountId);
    }
    if (running.size === 0 || failure !== undefined) break;
    await someTime(clock, Promise.all(running.keys()));
  }
  await Promise.all(running.keys());
  if (failure !== undefined) throw failure.reason;
}

/** Until the work is done, or a moment: places that are free by then are filled. */
async function someTime(clock: Clock, work: Promise<unknown>): Promise<void> {
  const timer = new AbortController();
  const moment = clock.sleep(REFILL_MS, timer.signal).catch(() => undefined); // done before
  await Promise.race([work, moment]);
  timer.abort();
}

/** Makes one attempt and writes down what it came to; returns that. */
export async function sendOne(
  parts: SendParts,
  webhook: Webhook,
  delivery: Delivery,
  signal: AbortSignal,
): Promise<Delivery> {
  const { table, log } = parts;
  const answer = await post(parts, webhook, delivery, signal);
  // The server ends: the attempt is repeated when another one runs.
  if (signal.aborted) return delivery;
  const attempted = outcomeOf(parts, delivery, answer);
  if (attempted.state === 'failed') log.info({ delivery: delivery.id }, 'A webhook was given up');
  await table.attempted(delivery.id, attempted);
  return { ...delivery, ...attempted };
}

interface Answer {
  readonly status: number | undefined;
  /** `undefined`: it was taken. */
  readonly problem: string | undefined;
}

function outcomeOf(
  { clock }: SendParts,
  { event, attempts }: Delivery,
  { status, problem }: Answer,
): Attempted {
  const nowMs = clock.nowMs();
  if (problem === undefined) {
    return { state: 'delivered', dueMs: 0, endedMs: nowMs, status, problem };
  }
  const isLast = attempts >= MAX_ATTEMPTS || status === GONE || event === TEST_EVENT;
  if (isLast) return { state: 'failed', dueMs: 0, endedMs: nowMs, status, problem };
  const dueMs = nowMs + FIRST_PAUSE_MS * PAUSE_FACTOR ** (attempts - 1);
  return { state: 'pending', dueMs, endedMs: 0, status, problem };
}

async function post(
  { guard, clock, log }: SendParts,
  webhook: Webhook,
  { id, body }: Delivery,
  signal: AbortSignal,
): Promise<Answer> {
  const unixSeconds = Math.floor(clock.nowMs() / SECOND_MS);
  const headers = {
    'content-type': 'application/json',
    'webhook-id': id,
    'webhook-timestamp': String(unixSeconds),
    'webhook-signature': signaturesOf(webhook, { id, unixSeconds, body }),
  };
  try {
    const status = await guard.post(webhook.url, { body, headers, timeoutMs: TIMEOUT_MS, signal });
    const isTaken = status >= 200 && status < 300;
    return { status, problem: isTaken ? undefined : `The address answered with ${status}` };
  } catch (error) {
    // No answer counts like a refusal: it is tried again. What a fault says is for the owner to read.
    log.debug({ delivery: id, reason: reasonOf(error) }, 'A webhook got no answer');
    const problem = error instanceof Fault ? error.message : 'The address did not answer';
    return { status: undefined, problem };
  }
}
