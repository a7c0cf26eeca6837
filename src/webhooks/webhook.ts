/**
 * A webhook and its deliveries as values, and the signature of Standard Webhooks: HMAC-SHA256 over
 * `<id>.<unix seconds>.<body>` with the bytes of its secret.
 */
import { createHmac } from 'node:crypto';
import { SECOND_MS } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import { type Nano, nano } from '../core/money.ts';
import type { Row } from '../db/db.ts';

export const EVENTS = [
  'balance.low',
  'key.limit_reached',
  'budget.limit_reached',
  'spend.daily',
] as const;
/** What a caller asks for itself, to see whether it arrives. */
export const TEST_EVENT = 'webhook.test';
/** A callback is an event of its own: the caller of one request named the address in it. */
export type DeliveryEvent = (typeof EVENTS)[number] | typeof TEST_EVENT | `video.${string}`;

const SECRET_BYTES = 24;
const SECRET_PREFIX = 'whsec_';

export interface Webhook {
  readonly id: string;
  readonly accountId: string;
  readonly url: string;
  /** `whsec_` and base64. */
  readonly secret: string;
  /** The one before it, which signs as well until then. */
  readonly oldSecret: { readonly secret: string; readonly untilMs: number } | undefined;
  /** Each event has its threshold; one without is not told. */
  readonly balanceNano: Nano | undefined;
  readonly keyPercent: number | undefined;
  readonly budgetPercent: number | undefined;
  readonly dailyNano: Nano | undefined;
  /** Whether the balance was below its threshold when it was last looked at, and how often before. */
  readonly isLow: boolean;
  readonly timesLow: number;
  /** It is told nothing new. */
  readonly isPaused: boolean;
  readonly createdMs: number;
}

export const DELIVERY_STATES = ['pending', 'delivered', 'failed'] as const;
type DeliveryState = (typeof DELIVERY_STATES)[number];

export interface Delivery {
  /** The same in every attempt: `webhook-id`. */
  readonly id: string;
  /** Empty for a callback. */
  readonly webhookId: string;
  /** The address of a callback. */
  readonly url: string | undefined;
  readonly accountId: string;
  readonly event: DeliveryEvent;
  /** What has come to which threshold: the cap of a key or budget, or the spending of the account. */
  readonly subject: string;
  /** It is told once in it: the start of a day or month, the number of a crossing. */
  readonly period: number;
  readonly body: string;
  readonly state: DeliveryState;
  readonly attempts: number;
  /** When it is tried next; 0: not any more. */
  readonly dueMs: number;
  /** What the address answered last. */
  readonly status: number | undefined;
  /** Why the last attempt failed, in words for the owner. */
  readonly problem: string | undefined;
  readonly createdMs: number;
  readonly endedMs: number;
}

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

/** Where a delivery goes, and which secrets sign it. */
export type Receiver = Pick<Webhook, 'url' | 'secret' | 'oldSecret'>;

/** The value of `webhook-signature`, with both signatures while the previous secret is valid. */
export function signaturesOf({ secret, oldSecret }: Receiver, signed: Signed): string {
  const isOldGood = oldSecret !== undefined && signed.unixSeconds * SECOND_MS < oldSecret.untilMs;
  const secrets = isOldGood ? [secret, oldSecret.secret] : [secret];
  return secrets.map((one) => signatureOf(one, signed)).join(' ');
}

function signatureOf(secret: string, { id, unixSeconds, body }: Signed): string {
  const key = Buffer.from(secret.replace(SECRET_PREFIX, ''), 'base64');
  const mac = createHmac('sha256', key).update(`${id}.${unixSeconds}.${body}`);
  return `v1,${mac.digest('base64')}`;
}

/**
 * The secret that signs the callbacks of one account. Its 64 hex digits are valid base64, so that
 * the packages of Standard Webhooks take it as it is.
 */
export function callbackSecretOf(masterSecret: string, accountId: string): string {
  return createHmac('sha256', masterSecret).update(`webhook:${accountId}`).digest('hex');
}

/** The older signature of callbacks, `t=<unix seconds>,v1=<hex>`, which is sent beside the other. */
export function callbackSignature(secret: string, { unixSeconds, body }: Signed): string {
  const mac = createHmac('sha256', secret).update(`${unixSeconds}.${body}`).digest('hex');
  return `t=${unixSeconds},v1=${mac}`;
}

export const WEBHOOK_COLUMNS = `id, account_id, url, secret, old_secret, old_secret_until_ms,
  balance_nano, key_percent, budget_percent, daily_nano, is_low, times_low, is_paused,
  created_ms`;

export function webhookOf(row: Row): Webhook {
  const { old_secret: old, old_secret_until_ms: untilMs } = row;
  return {
    id: String(row['id']),
    accountId: String(row['account_id']),
    url: String(row['url']),
    secret: String(row['secret']),
    oldSecret: typeof old === 'string' ? { secret: old, untilMs: Number(untilMs) } : undefined,
    balanceNano: amountOf(row['balance_nano']),
    keyPercent: numberOf(row['key_percent']),
    budgetPercent: numberOf(row['budget_percent']),
    dailyNano: amountOf(row['daily_nano']),
    isLow: row['is_low'] !== 0n,
    timesLow: Number(row['times_low']),
    isPaused: row['is_paused'] !== 0n,
    createdMs: Number(row['created_ms']),
  };
}

export const DELIVERY_COLUMNS =
  'id, webhook_id, account_id, event, subject, period, body, state, attempts, due_ms, status, problem, created_ms, ended_ms, url';

export function deliveryOf(row: Row): Delivery {
  return {
    id: String(row['id']),
    webhookId: String(row['webhook_id']),
    accountId: String(row['account_id']),
    event: String(row['event']) as DeliveryEvent, // written by this folder only
    subject: String(row['subject']),
    period: Number(row['period']),
    body: String(row['body']),
    state: String(row['state']) as DeliveryState, // as above
    attempts: Number(row['attempts']),
    dueMs: Number(row['due_ms']),
    status: numberOf(row['status']),
    problem: typeof row['problem'] === 'string' ? row['problem'] : undefined,
    createdMs: Number(row['created_ms']),
    endedMs: Number(row['ended_ms']),
    url: typeof row['url'] === 'string' ? row['url'] : undefined,
  };
}

function numberOf(column: Row[string] | undefined): number | undefined {
  return typeof column === 'bigint' ? Number(column) : undefined;
}

function amountOf(column: Row[string] | undefined): Nano | undefined {
  return typeof column === 'bigint' ? nano(column) : undefined;
}
