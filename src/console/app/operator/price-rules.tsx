/** Edits the own prices of an account: a discount or prices for all models, a kind, a model or RPC credits. */
import { useState } from 'preact/hooks';
import { call } from '../api.ts';
import { usdText } from '../format.ts';
import { toast } from '../parts/announce.tsx';
import {
  ActionForm,
  AmountField,
  type Choices,
  Segments,
  Select,
  TextField,
  useForm,
} from '../parts/form.tsx';
import { Table } from '../parts/table.tsx';
import type { Account, PricesResponse } from '../shapes.ts';

export interface ChangeProps {
  readonly account: Account;
  readonly path: string;
  readonly changed: () => void;
}

/** A discount, or amounts by the name of the price. */
type Rule = Readonly<Record<string, unknown>>;

/** The part of the setting `plans.*.prices` that this form shows. */
interface Prices {
  readonly discountPercent?: string;
  readonly kinds?: Readonly<Record<string, Rule>>;
  readonly models?: Readonly<Record<string, Rule>>;
  readonly rpc?: Rule;
}
type Priced = PricesResponse['data'][number];

const ALL = '';
const RPC = 'rpc';

/** Rules by their scope: empty for all models, `kinds text`, `models m` or `rpc`. */
function rulesOf(prices: Prices): ReadonlyMap<string, Rule> {
  const { discountPercent, kinds = {}, models = {}, rpc } = prices;
  return new Map<string, Rule>([
    ...(discountPercent === undefined ? [] : [[ALL, { discountPercent }] as const]),
    ...Object.entries(kinds).map(([kind, rule]) => [`kinds ${kind}`, rule] as const),
    ...Object.entries(models).map(([id, rule]) => [`models ${id}`, rule] as const),
    ...(rpc === undefined ? [] : [[RPC, rpc] as const]),
  ]);
}

/** The request body of rules; `null` without a rule. */
function pricesOf(rules: ReadonlyMap<string, Rule>): object | null {
  if (rules.size === 0) return null;
  const below = (part: string): object => {
    const own = [...rules].filter(([scope]) => scope.startsWith(`${part} `));
    if (own.length === 0) return {};
    return {
      [part]: Object.fromEntries(own.map(([scope, rule]) => [scope.slice(part.length + 1), rule])),
    };
  };
  const rpc = rules.get(RPC);
  return { ...rules.get(ALL), ...below('kinds'), ...below('models'), ...(rpc && { rpc }) };
}

function nameOf(scope: string): string {
  if (scope === ALL) return 'All models and RPC credits';
  if (scope === RPC) return 'RPC credits';
  return scope.replace(/^kinds /, 'Kind ').replace(/^models /, '');
}

function textOf(rule: Rule): string {
  const { discountPercent, price, ...others } = rule;
  if (typeof discountPercent === 'string') return `${discountPercent} % discount`;
  const amounts = Object.entries((price ?? others) as Rule); // one of them has the prices
  return amounts
    .map(([name, value]) =>
      typeof value === 'string' ? `${name} ${usdText(value)}` : `${name} ${JSON.stringify(value)}`,
    )
    .join(', ');
}

interface PriceRulesProps extends ChangeProps {
  /** All sold models with their list prices. */
  readonly sold: readonly Priced[];
}

