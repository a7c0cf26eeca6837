/** Accounts: found by name or id, with their money; opened, credited, debited, stopped. */
import { useSignal } from '@preact/signals';
import { useLocation } from 'preact-iso';
import { useId, useState } from 'preact/hooks';
import { call, query } from '../api.ts';
import { usdText } from '../format.ts';
import { toast } from '../parts/announce.tsx';
import { AmountField, Refusal, TextField, problemOf, useAction } from '../parts/form.tsx';
import { Overlay } from '../parts/overlay.tsx';
import { PageHead } from '../parts/page-head.tsx';
import { Id, State, Time, Usd } from '../parts/show.tsx';
import { Empty, Failure, Loaded } from '../parts/states.tsx';
import { type Column, More, Table } from '../parts/table.tsx';
import { useCursorList } from '../pages-list.ts';
import { AccountDrawer } from './account-drawer.tsx';
import type { Account } from './operator-shapes.ts';

export function Accounts() {
  const { query: given, path, route } = useLocation();
  const { search = '', plan = '', open } = given;
  const list = useCursorList<Account>(`/admin/accounts${query({ search, plan })}`);
  const isMaking = useSignal(false);
  const filters = { search, plan };
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
    { name: 'Plan', kind: 'wide', show: ({ plan: one }) => <span class="soft">{one}</span> },
    {
      name: 'State',
      show: ({ disabled }) => (
        <State value={disabled ? 'disabled' : 'active'} tone={disabled ? 'bad' : 'good'} />
      ),
    },
    { name: 'Balance', kind: 'figure', show: ({ balance }) => <Usd value={balance.usd} /> },
    {
      name: 'Set aside',
      kind: 'figure wide',
      show: ({ balance }) => <Usd value={balance.heldUsd} />,
    },
    {
      name: 'Daily credit',
      kind: 'figure wide',
      show: ({ balance }) =>
        Number(balance.dailyAllocation) === 0 ? (
          <span class="soft">–</span>
        ) : (
          <span class="num">
            {usdText(balance.diem)} of {usdText(balance.dailyAllocation)}
          </span>
        ),
    },
    {
      name: 'Debt',
      kind: 'figure wide',
      show: ({ balance }) =>
        Number(balance.debtUsd) === 0 ? (
          <span class="soft">–</span>
        ) : (
          <Usd value={balance.debtUsd} />
        ),
    },
    { name: 'Since', kind: 'wide', show: ({ createdAt }) => <Time iso={createdAt} /> },
  ];
  const show = (id: string): void => route(path + query({ ...filters, open: id }));
  return (
    <>
      <PageHead title="Accounts" lead="Who has credit here.">
        <button type="button" class="primary" onClick={() => (isMaking.value = true)}>
          Create an account
        </button>
      </PageHead>
      <Search
        key={search}
        search={search}
        find={(words) => route(path + query({ ...filters, search: words }))}
      />
      {list.moreError !== undefined && <Failure error={list.moreError} />}
      <Loaded from={list.first} rows={8}>
        {() =>
          list.rows.length === 0 ? (
            <Empty title={search === '' ? 'There is no account' : 'No account fits'} />
          ) : (
            <>
              <Table
                label="Accounts"
                columns={columns}
                rows={list.rows}
                keyOf={({ id }) => id}
                open={({ id }) => show(id)}
              />
              <More isLoading={list.isLoadingMore} load={list.more} />
            </>
          )
        }
      </Loaded>
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

function Search({ search, find }: { search: string; find: (words: string) => void }) {
  const [words, setWords] = useState(search);
  const id = useId();
  return (
    <form
      class="filters"
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        find(words.trim());
      }}
    >
      <div class="filter grow">
        <label for={id}>Find an account</label>
        <input
          id={id}
          type="search"
          placeholder="Part of the name, or the beginning of the id"
          value={words}
          onInput={(event) => setWords(event.currentTarget.value)}
        />
      </div>
      <button type="submit">Find</button>
    </form>
  );
}

function NewAccount({ close, made }: { close: () => void; made: (id: string) => void }) {
  const action = useAction();
  const [name, setName] = useState('');
  const [daily, setDaily] = useState('');
  const create = (): void => {
    void action.run(async () => {
      const body = { name: name.trim(), ...(daily === '' ? {} : { dailyDiem: Number(daily) }) };
      const { data } = await call<{ data: Account }>('/admin/accounts', { method: 'POST', body });
      toast('The account is made');
      made(data.id);
    });
  };
  return (
    <Overlay title="Create an account" close={close}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          create();
        }}
      >
        <TextField
          label="Name"
          hint="For you to find it by."
          problem={problemOf(action.error, 'name')}
          required
          maxLength={100}
          value={name}
          onInput={setName}
        />
        <AmountField
          label="Daily credit in USD"
          hint="Given each day at 00:00 UTC; empty: none."
          problem={problemOf(action.error, 'dailyDiem')}
          value={daily}
          onInput={setDaily}
        />
        <Refusal error={action.error} />
        <p class="row end">
          <button type="submit" class="primary" disabled={action.isRunning}>
            Create
          </button>
        </p>
      </form>
    </Overlay>
  );
}
