/** Schemas and descriptions of `/webhooks`. */
import * as z from 'zod';
import { TOO_FINE, isExactUsd } from '../core/money.ts';
import {
  type RouteDescription,
  jsonContent,
  jsonResponse,
  listOf,
  textContent,
} from '../http/describe.ts';
import { cursorQuery, pageOf } from '../http/cursor.ts';
import { DELIVERY_STATES, EVENTS, NOTICES, TEST_EVENT } from './webhook.ts';

const MAX_URL_CHARS = 2_048;
/** Exact as a JSON number with nine decimals. */
const MAX_USD = 9_000_000;
const THRESHOLD_OF = {
  'balance.low': 'balanceUsd',
  'key.limit_reached': 'keyLimitPercent',
  'budget.limit_reached': 'budgetPercent',
  'spend.daily': 'dailySpendUsd',
} as const;

const Usd = z.number().positive().max(MAX_USD).refine(isExactUsd, TOO_FINE);
const Percent = z.int().min(1).max(100);
const ABOUT = {
  balanceUsd:
    'For `balance.low`: the posted USD balance falls below this amount. Sent again only after the balance was above it.',
  keyLimitPercent:
    'For `key.limit_reached`: a key has spent this percentage of its limit. Use a value below 100, such as 90, because a request that exceeds the rest of a limit is rejected. Sent once per period of the limit, and again after its amount was changed.',
  budgetPercent:
    'For `budget.limit_reached`: this percentage of a budget is spent, for each value of its tag separately if each value has a budget of its own. Sent once per period.',
  dailySpendUsd:
    'For `spend.daily`: the account was charged this amount since 00:00 UTC, including daily credit. Sent once per day.',
};

const Url = z.string().min(1).max(MAX_URL_CHARS);
const Events = z
  .array(z.enum(EVENTS))
  .min(1)
  .max(EVENTS.length)
  .describe('Events that are sent; each event needs its threshold.');

function thresholds<U extends z.ZodType, P extends z.ZodType>(usd: U, percent: P) {
  return z.strictObject({
    balanceUsd: usd.describe(ABOUT.balanceUsd),
    keyLimitPercent: percent.describe(ABOUT.keyLimitPercent),
    budgetPercent: percent.describe(ABOUT.budgetPercent),
    dailySpendUsd: usd.describe(ABOUT.dailySpendUsd),
  });
}

export type CreateWebhook = z.infer<typeof CreateWebhook>;
export const CreateWebhook = z
  .object({
    url: Url.describe(
      'URL for the messages: public, http or https; or `mailto:` and an address, if the server sends e-mail.',
    ),
    events: Events,
    thresholds: thresholds(Usd.nullish(), Percent.nullish()).describe('One for each event.'),
  })
  .check((context) => {
    const { events, thresholds } = context.value;
    const given = EVENTS.filter((event) => typeof thresholds[THRESHOLD_OF[event]] === 'number');
    context.issues.push(...mismatches(events, given));
  })
  .meta({ id: 'CreateWebhookRequest' });

type Event = (typeof EVENTS)[number];

/** Issues for events without a threshold and thresholds without their event. */
export function mismatches(events: readonly Event[], withThreshold: readonly Event[]) {
  return EVENTS.filter((one) => events.includes(one) !== withThreshold.includes(one)).map(
    (event) => ({
      code: 'custom' as const,
      path: ['thresholds', THRESHOLD_OF[event]],
      message: events.includes(event)
        ? `Must be set for the event "${event}"`
        : `Must not be set without the event "${event}"`,
      input: undefined,
    }),
  );
}

export type UpdateWebhook = z.infer<typeof UpdateWebhook>;
export const UpdateWebhook = z
  .object({
    url: Url.nullish().describe('The new URL.'),
    events: Events.nullish().describe('Optional; must be the events with a threshold.'),
    thresholds: thresholds(Usd.nullish(), Percent.nullish())
      .nullish()
      .describe('A missing threshold does not change; null stops its event.'),
    paused: z
      .boolean()
      .nullish()
      .describe(
        'True: no new messages until it is false again. Then crossed thresholds are sent within a minute.',
      ),
  })
  .meta({ id: 'UpdateWebhookRequest' });

const WEBHOOK_SHAPE = {
  id: z.string().describe('Id of the webhook.'),
  object: z.literal('webhook').describe('Kind of the object.'),
  url: z.string().describe('URL for the messages.'),
  events: Events,
  thresholds: thresholds(Usd.nullable(), Percent.nullable()).describe(
    'Thresholds; null for an event that is not sent.',
  ),
  paused: z.boolean().describe('True: no new messages. Waiting messages are still sent.'),
  createdAt: z.string().describe('ISO 8601, UTC.'),
};

