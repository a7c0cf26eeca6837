/** The budgets page: spending per budget; creating, changing and deleting a budget. */
import { useSignal } from '@preact/signals';
import { useAddress } from '../address.ts';
import { call, query } from '../api.ts';
import { jsonSamples } from '../code-samples.ts';
import { dayBefore, usdDecimals, usdText } from '../format.ts';
import { toast } from '../parts/announce.tsx';
import { CodeTabs } from '../parts/code.tsx';
import { Confirm } from '../parts/confirm.tsx';
import { SearchForm } from '../parts/filters.tsx';
import {
  ActionForm,
  AmountField,
  type Choices,
  Select,
  TextField,
  useForm,
} from '../parts/form.tsx';
import { DialogButton, Overlay } from '../parts/overlay.tsx';
import { useRenewal } from '../live.ts';
import { PageHead } from '../parts/page-head.tsx';
import { LabelledBar, OpenButton, Time, Usd } from '../parts/values.tsx';
import { Empty, Loaded } from '../parts/loaded.tsx';
import { type Column, LoadedTable, money } from '../parts/table.tsx';
import { PERIODS, PERIOD_CHOICES, SO_FAR, periodEnd, periodStart } from '../periods.ts';
import { type Resource, useCall } from '../resource.ts';
import { can } from '../session.ts';
import type { Budget, List, TagRow, TagSums } from '../shapes.ts';

export function Budgets() {
  const { open, show, close } = useAddress();
  const path = '/budgets';
  const budgets = useCall<List<Budget>>(path);
  useRenewal(budgets.reload);
  const shown = budgets.data?.data.find(({ id }) => id === open);
  return (
    <>
      <PageHead
        title="Budgets"
        lead="Limits per day, week, month or in total. Requests that exceed a budget are rejected before they run."
      >
        {canChangeBudgets(path) && (
          <DialogButton label="Create a budget" class="primary">
            {(closeDialog) => (
              <NewBudget path={path} close={closeDialog} created={budgets.reload} />
            )}
          </DialogButton>
        )}
      </PageHead>
      <BudgetList from={budgets} path={path} open={({ id }) => show(id)} empty={<FirstBudget />} />
      {shown !== undefined && <Values budget={shown} close={close} />}
    </>
  );
}

/** Whether the session may change the budgets at a path. */
export function canChangeBudgets(path: string): boolean {
  return can(path.startsWith('/admin/') ? 'own' : 'billing');
}

function FirstBudget() {
  return (
    <>
      <Empty title="No budgets yet">
        <p>
          A budget limits the spending of the account, or of each of your end users. Name the user
          in the metadata of a request, as in <code>"metadata": {'{"user": "anna"}'}</code>. Users
          need no keys of their own.
        </p>
      </Empty>
      <section>
        <h2>Example: 2 USD a day for each user</h2>
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
  readonly from: Resource<List<Budget>>;
  /** Path of the list, below the base. */
  readonly path: string;
  readonly empty: preact.ComponentChildren;
  /** Shows the values of a budget that applies to each value of a tag. */
  readonly open?: (budget: Budget) => void;
}

/** A table of budgets with their actions. */
export function BudgetList({ from, path, empty, open }: BudgetListProps) {
  const columns: readonly Column<Budget>[] = [
    {
      name: 'Budget',
      show: (budget) => (
        <>
          {open !== undefined && isEachValue(budget) ? (
            <OpenButton isStrong open={() => open(budget)}>
              {nameOf(budget)}
            </OpenButton>
          ) : (
            <strong class="text">{nameOf(budget)}</strong>
          )}
          <span class="under num">
            {usdText(budget.usd)} {PERIODS[budget.period]}
          </span>
        </>
      ),
    },
    {
      name: 'Spent',
      decimals: (rows) => usdDecimals(rows.flatMap(({ usd, spentUsd }) => [usd, spentUsd])),
      show: ({ usd, spentUsd, period }, decimals) =>
        spentUsd === null ? (
          <span class="soft">per value</span>
        ) : (
          <Spent usd={usd} spentUsd={spentUsd} period={period} decimals={decimals} />
        ),
    },
    money('Left', ({ usd, spentUsd }) => (spentUsd === null ? null : Math.max(0, usd - spentUsd)), {
      isWide: true,
    }),
    {
      name: 'Resets',
      kind: 'wide',
      show: ({ period }) => {
        const end = periodEnd(period);
        return end === undefined ? <span class="soft">never</span> : <Time iso={end} ago />;
      },
    },
    { name: 'Created', kind: 'wide', show: ({ createdAt }) => <Time iso={createdAt} /> },
    ...(canChangeBudgets(path)
      ? [
          {
            name: 'Actions',
            kind: 'figure' as const,
            show: (budget: Budget) => <Actions budget={budget} path={path} changed={from.reload} />,
          } satisfies Column<Budget>,
        ]
      : []),
  ];
  return (
    <LoadedTable
      label="Budgets"
      from={from}
      empty={empty}
      columns={columns}
      keyOf={({ id }) => id}
    />
  );
}

interface ActionsProps {
  readonly budget: Budget;
  readonly path: string;
  readonly changed: () => void;
}

function Actions({ budget, path, changed }: ActionsProps) {
  const own = `${path}/${encodeURIComponent(budget.id)}`;
  return (
    <span class="row end">
      <DialogButton label="Change" class="small">
        {(close) => <ChangeBudget budget={budget} path={own} close={close} changed={changed} />}
      </DialogButton>
      <DialogButton label="Delete" class="small danger">
        {(close) => (
          <Confirm
            title="Delete the budget"
            label="Delete"
            notice="The budget was deleted"
            close={close}
            run={() => call(own, { method: 'DELETE' })}
            done={() => {
              close();
              changed();
            }}
          >
            <p>
              Deletes <strong class="text">{nameOf(budget)}</strong>, {usdText(budget.usd)}{' '}
              {PERIODS[budget.period]}. Its spending is no longer limited. The past usage remains
              visible.
            </p>
          </Confirm>
        )}
      </DialogButton>
    </span>
  );
}

interface SpentProps extends Pick<Budget, 'usd' | 'period'> {
  readonly spentUsd: number;
  readonly decimals?: number;
}

function Spent({ usd, spentUsd, period, decimals = usdDecimals([usd, spentUsd]) }: SpentProps) {
  return (
    <LabelledBar part={spentUsd} whole={usd} label="Used of the budget">
      <Usd value={spentUsd} decimals={decimals} /> of <Usd value={usd} decimals={decimals} />{' '}
      {SO_FAR[period]}
    </LabelledBar>
  );
}

const KINDS: Choices = [
  ['all', 'All requests of the account'],
  ['each', 'Each value of a tag, such as each user'],
  ['one', 'One value of a tag'],
];

interface NewBudgetProps {
  readonly path: string;
  readonly close: () => void;
  readonly created: () => void;
}

export function NewBudget({ path, close, created }: NewBudgetProps) {
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
      toast('The budget was created');
      created();
      close();
    });
  };
  return (
    <Overlay title="Create a budget" close={close}>
      <ActionForm action={action} submit={create} label="Create">
        <Select {...field('kind')} label="Applies to" options={KINDS} />
        {kind !== 'all' && (
          <div class="fields-row">
            <TextField
              {...field('tag')}
              label="Tag"
              hint="Name of a member in the metadata of requests."
              required
            />
            {kind === 'one' && (
              <TextField
                {...field('value')}
                label="Value"
                hint="Exactly as requests send it."
                required
              />
            )}
          </div>
        )}
        <div class="fields-row">
          <AmountField {...field('usd')} label="USD" required />
          <Select {...field('period')} label="Resets" options={PERIOD_CHOICES} />
        </div>
        <p class="hint">
          {kind === 'each' &&
            'Each value has the whole amount. Requests without the tag do not count. '}
          The budget includes the spending of the current period before its creation. Spend limits
          of keys and other budgets apply as well.
        </p>
      </ActionForm>
    </Overlay>
  );
}

