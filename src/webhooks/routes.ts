/** `/webhooks`: create, list, change, delete and test webhooks, and list their deliveries. */
import { DAY_MS, SECOND_MS, isoTime } from '../core/clock.ts';
import { Fault, invalidField } from '../core/faults.ts';
import type { Ids } from '../core/ids.ts';
import { toUsdNumber, usdToNano } from '../core/money.ts';
import { requireCallbackUrl } from '../http/callback-url.ts';
import { escapeHtml } from '../http/escape-html.ts';
import { timePage } from '../http/cursor.ts';
import { readBody, readQuery } from '../http/read-request.ts';
import type { RequestContext } from '../http/request-context.ts';
import { type Route, get, post, patch, remove } from '../http/route.ts';
import type { Caller } from '../identity/identity.ts';
import { refuseIssues } from '../json/validation.ts';
import type { Guard } from '../net/guard.ts';
import { deliveryOf } from './crossings.ts';
import { MAILTO, isUnsubscribeToken, mailAddress } from './email.ts';
import * as DESCRIPTIONS from './schema.ts';
import {
  CreateWebhook,
  type CreatedWebhook,
  DeliveriesQuery,
  UnsubscribeQuery,
  UpdateWebhook,
  mismatches,
} from './schema.ts';
import type { DeliveryItem, DeliveryList, RotatedWebhook, WebhookItem } from './schema.ts';
import { RETAKE_MS, type SendParts, sendOne } from './send.ts';
import { type Delivery, EVENTS, TEST_EVENT, type Webhook, newSecret } from './webhook.ts';

const MAX_PER_ACCOUNT = 10;
/** Time for which the previous secret signs too. */
const OLD_SECRET_MS = DAY_MS;
const TEST_EVERY_MS = 10 * SECOND_MS;
/** Concurrent tests, which wait for the URLs of callers; one per account. */
const MAX_OPEN_TESTS = 16;

const UNSUBSCRIBE_HEADERS = {
  'content-security-policy':
    "default-src 'none'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
  'referrer-policy': 'no-referrer',
  'cache-control': 'no-store',
};

export interface WebhookRouteParts extends SendParts {
  readonly guard: Pick<Guard, 'post' | 'check'>;
  readonly ids: Ids;
  readonly signal: AbortSignal;
  /** Throws 402 for a caller that must have credit before messages are sent for it. */
  readonly requireCredit: (caller: Caller) => Promise<void>;
}

export function webhookRoutes(parts: WebhookRouteParts): Route[] {
  const { table } = parts;
  const auth = 'admin-or-wallet';
  /** Accounts with a running test. */
  const testing = new Set<string>();
  return [
    post('/webhooks', auth, DESCRIPTIONS.CREATE_WEBHOOK, (context) => create(parts, context)),
    get('/webhooks', auth, DESCRIPTIONS.LIST_WEBHOOKS, async (context) => {
      const found = await table.list(context.caller.accountId);
      await context.json(200, { object: 'list', data: found.map(itemOf) });
    }),
    patch('/webhooks/:id', auth, DESCRIPTIONS.UPDATE_WEBHOOK, (context) => update(parts, context)),
    {
      method: 'POST',
      path: '/webhooks/:id/secret/rotate',
      auth,
      describe: DESCRIPTIONS.ROTATE_SECRET,
      handle: (context) => rotate(parts, context),
    },
    remove('/webhooks/:id', auth, DESCRIPTIONS.DELETE_WEBHOOK, async (context) => {
      const id = context.parameters['id'] ?? '';
      const isRemoved = await table.remove(context.caller.accountId, id);
      if (!isRemoved) throw new Fault('WEBHOOK_NOT_FOUND');
      await context.json(200, { id, object: 'webhook', deleted: true });
    }),
    {
      method: 'POST',
      path: '/webhooks/:id/test',
      auth,
      describe: DESCRIPTIONS.TEST_WEBHOOK,
      handle: async (context) => {
        const { accountId } = context.caller;
        if (testing.has(accountId) || testing.size >= MAX_OPEN_TESTS) {
          throw tooManyTests(testing.has(accountId));
        }
        testing.add(accountId);
        try {
          await sendTest(parts, context);
        } finally {
          testing.delete(accountId);
        }
      },
    },
    get('/webhooks/:id/unsubscribe', 'public', DESCRIPTIONS.UNSUBSCRIBE_PAGE, (context) =>
      showUnsubscribe(parts, context),
    ),
    {
      method: 'POST',
      path: '/webhooks/:id/unsubscribe',
      auth: 'public',
      describe: DESCRIPTIONS.UNSUBSCRIBE,
      handle: (context) => unsubscribe(parts, context),
    },
    get('/webhooks/:id/deliveries', auth, DESCRIPTIONS.LIST_DELIVERIES, (context) =>
      listDeliveries(parts, context),
    ),
  ];
}

