/** Composes payments by people: the providers, the ledger's postings and the routes. */
import { cardPostings } from '../checkout/card-postings.ts';
import { checkoutFeature } from '../checkout/checkout.ts';
import type { Config } from '../config/config.ts';
import type { Clock } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import type { Log } from '../core/log.ts';
import type { Feature } from '../http/route.ts';
import { type CardPayments, type CardStep, openCards } from '../payments/cards/cards.ts';
import type { FeatureParts } from './feature-parts.ts';
import type { Stores } from './stores.ts';

export interface CardParts {
  readonly config: Config;
  readonly stores: Stores;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly onStep?: ((step: CardStep) => Promise<void>) | undefined;
}

/** Opens card payments for the server and for commands; `undefined` without a provider. */
export async function openCardPayments(parts: CardParts): Promise<CardPayments | undefined> {
  const { store, ledger } = parts.stores;
  return await openCards({ ...parts, store, ...cardPostings(ledger) });
}

export function cardsFeature(shared: FeatureParts, cards: CardPayments | undefined): Feature {
  return checkoutFeature({ ...shared, store: shared.stores.store, cards });
}
