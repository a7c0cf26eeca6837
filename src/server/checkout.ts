/** Composes payments by people: the providers, the ledger's postings and the routes. */
import { accountFigures } from '../billing/ledger/ledger.ts';
import { cardPostings } from '../checkout/card-postings.ts';
import { checkoutFeature } from '../checkout/checkout.ts';
import type { Config } from '../config/config.ts';
import { type Clock, isoTimeOrNull } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import type { Log } from '../core/log.ts';
import { nano, toUsdNumber } from '../core/money.ts';
import type { Feature } from '../http/route.ts';
import { type CardPayments, type CardStep, openCards } from '../payments/cards/cards.ts';
import type { FeatureParts } from './feature-parts.ts';
import type { WebhooksFeature } from '../webhooks/webhooks.ts';
import type { Stores } from './stores.ts';

export interface CardParts {
  readonly config: Config;
  readonly stores: Stores;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  /** Default: no message, for a command that makes no charge. */
  readonly notify?: WebhooksFeature['notify'];
  readonly onStep?: ((step: CardStep) => Promise<void>) | undefined;
}

/** Opens card payments for the server and for commands; `undefined` without a provider. */
export async function openCardPayments(parts: CardParts): Promise<CardPayments | undefined> {
  const { stores, clock, notify } = parts;
  const { store, ledger } = stores;
  return await openCards({
    ...parts,
    ...cardPostings(ledger, clock),
    store,
    hasAccount: async (id) => (await stores.identity.findAccount(id)) !== undefined,
    balancesOf: async (accountIds, tx) => {
      if (accountIds.length === 0) return new Map();
      const figures = await accountFigures(tx, accountIds, clock.nowMs());
      return new Map([...figures].map(([id, { balanceNano }]) => [id, balanceNano]));
    },
    isDisabled: async (id, tx) => (await stores.identity.findAccount(id, tx))?.disabled === true,
    notifyDeclined: async (tx, declined) => {
      const { accountId, paymentId: subject, amountNano, reason, nextTryMs } = declined;
      const nextTryAt = isoTimeOrNull(nextTryMs);
      const data = { paymentId: subject, amountUsd: toUsdNumber(amountNano), reason, nextTryAt };
      await notify?.(tx, { accountId, event: 'auto_top_up.failed', subject, data });
    },
  });
}

export async function cardsFeature(
  shared: FeatureParts,
  notify: WebhooksFeature['notify'],
): Promise<Feature> {
  const cards = await openCardPayments({ ...shared, config: shared.config.current, notify });
  const { store, ledger, identity } = shared.stores;
  return checkoutFeature({
    ...shared,
    store,
    cards,
    hasAccount: async (id) => (await identity.findAccount(id)) !== undefined,
    availableNano: async (id) => {
      const { usdNano, heldUsdNano } = await ledger.funds(id);
      return nano(usdNano - heldUsdNano);
    },
  });
}