async function create(parts: WebhookRouteParts, context: RequestContext): Promise<void> {
  const { url, thresholds } = readBody(context, CreateWebhook);
  const { table, clock, ids } = parts;
  const { accountId } = context.caller;
  await parts.requireCredit(context.caller);
  // Checks the limit before the DNS lookup, which takes longer. The insert below checks it again.
  if ((await table.count(accountId)) >= MAX_PER_ACCOUNT) throw tooMany();
  await requireReceiver(parts, url);
  const createdMs = clock.nowMs();
  const webhook: Webhook = {
    id: `wh_${ids.ordered(createdMs)}`,
    accountId,
    url,
    secret: newSecret(ids),
    oldSecret: undefined,
    oldSecretUntilMs: undefined,
    ...thresholdsOf(thresholds),
    isLow: false,
    timesLow: 0,
    isPaused: false,
    createdMs,
  };
  if (!(await table.insert(webhook, MAX_PER_ACCOUNT))) throw tooMany();
  context.set('cache-control', 'no-store');
  const body: CreatedWebhook = { ...itemOf(webhook), secret: webhook.secret };
  await context.json(200, body);
}

/** Throws 400 for a URL that gets no messages: not public, or an invalid address. */
async function requireReceiver({ guard, mailer }: WebhookRouteParts, url: string): Promise<void> {
  if (!url.startsWith(MAILTO)) return await requireCallbackUrl(guard, 'url', url);
  if (mailer === undefined) {
    throw invalidField(['url'], 'url: This server sends no e-mail; use an http or https URL');
  }
  if (mailAddress(url) === undefined) {
    throw invalidField(
      ['url'],
      'url: Must be mailto: and one address, such as mailto:me@example.com',
    );
  }
}

/** The webhook of an unsubscribe link. Throws 404 for another token, as for a missing webhook. */
async function unsubscribing({ table }: WebhookRouteParts, context: RequestContext) {
  const { token } = readQuery(context, UnsubscribeQuery);
  const webhook = await table.byId(context.parameters['id'] ?? '');
  if (webhook !== undefined && isUnsubscribeToken(webhook, token)) return webhook;
  throw new Fault('WEBHOOK_NOT_FOUND');
}

async function unsubscribe(parts: WebhookRouteParts, context: RequestContext): Promise<void> {
  const { accountId, id } = await unsubscribing(parts, context);
  const { table, clock } = parts;
  await table.change(accountId, id, (before) => ({ ...before, isPaused: true }));
  await table.endWaiting(id, clock.nowMs(), 'The recipient has stopped the messages');
  await context.json(200, { id, object: 'webhook', paused: true });
}

/** A page with a button, because programs that check links open them. */
async function showUnsubscribe(parts: WebhookRouteParts, context: RequestContext): Promise<void> {
  const { url } = await unsubscribing(parts, context);
  const address = escapeHtml(mailAddress(url) ?? url);
  context.setAll(UNSUBSCRIBE_HEADERS);
  const page = `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Stop messages</title></head><body><form method="post"><p>Stop all messages to ${address}?</p><button>Stop messages</button></form></body></html>`;
  await context.bytes(200, 'text/html; charset=utf-8', Buffer.from(page));
}

