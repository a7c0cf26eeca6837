/** Budgets of an account: how much is used of each, making one, changing one, taking one away. */
import { useSignal } from '@preact/signals';
import { useLocation } from 'preact-iso';
import { call, query } from '../api.ts';
import { dayBefore, usdText } from '../format.ts';
import { toast } from '../parts/announce.tsx';
import { CodeTabs } from '../parts/code.tsx';
import { Confirm } from '../parts/confirm.tsx';
import { SearchForm } from '../parts/filters.tsx';
import { ActionForm, AmountField, Select, TextField, useForm } from '../parts/form.tsx';
import { Overlay } from '../parts/overlay.tsx';
import { PageHead } from '../parts/page-head.tsx';
import { Bar, Time } from '../parts/values.tsx';
import { Empty, Loaded } from '../parts/loaded.tsx';
import { type Column, LoadedTable, figure } from '../parts/table.tsx';
import { PERIODS, PERIOD_CHOICES, SO_FAR, periodEnd, periodStart } from '../periods.ts';
import { type Resource, useCall } from '../resource.ts';
import { jsonSamples } from '../samples.ts';
import type { Budget, TagRow, TagSums } from '../shapes.ts';
import { useRenewal } from './overview.tsx';

export interface BudgetsResponse {
  readonly data: readonly Budget[];
}

export function Budgets() {
  const { query: given, path: page, route } = useLocation();
  const { open } = given;
  const path = '/budgets';
  const budgets = useCall<BudgetsResponse>(path);
  const isMaking = useSignal(false);
  useRenewal(budgets.reload);
  const shown = budgets.data?.data.find(({ id }) => id === open);
  return (
    <>
      <PageHead
        title="Budgets"
        lead="What may be spent in a day, a week, a month or in all; a request that does not fit is refused before it costs anything."
      >
        <button type="button" class="primary" onClick={() => (isMaking.value = true)}>
          Set a budget
        </button>
      </PageHead>
      <BudgetList
        from={budgets}
        path={path}
        open={({ id }) => route(page + query({ open: id }))}
        empty={<FirstBudget />}
      />
      {isMaking.value && (
        <NewBudget path={path} close={() => (isMaking.value = false)} made={budgets.reload} />
      )}
      {shown !== undefined && <Values budget={shown} close={() => route(page, true)} />}
    </>
  );
}

function FirstBudget() {
  return (
    <>
      <Empty title="There is no budget yet">
        <p>
          A budget bounds all that the account spends, or what each of your end users does: name
          them in the tags of a request, as <code>"metadata": {'{"user": "anna"}'}</code>, and no
          user needs a key.
        </p>
      </Empty>
      <section>
        <h2>2 USD a day for each user, by a program</h2>
        <CodeTabs
          samples={jsonSamples('/budgets', { tag: 'user', period: 'EPOCH', usd: 2 }, 'ADMIN_KEY')}
        />
      </section>
    </>
  );
}

function isEachValue({ tag, value }: Budget): boolean {
  return tag !== null && value === null;
}

function nameOf({ tag, value }: Budget): string {
  if (tag === null) return 'All spending';
  return value === null ? `Each ${tag}` : `${tag}: ${value}`;
}

interface BudgetListProps {
  readonly from: Resource<BudgetsResponse>;
  /** Where they are, below the base. */
  readonly path: string;
  readonly empty: preact.ComponentChildren;
  /** In a drawer there is no room for all of it. */
  readonly isNarrow?: boolean;
  /** Shows the values of one where each has it for itself. */
  readonly open?: (budget: Budget) => void;
}

