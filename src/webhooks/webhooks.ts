/**
 * Webhooks of an account at thresholds of its balance, its keys' caps and its spending of a day,
 * wired: the routes, and the job of the leader that finds crossings and sends what is due.
 */
import type { Clock } from '../core/clock.ts';
import { DAY_MS } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import { type Log, reasonOf } from '../core/log.ts';
import type { Store } from '../db/db.ts';
import type { Feature } from '../http/route.ts';
import type { Identity } from '../identity/identity.ts';
import type { Guard } from '../net/guard.ts';
import { type CapPlaces, findCrossings } from './crossings.ts';
import { webhookRoutes } from './routes.ts';
import { sendDue } from './send.ts';
import { WebhookTable } from './webhook-table.ts';

export { WEBHOOKS_MIGRATIONS } from './migrations.ts';

/** Longer than a month, so that a crossing of a month is remembered to its end. */
const KEPT_MS = 40 * DAY_MS;

export interface WebhooksParts {
  readonly stores: { readonly store: Store; readonly identity: Identity };
  readonly guard: Guard;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
}

export function webhooksFeature({ stores, guard, clock, ids, log }: WebhooksParts): Feature {
  const { store, identity } = stores;
  const table = new WebhookTable(store);
  const aborter = new AbortController();
  const { signal } = aborter;
  let places: CapPlaces = new Map();
  let sending: Promise<void> | undefined;
  const send = (): void => {
    // Not waited for: slow addresses of callers hold up no other job.
    sending ??= sendDue(
      { table, guard, clock, log },
      ({ accountId, webhookId }) => table.find(accountId, webhookId),
      signal,
    )
      .catch((error: unknown) => {
        // The database is away: the next minute tries again.
        log.warn({ reason: reasonOf(error) }, 'Webhooks are not sent');
      })
      .finally(() => {
        sending = undefined;
      });
  };
  return {
    routes: webhookRoutes({ table, guard, clock, ids, log, signal }),
    leaderJob: async () => {
      places = await findCrossings({ table, store, identity, clock, ids }, places);
      await table.prune(clock.nowMs() - KEPT_MS);
      send();
    },
    close: async () => {
      aborter.abort(new Error('The server ends'));
      await sending;
    },
  };
}