type Thresholds = Pick<Webhook, 'balanceNano' | 'keyPercent' | 'budgetPercent' | 'dailyNano'>;

/** For a change, a missing threshold keeps its value of `before`, and null removes it. */
function thresholdsOf(
  given: NonNullable<UpdateWebhook['thresholds']>,
  before?: Thresholds,
): Thresholds {
  const { balanceUsd: balance, keyLimitPercent, budgetPercent, dailySpendUsd: daily } = given;
  const kept = <T>(value: T | null | undefined, was: T | undefined): T | undefined =>
    value === undefined ? was : (value ?? undefined);
  return {
    balanceNano: kept(
      typeof balance === 'number' ? usdToNano(balance) : balance,
      before?.balanceNano,
    ),
    keyPercent: kept(keyLimitPercent, before?.keyPercent),
    budgetPercent: kept(budgetPercent, before?.budgetPercent),
    dailyNano: kept(typeof daily === 'number' ? usdToNano(daily) : daily, before?.dailyNano),
  };
}

async function update(parts: WebhookRouteParts, context: RequestContext): Promise<void> {
  const { url, events, thresholds, paused } = readBody(context, UpdateWebhook);
  const { id } = await requireWebhook(parts, context);
  if (typeof url === 'string') await requireReceiver(parts, url);
  const changed = await parts.table.change(context.caller.accountId, id, (before) => {
    const after = { ...before, ...thresholdsOf(thresholds ?? {}, before), url: url ?? before.url };
    const current = eventsOf(after);
    if (current.length === 0) {
      const message = 'Must keep one threshold; delete the webhook to get no messages';
      throw refuseIssues([{ code: 'custom', path: ['thresholds'], message }]);
    }
    const wrong = Array.isArray(events) ? mismatches(events, current) : [];
    if (wrong.length > 0) throw refuseIssues(wrong);
    // A changed threshold is checked again, even if the balance was below the previous one.
    const isLow = before.isLow && after.balanceNano === before.balanceNano;
    return { ...after, isLow, isPaused: paused ?? before.isPaused };
  });
  if (changed === undefined) throw new Fault('WEBHOOK_NOT_FOUND');
  await context.json(200, itemOf(changed));
}

async function rotate(parts: WebhookRouteParts, context: RequestContext): Promise<void> {
  const { table, ids, clock } = parts;
  const untilMs = clock.nowMs() + OLD_SECRET_MS;
  const secret = newSecret(ids);
  const { accountId } = context.caller;
  const changed = await table.change(accountId, context.parameters['id'] ?? '', (before) => ({
    ...before,
    secret,
    oldSecret: before.secret,
    oldSecretUntilMs: untilMs,
  }));
  if (changed === undefined) throw new Fault('WEBHOOK_NOT_FOUND');
  context.set('cache-control', 'no-store');
  const body: RotatedWebhook = {
    ...itemOf(changed),
    secret,
    previousSecretUntil: isoTime(untilMs),
  };
  await context.json(200, body);
}

function tooMany(): Fault {
  const message = `An account can have ${MAX_PER_ACCOUNT} webhooks; delete one first`;
  return new Fault('WEBHOOK_LIMIT_REACHED', { message });
}

function tooManyTests(isOwn: boolean): Fault {
  const message = isOwn
    ? 'A test of another webhook of the account is running; try again after it has ended'
    : 'Too many tests of webhooks are running; try again in 10 s';
  const code = isOwn ? 'RATE_LIMIT_EXCEEDED' : 'SERVICE_UNAVAILABLE';
  return new Fault(code, { message, retryAfterSeconds: 10 });
}