export type WebhookItem = z.infer<typeof WebhookItem>;
export const WebhookItem = z.strictObject(WEBHOOK_SHAPE).meta({ id: 'Webhook' });

export type CreatedWebhook = z.infer<typeof CreatedWebhook>;
export const CreatedWebhook = z
  .strictObject({
    ...WEBHOOK_SHAPE,
    secret: z.string().describe('Signing secret: `whsec_` and base64. It is shown only here.'),
  })
  .meta({ id: 'CreatedWebhook' });

export type RotatedWebhook = z.infer<typeof RotatedWebhook>;
export const RotatedWebhook = CreatedWebhook.extend({
  previousSecretUntil: z
    .string()
    .describe('Until this time the previous secret signs too; ISO 8601, UTC.'),
}).meta({ id: 'RotatedWebhook' });

const WebhookList = listOf(WebhookItem, 'All webhooks of the account, newest first.').meta({
  id: 'WebhookList',
});

const DeletedWebhook = z
  .strictObject({
    id: z.string().describe('Id of the webhook.'),
    object: z.literal('webhook').describe('Kind of the object.'),
    deleted: z.literal(true).describe('The webhook and its waiting messages are deleted.'),
  })
  .meta({ id: 'DeletedWebhook' });

export type DeliveryItem = z.infer<typeof DeliveryItem>;
export const DeliveryItem = z
  .strictObject({
    id: z.string().describe('Id of the message, in every attempt the header `webhook-id`.'),
    object: z.literal('webhook.delivery').describe('Kind of the object.'),
    event: z.enum([...EVENTS, ...NOTICES, TEST_EVENT]).describe('The event.'),
    status: z
      .enum(DELIVERY_STATES)
      .describe('`pending`: repeated later; `delivered`: accepted; `failed`: not repeated.'),
    attempts: z.int().describe('Number of attempts.'),
    nextAttemptAt: z.string().nullable().describe('ISO 8601, UTC; null: no further attempt.'),
    responseStatus: z.int().nullable().describe('Status of the last response, or null.'),
    error: z.string().nullable().describe('Reason of the last failure, or null.'),
    createdAt: z.string().describe('ISO 8601, UTC.'),
    endedAt: z.string().nullable().describe('Time of the end, ISO 8601, UTC; null before.'),
    payload: z
      .record(z.string(), z.unknown())
      .describe('The message: `type`, `timestamp` and `data`.'),
  })
  .meta({ id: 'WebhookDelivery' });

export const DeliveriesQuery = z.object(cursorQuery());

export type DeliveryList = z.infer<typeof DeliveryList>;
const DeliveryList = pageOf(DeliveryItem, 'Messages of the last 40 days, newest first.').meta({
  id: 'WebhookDeliveryList',
});

const ID = 'wh_019aa3f1c0de4b7e8c1d2e3f4a5b6c7d';
const WEBHOOK: WebhookItem = {
  id: ID,
  object: 'webhook',
  url: 'https://hooks.example.com/farebox',
  events: ['balance.low', 'spend.daily'],
  thresholds: { balanceUsd: 5, keyLimitPercent: null, budgetPercent: null, dailySpendUsd: 20 },
  paused: false,
  createdAt: '2026-11-21T04:00:00.000Z',
};
const DELIVERY: DeliveryItem = {
  id: 'msg_019aa3f2c0de4b7e8c1d2e3f4a5b6c7d',
  object: 'webhook.delivery',
  event: 'balance.low',
  status: 'delivered',
  attempts: 1,
  nextAttemptAt: null,
  responseStatus: 204,
  error: null,
  createdAt: '2026-11-21T05:01:00.000Z',
  endedAt: '2026-11-21T05:01:00.000Z',
  payload: {
    type: 'balance.low',
    timestamp: '2026-11-21T05:01:00.000Z',
    data: { webhookId: ID, accountId: 'acct_5c1d0e9f8a7b', balanceUsd: 4.98, thresholdUsd: 5 },
  },
};
const parameters = [
  { name: 'id', in: 'path', about: 'Id of the webhook.', example: ID, required: true },
] as const;
const tag = 'Webhooks';
const SECRET = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';

