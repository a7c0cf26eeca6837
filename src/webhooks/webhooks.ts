/**
 * The public file of webhooks: signed messages to an account at thresholds of its balance, of the caps of
 * its keys and budgets, and of its daily spending; and callbacks of requests. One queue delivers both.
 */
import { type Clock, DAY_MS } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import type { Log } from '../core/log.ts';
import type { Queryable, Store } from '../db/db.ts';
import type { Feature } from '../http/route.ts';
import type { Identity } from '../identity/identity.ts';
import type { Guard } from '../net/guard.ts';
import { type CapPlaces, deliveryOf, findCrossings } from './crossings.ts';
import { MAILTO, type Mailer } from './email.ts';
import { type WebhookRouteParts, webhookRoutes } from './routes.ts';
import { deliveryWorker } from './send.ts';
import { type MAILS, type NOTICES, type NewDelivery, callbackSecretOf } from './webhook.ts';
import { WebhookTable } from './webhook-table.ts';

export { Mailer } from './email.ts';
export { WEBHOOKS_MIGRATIONS } from './migrations.ts';

/** Longer than a month, so that a crossing in a month is sent once. */
const KEPT_MS = 40 * DAY_MS;

export interface WebhooksParts {
  readonly stores: { readonly store: Store; readonly identity: Identity };
  readonly guard: Guard;
  readonly requireCredit: WebhookRouteParts['requireCredit'];
  /** Master secret of callbacks; `undefined` disables them. */
  readonly callbackSecret: string | undefined;
  readonly serviceName: string;
  /** `undefined` without a mail server. */
  readonly mailer: Mailer | undefined;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
}

/** A message to the callback URL of a request. */
export type Callback = Pick<NewDelivery, 'accountId' | 'event' | 'subject' | 'body'> & {
  readonly url: string;
};

export interface Callbacks {
  /** The secret that signs the callbacks of an account. */
  readonly secretOf: (accountId: string) => string;
  /** Queues a callback once for each event of a subject; returns whether it was new. */
  readonly add: (tx: Queryable, callback: Callback) => Promise<boolean>;
  /** Sends queued messages soon. */
  readonly nudge: () => void;
}

/** A message to every webhook of an account that is not paused, once for each subject. */
export interface AccountNotice {
  readonly accountId: string;
  readonly event: (typeof NOTICES)[number];
  readonly subject: string;
  readonly data: Readonly<Record<string, unknown>>;
}

/** A message by e-mail to an address that is no recipient of an account. */
export interface Mail {
  readonly address: string;
  readonly accountId: string;
  readonly event: (typeof MAILS)[number];
  /** One message is sent for each subject and period. */
  readonly subject: string;
  readonly period?: number;
  readonly data: Readonly<Record<string, unknown>>;
}

export interface WebhooksFeature extends Feature {
  /** Queues an e-mail; `undefined` without a mail server. */
  readonly mail: ((mail: Mail) => Promise<void>) | undefined;
  readonly callbacks: Callbacks | undefined;
  /** Queues a message; it is sent within a minute. */
  readonly notify: (tx: Queryable, notice: AccountNotice) => Promise<void>;
}

export function webhooksFeature(parts: WebhooksParts): WebhooksFeature {
  const { stores, callbackSecret, clock, ids } = parts;
  const { store, identity } = stores;
  const table = new WebhookTable(store);
  const worker = deliveryWorker({ ...parts, table });
  const nudge = () => worker.nudge();
  let places: CapPlaces = new Map();
  return {
    routes: webhookRoutes({ ...parts, table, signal: worker.signal }),
    start: () => worker.start(),
    mail:
      parts.mailer === undefined
        ? undefined
        : async ({ address, accountId, event, subject, period = 0, data }) => {
            // Callbacks and e-mails have no webhook, so their subjects are of the whole server.
            const own = {
              webhookId: '',
              accountId,
              event,
              subject: `${subject} ${address}`,
              period,
            };
            await table.add({ ...deliveryOf({ clock, ids }, own, data), url: MAILTO + address });
            nudge();
          },
    leaderJob: async () => {
      places = await findCrossings({ table, store, identity, clock, ids }, places);
      await table.prune(KEPT_MS, clock.nowMs());
      nudge();
    },
    close: async () => {
      await worker.stop();
      parts.mailer?.close();
    },
    notify: async (tx, { accountId, event, subject, data }) => {
      for (const { id: webhookId, isPaused } of await table.list(accountId, tx)) {
        if (isPaused) continue;
        const crossing = { webhookId, accountId, event, subject, period: 0 };
        await table.add(deliveryOf({ clock, ids }, crossing, data), tx);
      }
    },
    callbacks:
      callbackSecret === undefined
        ? undefined
        : {
            secretOf: (accountId) => callbackSecretOf(callbackSecret, accountId),
            add: async (tx, callback) => {
              const createdMs = clock.nowMs();
              const id = `msg_${ids.ordered(createdMs)}`;
              return await table.add({ ...callback, id, webhookId: '', period: 0, createdMs }, tx);
            },
            nudge,
          },
  };
}