async function sendTest(parts: WebhookRouteParts, context: RequestContext): Promise<void> {
  const { table, clock, signal } = parts;
  const webhook = await requireWebhook(parts, context);
  const { id: webhookId, accountId } = webhook;
  const nowMs = clock.nowMs();
  const period = Math.floor(nowMs / TEST_EVERY_MS);
  const test = { webhookId, accountId, event: TEST_EVENT, subject: '', period } as const;
  const delivery = deliveryOf(parts, test, {});
  if (!(await table.add(delivery))) {
    const seconds = Math.ceil(((period + 1) * TEST_EVERY_MS - nowMs) / SECOND_MS);
    throw new Fault('RATE_LIMIT_EXCEEDED', {
      message: `A webhook can be tested once in ${TEST_EVERY_MS / SECOND_MS} seconds; try again in ${seconds} s`,
      retryAfterSeconds: seconds,
    });
  }
  // The delivery is due at `createdMs`, which is later than `nowMs`.
  const claimed = await table.claimOne(delivery.id, delivery.createdMs, RETAKE_MS);
  // The worker has claimed it first; its result is in the list.
  const pending: Delivery = claimed ?? {
    ...delivery,
    url: undefined,
    state: 'pending',
    attempts: 1,
    dueMs: nowMs,
    status: undefined,
    problem: undefined,
    endedMs: 0,
  };
  const sent = claimed === undefined ? pending : await sendOne(parts, webhook, claimed, signal);
  await context.json(200, deliveryBody(sent));
}

async function requireWebhook(
  { table }: WebhookRouteParts,
  { caller, parameters }: RequestContext,
): Promise<Webhook> {
  const webhook = await table.find(caller.accountId, parameters['id'] ?? '');
  if (webhook === undefined) throw new Fault('WEBHOOK_NOT_FOUND');
  return webhook;
}

async function listDeliveries(parts: WebhookRouteParts, context: RequestContext): Promise<void> {
  const query = readQuery(context, DeliveriesQuery);
  const webhook = await requireWebhook(parts, context);
  const { rows, nextCursor } = await timePage(query, 'id', ({ limit, after }) =>
    parts.table.deliveries(webhook.id, limit, after),
  );
  const body: DeliveryList = { object: 'list', data: rows.map(deliveryBody), nextCursor };
  await context.json(200, body);
}

function itemOf(webhook: Webhook): WebhookItem {
  const { id, url, balanceNano, keyPercent, budgetPercent, dailyNano, createdMs } = webhook;
  return {
    id,
    object: 'webhook',
    url,
    events: eventsOf(webhook),
    thresholds: {
      balanceUsd: balanceNano === undefined ? null : toUsdNumber(balanceNano),
      keyLimitPercent: keyPercent ?? null,
      budgetPercent: budgetPercent ?? null,
      dailySpendUsd: dailyNano === undefined ? null : toUsdNumber(dailyNano),
    },
    paused: webhook.isPaused,
    createdAt: isoTime(createdMs),
  };
}

/** The events with a threshold. */
function eventsOf({ balanceNano, keyPercent, budgetPercent, dailyNano }: Thresholds) {
  const given = {
    'balance.low': balanceNano,
    'key.limit_reached': keyPercent,
    'budget.limit_reached': budgetPercent,
    'spend.daily': dailyNano,
  };
  return EVENTS.filter((event) => given[event] !== undefined);
}

function deliveryBody(delivery: Delivery): DeliveryItem {
  const { id, event, state, attempts, dueMs, status, problem, createdMs, endedMs } = delivery;
  return {
    id,
    object: 'webhook.delivery',
    event: event as DeliveryItem['event'], // a webhook has no callbacks
    status: state,
    attempts,
    nextAttemptAt: dueMs === 0 ? null : isoTime(dueMs),
    responseStatus: status ?? null,
    error: problem ?? null,
    createdAt: isoTime(createdMs),
    endedAt: endedMs === 0 ? null : isoTime(endedMs),
    payload: JSON.parse(delivery.body) as DeliveryItem['payload'], // written by this folder
  };
}
