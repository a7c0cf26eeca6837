/** Accounts: found by name or id, with their money; opened, credited, debited, stopped. */
import { useSignal } from '@preact/signals';
import { useLocation } from 'preact-iso';
import { call, query } from '../api.ts';
import { usdText } from '../format.ts';
import { toast } from '../parts/announce.tsx';
import { SearchForm } from '../parts/filters.tsx';
import { ActionForm, AmountField, TextField, useForm } from '../parts/form.tsx';
import { Overlay } from '../parts/overlay.tsx';
import { PageHead } from '../parts/page-head.tsx';
import { Id, State, Time } from '../parts/values.tsx';
import { Empty } from '../parts/loaded.tsx';
import { type Column, CursorTable, aside, figure } from '../parts/table.tsx';
import { useCursorList } from '../cursor-list.ts';
import { AccountDrawer, AccountState } from './account-drawer.tsx';
import type { Account } from './operator-shapes.ts';

export function Accounts() {
  const { query: given, path, route } = useLocation();
  const { search = '', plan = '', open } = given;
  const list = useCursorList<Account>(`/admin/accounts${query({ search, plan })}`);
  const isMaking = useSignal(false);
  const filters = { search, plan };
  const show = (id: string): void => route(path + query({ ...filters, open: id }));
  const columns: readonly Column<Account>[] = [
    {
      name: 'Account',
      show: ({ id, name, isOperator }) => (
        <>
          <button type="button" class="link strong text" onClick={() => show(id)}>
            {name === '' ? id : name}
          </button>
          <span class="under">
            <Id value={id} ends={8} /> {isOperator && <State value="operator" tone="warn" />}
          </span>
        </>
      ),
    },
    aside('Plan', ({ plan: one }) => one),
    { name: 'State', show: (account) => <AccountState account={account} /> },
    figure('Balance', ({ balance }) => usdText(balance.usd)),
    figure('Set aside', ({ balance }) => usdText(balance.heldUsd), 'wide'),
    figure(
      'Daily credit',
      ({ balance: { diem, dailyAllocation } }) =>
        Number(dailyAllocation) === 0 ? NONE : `${usdText(diem)} of ${usdText(dailyAllocation)}`,
      'wide',
    ),
    figure(
      'Debt',
      ({ balance: { debtUsd } }) => (Number(debtUsd) === 0 ? NONE : usdText(debtUsd)),
      'wide',
    ),
    { name: 'Since', kind: 'wide', show: ({ createdAt }) => <Time iso={createdAt} /> },
  ];
  return (
    <>
      <PageHead title="Accounts" lead="Who has credit here.">
        <button type="button" class="primary" onClick={() => (isMaking.value = true)}>
          Create an account
        </button>
      </PageHead>
      <SearchForm
        key={search}
        label="Find an account"
        placeholder="Part of the name, or the beginning of the id"
        words={search}
        find={(words) => route(path + query({ ...filters, search: words }))}
      />
      <CursorTable
        label="Accounts"
        list={list}
        empty={<Empty title={search === '' ? 'There is no account' : 'No account fits'} />}
        columns={columns}
        keyOf={({ id }) => id}
        open={({ id }) => show(id)}
      />
      {open !== undefined && (
        <AccountDrawer
          id={open}
          close={() => route(path + query(filters), true)}
          changed={list.first.reload}
        />
      )}
      {isMaking.value && (
        <NewAccount
          close={() => (isMaking.value = false)}
          made={(id) => {
            isMaking.value = false;
            list.first.reload();
            show(id);
          }}
        />
      )}
    </>
  );
}

const NONE = <span class="soft">–</span>;

function NewAccount({ close, made }: { close: () => void; made: (id: string) => void }) {
  const { action, values, field } = useForm({ name: '', daily: '' });
  const create = (): void => {
    const { name, daily } = values;
    void action.run(async () => {
      const body = { name: name.trim(), ...(daily === '' ? {} : { dailyDiem: Number(daily) }) };
      const { data } = await call<{ data: Account }>('/admin/accounts', { method: 'POST', body });
      toast('The account is made');
      made(data.id);
    });
  };
  return (
    <Overlay title="Create an account" close={close}>
      <ActionForm action={action} submit={create} does="Create">
        <TextField
          {...field('name')}
          label="Name"
          hint="For you to find it by."
          required
          maxLength={100}
        />
        <AmountField
          {...field('daily', 'dailyDiem')}
          label="Daily credit in USD"
          hint="Given each day at 00:00 UTC; empty: none."
        />
      </ActionForm>
    </Overlay>
  );
}