/** The budgets of an account, with what is done to them. */
export function BudgetList({ from, path, empty, isNarrow = false, open }: BudgetListProps) {
  const window = useSignal<{ kind: 'change' | 'delete'; budget: Budget } | undefined>(undefined);
  const close = (): void => {
    window.value = undefined;
  };
  const done = (): void => {
    close();
    from.reload();
  };
  const columns: readonly Column<Budget>[] = [
    {
      name: 'Budget',
      show: (budget) => (
        <>
          {open !== undefined && isEachValue(budget) ? (
            <button type="button" class="link strong text" onClick={() => open(budget)}>
              {nameOf(budget)}
            </button>
          ) : (
            <strong class="text">{nameOf(budget)}</strong>
          )}
          <span class="under num">
            {usdText(budget.usd)} {PERIODS[budget.period]}
          </span>
        </>
      ),
    },
    { name: 'Used', show: (budget) => <Used budget={budget} /> },
    ...(isNarrow ? [] : WIDE_COLUMNS),
    {
      name: 'Actions',
      kind: 'figure',
      show: (budget) => (
        <span class="row end">
          <button
            type="button"
            class="small"
            onClick={() => (window.value = { kind: 'change', budget })}
          >
            Change
          </button>
          <button
            type="button"
            class="small danger"
            onClick={() => (window.value = { kind: 'delete', budget })}
          >
            Delete
          </button>
        </span>
      ),
    },
  ];
  const { kind, budget } = window.value ?? {};
  return (
    <>
      <LoadedTable
        label="Budgets"
        from={from}
        lines={3}
        empty={empty}
        columns={columns}
        keyOf={({ id }) => id}
      />
      {budget !== undefined && kind === 'change' && (
        <ChangeBudget budget={budget} path={path} close={close} done={done} />
      )}
      {budget !== undefined && kind === 'delete' && (
        <Confirm
          title="Delete the budget"
          does="Delete"
          says="The budget is deleted"
          close={close}
          run={() => call(`${path}/${encodeURIComponent(budget.id)}`, { method: 'DELETE' })}
          done={done}
        >
          <p>
            <strong class="text">{nameOf(budget)}</strong>, {usdText(budget.usd)}{' '}
            {PERIODS[budget.period]}, bounds nothing any more. What was spent stays in the history.
          </p>
        </Confirm>
      )}
    </>
  );
}

const NONE = <span class="soft">–</span>;

const WIDE_COLUMNS: readonly Column<Budget>[] = [
  figure(
    'Left',
    ({ usd, spentUsd }) => (spentUsd === null ? NONE : usdText(Math.max(0, usd - spentUsd))),
    'wide',
  ),
  {
    name: 'Starts again',
    kind: 'wide',
    show: ({ period }) => {
      const end = periodEnd(period);
      return end === undefined ? <span class="soft">never</span> : <Time iso={end} ago />;
    },
  },
  { name: 'Since', kind: 'wide', show: ({ createdAt }) => <Time iso={createdAt} /> },
];

function Used({ budget }: { budget: Budget }) {
  const { usd, spentUsd, period } = budget;
  if (spentUsd === null) return <span class="soft">each for itself</span>;
  return <Spent usd={usd} spentUsd={spentUsd} period={period} />;
}

interface SpentProps extends Pick<Budget, 'usd' | 'period'> {
  readonly spentUsd: number;
}

function Spent({ usd, spentUsd, period }: SpentProps) {
  return (
    <div class="cap">
      <Bar part={spentUsd} whole={usd} label="Used of the budget" />
      <span class="num under">
        {usdText(spentUsd)} of {usdText(usd)} {SO_FAR[period]}
      </span>
    </div>
  );
}

const KINDS: readonly (readonly [string, string])[] = [
  ['all', 'All that the account spends'],
  ['each', 'Each value of a tag, such as each user'],
  ['one', 'One value of a tag'],
];

interface NewBudgetProps {
  readonly path: string;
  readonly close: () => void;
  readonly made: () => void;
}

