/** `GET /admin/prices`: list prices, the prices of a customer, costs of suppliers and margins. */
import { type PriceLine, marginsOf, pricesFor } from '../../catalog/catalog.ts';
import { type CallerPrices, type Config, creditPrice } from '../../config/config.ts';
import { Fault } from '../../core/faults.ts';
import { decimalUsd, usdToNano } from '../../core/money.ts';
import { readQuery } from '../../http/read-request.ts';
import type { RequestContext } from '../../http/request-context.ts';
import { accountIdOf } from '../../identity/identity.ts';
import type { FeatureParts } from '../feature-parts.ts';
import { PricesQuery, type PricesResponse } from './prices-schema.ts';

export async function sendPrices(shared: FeatureParts, context: RequestContext): Promise<void> {
  const { catalog, config, stores } = shared;
  const { account: wanted, plan } = readQuery(context, PricesQuery);
  const models = catalog.models();
  const { byName } = config.current.resolvedPlans;
  const listOf = (data: PriceItem[]): PricesResponse => {
    return { object: 'list', plans: [...byName.keys()], data };
  };
  if (wanted === undefined && plan === undefined) {
    const data = models.map((model) => priceItem(model.id, model.type, null, marginsOf(model)));
    await context.json(200, listOf(data.filter(({ margins }) => margins.length > 0)));
    return;
  }
  const account =
    wanted === undefined ? undefined : await stores.identity.findAccount(accountIdOf(wanted));
  if (wanted !== undefined && account === undefined) throw new Fault('ACCOUNT_NOT_FOUND');
  const prices = {
    account: account?.prices,
    plan: byName.get(plan ?? account?.plan ?? '')?.prices,
  };
  const items = models.map((model) => {
    const { source = null, lines } = pricesFor(model, prices);
    return priceItem(model.id, model.type, source, lines);
  });
  const credit = config.current.rpc.enabled ? [rpcPrice(config.current, prices)] : [];
  await context.json(
    200,
    listOf([...items.filter(({ margins }) => margins.length > 0), ...credit]),
  );
}

type PriceItem = PricesResponse['data'][number];

function priceItem(
  model: string,
  type: PriceItem['type'],
  source: PriceItem['source'],
  lines: readonly PriceLine[],
): PriceItem {
  const margins = lines.map(({ tier = null, from = null, ...line }) => ({ ...line, tier, from }));
  return { model, type, source, margins };
}

function rpcPrice({ rpc }: Config, prices: CallerPrices): PriceItem {
  const listNano = usdToNano(rpc.usdPerCredit);
  const soldNano = creditPrice(prices, listNano);
  const line = { engine: null, kind: 'perCredit', tier: undefined, above: 0, from: undefined };
  const amounts = { list: decimalUsd(listNano), sold: decimalUsd(soldNano), cost: null };
  const isOwn = (rules: CallerPrices['account']) =>
    (rules?.rpc ?? rules?.discountPercent) !== undefined;
  const source = isOwn(prices.account) ? 'account' : isOwn(prices.plan) ? 'plan' : null;
  return priceItem('rpc', 'rpc', source, [{ ...line, ...amounts, percent: null }]);
}
