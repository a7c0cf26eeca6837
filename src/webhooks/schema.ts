/** The shapes of webhooks on the wire, and what their routes say of themselves. */
import { z } from 'zod';
import { TOO_FINE, isExactUsd } from '../core/money.ts';
import { type RouteDescription, jsonResponse, jsonContent, listOf } from '../http/describe.ts';
import { cursorQuery, pageOf } from '../http/cursor.ts';
import { DELIVERY_STATES, EVENTS, TEST_EVENT } from './webhook.ts';

const MAX_URL_CHARS = 2_048;
/** More than any balance; keeps an amount exact as a JSON number. */
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
    'For `balance.low`: the posted USD balance is below it. Told when it falls below, and again only after it was enough in between.',
  keyLimitPercent:
    'For `key.limit_reached`: a key has spent so many percent of its cap. A request that does not fit any more is refused before a cap is used to its last cent: 90 is told in time. Once a period of the cap, and again when its amount was changed.',
  budgetPercent:
    'For `budget.limit_reached`: so many percent of a budget are spent, of each value of its tag for itself where each has the budget. As above, 90 is told in time, once a period.',
  dailySpendUsd:
    'For `spend.daily`: the account was charged so much since 00:00 UTC, daily credit included. Once a day.',
};

const Url = z.string().min(1).max(MAX_URL_CHARS);
const Events = z
  .array(z.enum(EVENTS))
  .min(1)
  .max(EVENTS.length)
  .describe('What it is told of; each event needs its threshold.');

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
    url: Url.describe('Where messages are posted: a public http or https address.'),
    events: Events,
    thresholds: thresholds(Usd.optional(), Percent.optional()).describe(
      'When; one for each of the events.',
    ),
  })
  .check((context) => {
    const { events, thresholds } = context.value;
    const given = EVENTS.filter((event) => thresholds[THRESHOLD_OF[event]] !== undefined);
    context.issues.push(...mismatches(events, given));
  })
  .meta({ id: 'CreateWebhookRequest' });

type Event = (typeof EVENTS)[number];

/** Where the events are not those that have a threshold. */
export function mismatches(events: readonly Event[], withThreshold: readonly Event[]) {
  return EVENTS.filter((one) => events.includes(one) !== withThreshold.includes(one)).map(
    (event) => ({
      code: 'custom' as const,
      path: ['thresholds', THRESHOLD_OF[event]],
      message: events.includes(event)
        ? `Is needed for the event "${event}"`
        : `Is for the event "${event}", which is not among the events`,
      input: undefined,
    }),
  );
}

export type UpdateWebhook = z.infer<typeof UpdateWebhook>;
export const UpdateWebhook = z
  .object({
    url: Url.optional().describe('Where messages are posted from now on.'),
    events: Events.optional().describe(
      'Need not be given; those that have a threshold after the change.',
    ),
    thresholds: thresholds(Usd.nullish(), Percent.nullish())
      .optional()
      .describe('A missing one stays; null: nothing more is told of its event.'),
    paused: z
      .boolean()
      .optional()
      .describe(
        'True: nothing new is told until it is false again. What is beyond its threshold then is told in the next minute.',
      ),
  })
  .meta({ id: 'UpdateWebhookRequest' });

const WEBHOOK_SHAPE = {
  id: z.string().describe('Id of the webhook.'),
  object: z.literal('webhook').describe('Kind of the object.'),
  url: z.string().describe('Where messages are posted.'),
  events: Events,
  thresholds: thresholds(Usd.nullable(), Percent.nullable()).describe(
    'When; null for an event that it is not told of.',
  ),
  paused: z.boolean().describe('True: it is told nothing new. What was on its way is still sent.'),
  createdAt: z.string().describe('ISO 8601, UTC.'),
};

export type WebhookItem = z.infer<typeof WebhookItem>;
export const WebhookItem = z.strictObject(WEBHOOK_SHAPE).meta({ id: 'Webhook' });

export type CreatedWebhook = z.infer<typeof CreatedWebhook>;
export const CreatedWebhook = z
  .strictObject({
    ...WEBHOOK_SHAPE,
    secret: z
      .string()
      .describe('What messages are signed with: `whsec_` and base64. Shown once, here.'),
  })
  .meta({ id: 'CreatedWebhook' });

export type RotatedWebhook = z.infer<typeof RotatedWebhook>;
export const RotatedWebhook = CreatedWebhook.extend({
  previousSecretUntil: z
    .string()
    .describe('Until then messages are signed with the secret before as well; ISO 8601, UTC.'),
}).meta({ id: 'RotatedWebhook' });

const WebhookList = listOf(WebhookItem, 'Newest first; all of the account.').meta({
  id: 'WebhookList',
});

const DeletedWebhook = z
  .strictObject({
    id: z.string().describe('Id of the webhook.'),
    object: z.literal('webhook').describe('Kind of the object.'),
    deleted: z.literal(true).describe('It is gone, and what it had still to tell.'),
  })
  .meta({ id: 'DeletedWebhook' });