function ChangeBudget({
  budget,
  path,
  close,
  changed,
}: ActionsProps & { readonly close: () => void }) {
  const { action, values, field } = useForm({ usd: String(budget.usd) });
  const save = (): void => {
    void action.run(async () => {
      const body = { usd: Number(values.usd) };
      await call(path, { method: 'PATCH', body });
      toast('The budget was changed');
      close();
      changed();
    });
  };
  return (
    <Overlay title={`Change: ${nameOf(budget)}`} close={close}>
      <ActionForm action={action} submit={save} label="Save">
        <AmountField
          {...field('usd')}
          label={`USD ${PERIODS[budget.period]}`}
          hint="Spending of the current period still counts."
          required
        />
      </ActionForm>
    </Overlay>
  );
}

/** Number of values shown, most expensive first. */
const MAX_VALUES = 100;
/** Longest range of `GET /usage/tags`, in days. */
const MAX_DAYS = 366;

/** The spending of each value of a budget that applies to each value of a tag. */
function Values({ budget, close }: { budget: Budget; close: () => void }) {
  const { id, usd, period } = budget;
  const tag = budget.tag ?? '';
  const from = periodStart(period) ?? dayBefore(MAX_DAYS - 1);
  const sums = useCall<TagSums>(`/usage/tags${query({ tag, from, limit: MAX_VALUES })}`);
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
      name: 'Spent',
      decimals: (rows) => usdDecimals([usd, ...rows.map(({ cost }) => cost.usd)]),
      show: ({ cost }, decimals) => (
        <Spent usd={usd} spentUsd={cost.usd} period={period} decimals={decimals} />
      ),
    },
    money('Left', ({ cost }) => Math.max(0, usd - cost.usd)),
  ];
  return (
    <Overlay
      kind="drawer"
      title={`${nameOf(budget)}: ${usdText(usd)} ${PERIODS[period]}`}
      close={close}
    >
      <SearchForm
        label={`Find one ${tag}`}
        placeholder="Exact value"
        words={sought.value}
        find={(words) => (sought.value = words)}
      />
      {sought.value !== '' && (
        <Loaded from={found}>
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
          {period === 'LIFETIME' ? `Spent in the last ${MAX_DAYS} days` : `Spent ${SO_FAR[period]}`}
        </h3>
        <LoadedTable
          label="Values"
          from={sums}
          empty={
            <Empty title="No spending with this tag">
              <p>
                Send the tag in the <code>metadata</code> of a request.
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
