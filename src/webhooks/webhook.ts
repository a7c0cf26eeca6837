/**
 * The rows of webhooks and deliveries, and the signature of Standard Webhooks: HMAC-SHA256 of
 * `<id>.<unix seconds>.<body>` with the bytes of the secret.
 */
import { createHmac } from 'node:crypto';
import * as z from 'zod';
import { SECOND_MS } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import { nano } from '../core/money.ts';
import { Flag, Whole, maybe, rowShape } from '../db/db.ts';

export const EVENTS = [
  'balance.low',
  'key.limit_reached',
  'budget.limit_reached',
  'spend.daily',
] as const;
/** Events that go to every webhook of an account, without a threshold. */
export const NOTICES = ['auto_top_up.failed'] as const;
export const TEST_EVENT = 'webhook.test';
/** Messages by e-mail to an address outside of the webhooks: an invited person, an operator. */
export const MAILS = ['member.invited', 'backup.failed'] as const;
/** `video.…` are callbacks. */
export type DeliveryEvent =
  | (typeof EVENTS)[number]
  | (typeof NOTICES)[number]
  | (typeof MAILS)[number]
  | typeof TEST_EVENT
  | `video.${string}`;

const SECRET_BYTES = 24;
const SECRET_PREFIX = 'whsec_';

const maybeAmount = maybe(z.bigint().transform(nano));
const maybeNumber = maybe(Whole);

const WEBHOOK = rowShape({
  id: z.string(),
  accountId: z.string(),
  url: z.string(),
  /** `whsec_` and base64. */
  secret: z.string(),
  /** The previous secret. Messages are signed with both until `oldSecretUntilMs`. */
  oldSecret: maybe(z.string()),
  oldSecretUntilMs: maybeNumber,
  /** The thresholds; an event without one is not sent. */
  balanceNano: maybeAmount,
  keyPercent: maybeNumber,
  budgetPercent: maybeNumber,
  dailyNano: maybeAmount,
  /** Whether the balance was below its threshold at the last check, and how often it fell below. */
  isLow: Flag,
  timesLow: Whole,
  /** No new messages are queued. */
  isPaused: Flag,
  createdMs: Whole,
});
export const WEBHOOK_COLUMNS = WEBHOOK.columns;
export const webhookOf = WEBHOOK.parse;
export type Webhook = ReturnType<typeof webhookOf>;

export const DELIVERY_STATES = ['pending', 'delivered', 'failed'] as const;

const DELIVERY = rowShape({
  /** The same in every attempt: `webhook-id`. */
  id: z.string(),
  /** Empty for a callback. */
  webhookId: z.string(),
  accountId: z.string(),
  event: z.custom<DeliveryEvent>((event) => typeof event === 'string'),
  /** The cap and its threshold, or the threshold of the daily spending. */
  subject: z.string(),
  /** One message is sent per period: the start of a day or month, or the number of the crossing. */
  period: Whole,
  body: z.string(),
  state: z.enum(DELIVERY_STATES),
  attempts: Whole,
  /** Time of the next attempt; 0: none. */
  dueMs: Whole,
  /** The status of the last response. */
  status: maybeNumber,
  /** Reason of the last failure, as text for the owner. */
  problem: maybe(z.string()),
  createdMs: Whole,
  endedMs: Whole,
  /** The address of a callback. */
  url: maybe(z.string()),
});
export const DELIVERY_COLUMNS = DELIVERY.columns;
export const deliveryOf = DELIVERY.parse;
export type Delivery = ReturnType<typeof deliveryOf>;

export interface NewDelivery extends Pick<
  Delivery,
  'id' | 'webhookId' | 'accountId' | 'event' | 'subject' | 'period' | 'body' | 'createdMs'
> {
  readonly url?: string;
}

export function newSecret(ids: Ids): string {
  return SECRET_PREFIX + ids.bytes(SECRET_BYTES).toString('base64');
}

interface Signed {
  readonly id: string;
  readonly unixSeconds: number;
  readonly body: string;
}

/** The URL and the signing secrets of a delivery. */
export type Receiver = Pick<Webhook, 'url' | 'secret' | 'oldSecret' | 'oldSecretUntilMs'>;

/** The value of `webhook-signature`, with both signatures while the previous secret is valid. */
export function signaturesOf(receiver: Receiver, signed: Signed): string {
  const { secret, oldSecret, oldSecretUntilMs = 0 } = receiver;
  const isOldValid = oldSecret !== undefined && signed.unixSeconds * SECOND_MS < oldSecretUntilMs;
  const secrets = isOldValid ? [secret, oldSecret] : [secret];
  return secrets.map((one) => signatureOf(one, signed)).join(' ');
}

function signatureOf(secret: string, { id, unixSeconds, body }: Signed): string {
  const key = Buffer.from(secret.replace(SECRET_PREFIX, ''), 'base64');
  const mac = createHmac('sha256', key).update(`${id}.${unixSeconds}.${body}`);
  return `v1,${mac.digest('base64')}`;
}

/**
 * The secret that signs the callbacks of one account. Its 64 hex digits are valid base64, which the packages
 * of Standard Webhooks require.
 */
export function callbackSecretOf(masterSecret: string, accountId: string): string {
  return createHmac('sha256', masterSecret).update(`webhook:${accountId}`).digest('hex');
}

/** The older signature of callbacks: `t=<unix seconds>,v1=<hex>`. */
export function callbackSignature(secret: string, { unixSeconds, body }: Signed): string {
  const mac = createHmac('sha256', secret).update(`${unixSeconds}.${body}`).digest('hex');
  return `t=${unixSeconds},v1=${mac}`;
}