export const CREATE_WEBHOOK: RouteDescription = {
  tag,
  summary: 'Create a webhook',
  about:
    'Messages are signed by [Standard Webhooks](https://www.standardwebhooks.com): `webhook-id`, `webhook-timestamp`, `webhook-signature`. Thresholds are checked once per minute. If a URL does not respond with 2xx within 10 seconds, the message is repeated with growing pauses for a day; 410 ends it. An account can have 10 webhooks.',
  request: jsonContent(CreateWebhook, {
    url: WEBHOOK.url,
    events: WEBHOOK.events,
    thresholds: { balanceUsd: 5, dailySpendUsd: 20 },
  }),
  response: jsonResponse('The webhook with its secret.', CreatedWebhook, {
    ...WEBHOOK,
    secret: SECRET,
  }),
  refusals: ['WEBHOOK_LIMIT_REACHED'],
};

export const LIST_WEBHOOKS: RouteDescription = {
  tag,
  summary: 'List webhooks',
  response: jsonResponse('The webhooks, without their secrets.', WebhookList, {
    object: 'list',
    data: [WEBHOOK],
  }),
};

export const UPDATE_WEBHOOK: RouteDescription = {
  tag,
  summary: 'Change a webhook',
  about: 'Waiting messages go to the new URL. A changed threshold is checked again.',
  parameters,
  request: jsonContent(UpdateWebhook, { thresholds: { balanceUsd: 10, dailySpendUsd: null } }),
  response: jsonResponse('The changed webhook.', WebhookItem, {
    ...WEBHOOK,
    events: ['balance.low'],
    thresholds: { ...WEBHOOK.thresholds, balanceUsd: 10, dailySpendUsd: null },
  }),
  refusals: ['WEBHOOK_NOT_FOUND'],
};

export const ROTATE_SECRET: RouteDescription = {
  tag,
  summary: 'Rotate the secret of a webhook',
  about:
    'For 24 hours each message has two signatures, of the new and of the previous secret, so that a receiver can verify it with either. The secret is only in this response.',
  parameters,
  response: jsonResponse('The webhook with its new secret.', RotatedWebhook, {
    ...WEBHOOK,
    secret: SECRET,
    previousSecretUntil: '2026-11-22T04:00:00.000Z',
  }),
  refusals: ['WEBHOOK_NOT_FOUND'],
};

export const DELETE_WEBHOOK: RouteDescription = {
  tag,
  summary: 'Delete a webhook',
  parameters,
  response: jsonResponse('The webhook is deleted.', DeletedWebhook, {
    id: ID,
    object: 'webhook',
    deleted: true,
  }),
  refusals: ['WEBHOOK_NOT_FOUND'],
};

export const TEST_WEBHOOK: RouteDescription = {
  tag,
  summary: 'Send a test message',
  about: 'Sends the event `webhook.test` once and returns the result. Allowed once in 10 seconds.',
  parameters,
  response: jsonResponse('The result; also 200 if it is `failed`.', DeliveryItem, {
    ...DELIVERY,
    event: 'webhook.test',
    payload: { ...DELIVERY.payload, type: 'webhook.test', data: { webhookId: ID } },
  }),
  refusals: ['WEBHOOK_NOT_FOUND', 'RATE_LIMIT_EXCEEDED', 'SERVICE_UNAVAILABLE'],
};

export const UnsubscribeQuery = z.object({
  token: z.string().min(1).max(100).describe('Token of the link in an e-mail.'),
});
const Unsubscribed = z
  .strictObject({
    id: z.string().describe('Id of the webhook.'),
    object: z.literal('webhook').describe('Kind of the object.'),
    paused: z.literal(true).describe('No new messages.'),
  })
  .meta({ id: 'UnsubscribedWebhook' });

export const UNSUBSCRIBE_PAGE: RouteDescription = {
  tag,
  summary: 'Show the page of an unsubscribe link',
  parameters,
  query: UnsubscribeQuery,
  response: {
    status: 200,
    about: 'HTML page with a button that stops the messages.',
    headers: ['no-store', 'page-security'],
    content: [textContent('text/html')],
  },
  refusals: ['WEBHOOK_NOT_FOUND'],
};

export const UNSUBSCRIBE: RouteDescription = {
  tag,
  summary: 'Unsubscribe from e-mails',
  about:
    'Pauses the webhook of the link in an e-mail, also by one click in a mail program (RFC 8058).',
  parameters,
  query: UnsubscribeQuery,
  response: jsonResponse('The webhook is paused.', Unsubscribed, {
    id: ID,
    object: 'webhook',
    paused: true,
  }),
  refusals: ['WEBHOOK_NOT_FOUND'],
};

export const LIST_DELIVERIES: RouteDescription = {
  tag,
  summary: 'List the messages of a webhook',
  parameters,
  query: DeliveriesQuery,
  response: jsonResponse('A page of messages.', DeliveryList, {
    object: 'list',
    data: [DELIVERY],
    nextCursor: null,
  }),
  refusals: ['WEBHOOK_NOT_FOUND'],
};