export function NewBudget({ path, close, made }: NewBudgetProps) {
  const { action, values, field } = useForm({
    kind: 'all',
    tag: 'user',
    value: '',
    usd: '',
    period: 'EPOCH',
  });
  const { kind } = values;
  const create = (): void => {
    const { tag, value, usd, period } = values;
    const body = {
      ...(kind === 'all' ? {} : { tag }),
      ...(kind === 'one' ? { value } : {}),
      usd: Number(usd),
      period,
    };
    void action.run(async () => {
      await call(path, { method: 'POST', body });
      toast('The budget is set');
      made();
      close();
    });
  };
  return (
    <Overlay title="Set a budget" close={close}>
      <ActionForm action={action} submit={create} does="Set">
        <Select {...field('kind')} label="What counts" options={KINDS} />
        {kind !== 'all' && (
          <div class="fields-row">
            <TextField
              {...field('tag')}
              label="Tag"
              hint="A name in the metadata of requests."
              required
            />
            {kind === 'one' && (
              <TextField {...field('value')} label="Value" hint="As requests send it." required />
            )}
          </div>
        )}
        <div class="fields-row">
          <AmountField {...field('usd')} label="USD" required />
          <Select {...field('period')} label="Starts again" options={PERIOD_CHOICES} />
        </div>
        <p class="hint">
          {kind === 'each' &&
            'Each value has the whole amount for itself. Requests without the tag do not count. '}
          It begins with what was spent in the running period so far, and holds beside the caps of
          keys and other budgets.
        </p>
      </ActionForm>
    </Overlay>
  );
}

interface ChangeBudgetProps {
  readonly budget: Budget;
  readonly path: string;
  readonly close: () => void;
  readonly done: () => void;
}

function ChangeBudget({ budget, path, close, done }: ChangeBudgetProps) {
  const { action, values, field } = useForm({ usd: String(budget.usd) });
  const save = (): void => {
    void action.run(async () => {
      const body = { usd: Number(values.usd) };
      await call(`${path}/${encodeURIComponent(budget.id)}`, { method: 'PATCH', body });
      toast('The budget is changed');
      done();
    });
  };
  return (
    <Overlay title={`Change: ${nameOf(budget)}`} close={close}>
      <ActionForm action={action} submit={save} does="Save">
        <AmountField
          {...field('usd')}
          label={`USD ${PERIODS[budget.period]}`}
          hint="What was spent already stays spent."
          required
        />
      </ActionForm>
    </Overlay>
  );
}

/** Values in one view; the dearest come first. */
const MOST_VALUES = 100;
/** As far back as sums can be asked for. */
const MOST_DAYS = 366;

/** A budget that each value of a tag has for itself: who has used how much of it. */
function Values({ budget, close }: { budget: Budget; close: () => void }) {
  const { id, usd, period } = budget;
  const tag = budget.tag ?? '';
  const from = periodStart(period) ?? dayBefore(MOST_DAYS - 1);
  const sums = useCall<TagSums>(`/usage/tags${query({ tag, from, limit: MOST_VALUES })}`);
  const sought = useSignal('');
  const found = useCall<{ data: Budget }>(
    sought.value === ''
      ? undefined
      : `/budgets/${encodeURIComponent(id)}${query({ value: sought.value })}`,
  );
  useRenewal(sums.reload);
  const columns: readonly Column<TagRow>[] = [
    { name: tag, show: ({ value }) => <strong class="text">{value}</strong> },
    {
      name: 'Used',
      show: ({ cost }) => <Spent usd={usd} spentUsd={cost.usd} period={period} />,
    },
    figure('Left', ({ cost }) => usdText(Math.max(0, usd - cost.usd))),
  ];
  return (
    <Overlay
      kind="drawer"
      title={`${nameOf(budget)}: ${usdText(usd)} ${PERIODS[period]}`}
      close={close}
    >
      <SearchForm
        label={`Look at one ${tag}`}
        placeholder="The value as requests send it"
        words={sought.value}
        find={(words) => (sought.value = words)}
      />
      {sought.value !== '' && (
        <Loaded from={found} rows={1}>
          {({ data }) => (
            <div class="notice">
              <strong class="text">{sought.value}</strong>
              <Spent usd={usd} spentUsd={data.spentUsd ?? 0} period={period} />
            </div>
          )}
        </Loaded>
      )}
      <section>
        <h3>
          {period === 'LIFETIME' ? `In the last ${MOST_DAYS} days` : `Spent ${SO_FAR[period]}`}
        </h3>
        <LoadedTable
          label="Values"
          from={sums}
          lines={4}
          empty={
            <Empty title="Nothing was spent with this tag">
              <p>
                Send it in the <code>metadata</code> of a request.
              </p>
            </Empty>
          }
          columns={columns}
          keyOf={({ value }) => value}
        />
      </section>
    </Overlay>
  );
}
