/** Finds prices of plans and accounts that are below the configured cost of a supplier. */
import { type CatalogModel, isLoss, marginsOf, soldModel } from '../catalog/catalog.ts';
import type { CallerPrices, Config } from '../config/config.ts';
import { nextTurn } from '../core/event-loop.ts';
import type { Account } from '../identity/identity.ts';
import type { FeatureParts } from './feature-parts.ts';

export interface CustomerLoss {
  /** `plan:<name>`, or the id of an account. */
  readonly customer: string;
  readonly model: string;
  readonly count: number;
}

/** Accounts with own prices that are read. */
const MAX_ACCOUNTS = 1_000;
/** Bounds the series of the metric. */
const MAX_LOSSES = 200;

type LossParts = Pick<FeatureParts, 'catalog' | 'config' | 'stores'>;

/** The search. It compares the prices only if models, plans or accounts have changed since the last one. */
export function lossSearch({ catalog, config, stores }: LossParts) {
  let compared: readonly unknown[] = [];
  let losses: readonly CustomerLoss[] = [];
  return async (): Promise<readonly CustomerLoss[]> => {
    const models = catalog.models().filter(({ replicas }) => replicas.some(({ cost }) => cost));
    if (models.length === 0) return [];
    const { byName } = config.current.resolvedPlans;
    const accounts = await stores.identity.pricedAccounts(MAX_ACCOUNTS);
    const facts = [byName, JSON.stringify(accounts), ...models];
    const isSame =
      facts.length === compared.length && facts.every((one, at) => one === compared[at]);
    if (isSame) return losses;
    losses = await lossesOf(models, byName, accounts);
    compared = facts;
    return losses;
  };
}

async function lossesOf(
  models: readonly CatalogModel[],
  byName: Config['resolvedPlans']['byName'],
  accounts: readonly Account[],
): Promise<CustomerLoss[]> {
  const customers: (readonly [name: string, prices: CallerPrices])[] = [
    ...[...byName].map(([name, plan]) => {
      return [`plan:${name}`, { account: undefined, plan: plan.prices }] as const;
    }),
    ...accounts.map(({ id, plan, prices }) => {
      return [id, { account: prices, plan: byName.get(plan)?.prices }] as const;
    }),
  ];
  const losses: CustomerLoss[] = [];
  for (const [customer, prices] of customers) {
    for (const model of models) {
      const sold = soldModel(model, prices);
      // `farebox_model_losses` counts those of the list prices.
      const count = sold === model ? 0 : marginsOf(sold).filter(isLoss).length;
      if (count > 0) losses.push({ customer, model: model.id, count });
    }
    if (losses.length >= MAX_LOSSES) return losses.slice(0, MAX_LOSSES);
    await nextTurn();
  }
  return losses;
}