export function PriceRules({ account, path, changed, sold }: PriceRulesProps) {
  const rules = rulesOf(account.prices ?? {});
  const { action, values, field, set } = useForm({ scope: ALL, percent: '' });
  const [way, setWay] = useState<'discount' | 'prices'>('discount');
  const [amounts, setAmounts] = useState<Readonly<Record<string, string>>>({});
  const { scope } = values;
  const list = listPrices(scope, sold);
  const canPrice = list.size > 0;
  /** `change` gets the current rules: another operator may have changed them meanwhile. */
  const save = (change: (now: ReadonlyMap<string, Rule>) => ReadonlyMap<string, Rule>): void => {
    void action.run(async () => {
      const { data } = await call<{ data: Account }>(path);
      const prices = pricesOf(change(rulesOf(data.prices ?? {})));
      await call(path, { method: 'PATCH', body: { prices } });
      toast('The prices were changed');
      set({ percent: '' });
      setAmounts({});
      changed();
    });
  };
  const add = (): void => {
    const given = Object.fromEntries(
      [...list].map(([name, usd]) => [name, amounts[name] ?? usd]).filter(([, usd]) => usd !== ''),
    );
    const own = scope === RPC ? { usdPerCredit: given['perCredit'] } : { price: given };
    const rule = way === 'prices' && canPrice ? own : { discountPercent: values.percent.trim() };
    save((now) => new Map([...now, [scope, rule]]));
  };
  const remove = (removed: string): void =>
    save((now) => new Map([...now].filter(([one]) => one !== removed)));
  return (
    <details class="action">
      <summary>Prices</summary>
      {rules.size > 0 && (
        <Table
          label="Rules for own prices"
          rows={[...rules]}
          keyOf={([one]) => one}
          columns={[
            { name: 'Applies to', show: ([one]) => <span class="text">{nameOf(one)}</span> },
            { name: 'Rule', show: ([, rule]) => <span class="text">{textOf(rule)}</span> },
            {
              name: 'Action',
              kind: 'figure',
              show: ([one]) => (
                <button
                  type="button"
                  class="small danger"
                  disabled={action.isRunning}
                  onClick={() => remove(one)}
                >
                  Remove
                </button>
              ),
            },
          ]}
        />
      )}
      <ActionForm action={action} submit={add} label="Save">
        <Select {...field('scope')} label="Applies to" options={scopesOf(sold)} />
        {canPrice && (
          <Segments
            legend="Kind of the rule"
            value={way}
            options={[
              ['discount', 'Discount'],
              ['prices', 'Own prices'],
            ]}
            onInput={setWay}
          />
        )}
        {way === 'prices' && canPrice ? (
          <div class="fields-row">
            {[...list].map(([name, usd]) => (
              <AmountField
                key={name}
                label={`${name} in USD`}
                hint={usd === '' ? undefined : `List price ${usdText(usd)}`}
                value={amounts[name] ?? usd}
                onInput={(text) => setAmounts({ ...amounts, [name]: text })}
              />
            ))}
          </div>
        ) : (
          <TextField
            {...field('percent', 'prices')}
            label="Discount in percent"
            hint="On the list prices, from 0 to 100. A rule for a model applies before that of its kind, and that before the rule for all models."
            maxLength={8}
            required
          />
        )}
      </ActionForm>
    </details>
  );
}

function scopesOf(sold: readonly Priced[]): Choices {
  const models = sold.filter(({ type }) => type !== RPC);
  const kinds = [...new Set(models.map(({ type }) => type))];
  return [
    [ALL, nameOf(ALL)],
    ...kinds.map((kind) => [`kinds ${kind}`, nameOf(`kinds ${kind}`)] as const),
    ...models.map(({ model }) => [`models ${model}`, `Model ${model}`] as const),
    ...(sold.length > models.length ? [[RPC, nameOf(RPC)] as const] : []),
  ];
}

/** The standard prices of a scope by name; empty text without a common list price. Videos have only discounts. */
function listPrices(scope: string, sold: readonly Priced[]): ReadonlyMap<string, string> {
  const prices = new Map<string, string>();
  for (const { model, type, margins } of sold) {
    const isKind = scope === `kinds ${type}`;
    const isOne = scope === `models ${model}` || (scope === RPC && type === RPC);
    if (type === 'video' || !(isKind || isOne)) continue;
    for (const { kind, tier, above, from, list } of margins) {
      if (tier === null && above === 0 && from === null)
        prices.set(kind, isOne ? (list ?? '') : '');
    }
  }
  return prices;
}