export type DeliveryItem = z.infer<typeof DeliveryItem>;
export const DeliveryItem = z
  .strictObject({
    id: z.string().describe('The same in every attempt: the header `webhook-id`.'),
    object: z.literal('webhook.delivery').describe('Kind of the object.'),
    event: z.enum([...EVENTS, TEST_EVENT]).describe('What it tells.'),
    status: z
      .enum(DELIVERY_STATES)
      .describe('`pending` is tried again; `delivered` was taken; `failed` was given up.'),
    attempts: z.int().describe('How often it was sent.'),
    nextAttemptAt: z
      .string()
      .nullable()
      .describe('ISO 8601, UTC; null when it is not tried again.'),
    responseStatus: z
      .int()
      .nullable()
      .describe('What the address answered last; null without an answer.'),
    error: z
      .string()
      .nullable()
      .describe('Why the last attempt failed; null when it did not, or there was none.'),
    createdAt: z.string().describe('ISO 8601, UTC.'),
    endedAt: z
      .string()
      .nullable()
      .describe('When it was taken or given up, ISO 8601, UTC; null before.'),
    payload: z
      .record(z.string(), z.unknown())
      .describe('The message: `type`, `timestamp` and `data`.'),
  })
  .meta({ id: 'WebhookDelivery' });

export const DeliveriesQuery = z.object(cursorQuery());

export type DeliveryList = z.infer<typeof DeliveryList>;
const DeliveryList = pageOf(DeliveryItem, 'Newest first; of the last 40 days.').meta({
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

export const CREATE_WEBHOOK: RouteDescription = {
  tag,
  summary: 'Create a webhook',
  about:
    'Messages are signed as [Standard Webhooks](https://www.standardwebhooks.com) says: `webhook-id`, `webhook-timestamp`, `webhook-signature`. Thresholds are looked at once a minute. An address that does not answer with 2xx within 10 seconds is tried again with growing pauses for a day; 410 ends it. An account has up to 10.',
  request: jsonContent(CreateWebhook, {
    url: WEBHOOK.url,
    events: WEBHOOK.events,
    thresholds: { balanceUsd: 5, dailySpendUsd: 20 },
  }),
  response: jsonResponse(
    'The webhook with its secret, which is shown nowhere else.',
    CreatedWebhook,
    {
      ...WEBHOOK,
      secret: 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw',
    },
  ),
  refusals: ['WEBHOOK_LIMIT_REACHED'],
};

export const LIST_WEBHOOKS: RouteDescription = {
  tag,
  summary: 'List webhooks',
  response: jsonResponse('Without their secrets.', WebhookList, {
    object: 'list',
    data: [WEBHOOK],
  }),
};

export const UPDATE_WEBHOOK: RouteDescription = {
  tag,
  summary: 'Change a webhook',
  about: 'What is on its way goes to the new address. A changed threshold is told of anew.',
  parameters,
  request: jsonContent(UpdateWebhook, { thresholds: { balanceUsd: 10, dailySpendUsd: null } }),
  response: jsonResponse('As it is now.', WebhookItem, {
    ...WEBHOOK,
    events: ['balance.low'],
    thresholds: { ...WEBHOOK.thresholds, balanceUsd: 10, dailySpendUsd: null },
  }),
  refusals: ['WEBHOOK_NOT_FOUND'],
};

export const ROTATE_SECRET: RouteDescription = {
  tag,
  summary: 'Give a webhook a new secret',
  about:
    'For 24 hours each message has two signatures, of the new secret and of the one before, so that a receiver that knows either believes it. The secret is in this answer and nowhere else.',
  parameters,
  response: jsonResponse('With its new secret.', RotatedWebhook, {
    ...WEBHOOK,
    secret: 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw',
    previousSecretUntil: '2026-11-22T04:00:00.000Z',
  }),
  refusals: ['WEBHOOK_NOT_FOUND'],
};

export const DELETE_WEBHOOK: RouteDescription = {
  tag,
  summary: 'Delete a webhook',
  parameters,
  response: jsonResponse('Nothing more is sent.', DeletedWebhook, {
    id: ID,
    object: 'webhook',
    deleted: true,
  }),
  refusals: ['WEBHOOK_NOT_FOUND'],
};

export const TEST_WEBHOOK: RouteDescription = {
  tag,
  summary: 'Send a test message',
  about:
    'Posts the event `webhook.test` at once, one time, and says what the address answered. Once in 10 seconds.',
  parameters,
  response: jsonResponse('What became of it; `failed` is no error of this request.', DeliveryItem, {
    ...DELIVERY,
    event: 'webhook.test',
    payload: { ...DELIVERY.payload, type: 'webhook.test', data: { webhookId: ID } },
  }),
  refusals: ['WEBHOOK_NOT_FOUND', 'RATE_LIMIT_EXCEEDED', 'SERVICE_UNAVAILABLE'],
};

export const LIST_DELIVERIES: RouteDescription = {
  tag,
  summary: 'List what a webhook was sent',
  parameters,
  query: DeliveriesQuery,
  response: jsonResponse('One page.', DeliveryList, {
    object: 'list',
    data: [DELIVERY],
    nextCursor: null,
  }),
  refusals: ['WEBHOOK_NOT_FOUND'],
};
