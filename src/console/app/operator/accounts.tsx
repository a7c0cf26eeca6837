/** The accounts page: search, balances, and creating an account. */
import { useAddress } from '../address.ts';
import { callOnce } from '../api.ts';
import { usdText } from '../format.ts';
import { toast } from '../parts/announce.tsx';
import { SearchForm } from '../parts/filters.tsx';
import { ActionForm, AmountField, Segments, TextField, useForm } from '../parts/form.tsx';
import { DialogButton, Overlay } from '../parts/overlay.tsx';
import { AccountName } from '../parts/names.tsx';
import { PageHead } from '../parts/page-head.tsx';
import { Id, OpenButton, State, Time } from '../parts/values.tsx';
import { Empty, NothingMatches } from '../parts/loaded.tsx';
import { type Column, CursorTable, aside, money } from '../parts/table.tsx';
import { useCursorList } from '../cursor-list.ts';
import { can } from '../session.ts';
import type { Account } from '../shapes.ts';
import { AccountDrawer, AccountState } from './account-drawer.tsx';

export function Accounts() {
  const address = useAddress('search', 'plan', 'kind');
  const { filters, search, open, show, close } = address;
  const list = useCursorList<Account>(`/admin/accounts${search}`);
  const columns: readonly Column<Account>[] = [
    {
      name: 'Account',
      show: ({ id, name, isOperator }) => (
        <>
          <OpenButton isStrong open={() => show(id)}>
            <AccountName id={id} name={name} />
          </OpenButton>
          <span class="under">
            {walletOf(id)} <Id value={id} ends={8} />{' '}
            {isOperator && <State value="operator" tone="warn" />}
          </span>
        </>
      ),
    },
    aside('Plan', ({ plan }) => plan),
    { name: 'State', show: (account) => <AccountState account={account} /> },
    money('Balance', ({ balance }) => balance.usd),
    money('On hold', ({ balance }) => balance.heldUsd, { isWide: true }),
    money(
      'Daily credit',
      ({ balance }) => (isZero(balance.dailyAllocation) ? null : balance.diem),
      {
        isWide: true,
        below: ({ balance }) =>
          !isZero(balance.dailyAllocation) && (
            <span class="under num">of {usdText(balance.dailyAllocation)}</span>
          ),
      },
    ),
    money('Debt', ({ balance }) => (isZero(balance.debtUsd) ? null : balance.debtUsd), {
      isWide: true,
    }),
    { name: 'Created', kind: 'wide', show: ({ createdAt }) => <Time iso={createdAt} /> },
  ];
  return (
    <>
      <PageHead title="Accounts" lead="All accounts with their balances.">
        {can('own') && (
          <DialogButton label="Create an account" class="primary">
            {(closeDialog) => (
              <NewAccount
                close={closeDialog}
                created={(id) => {
                  closeDialog();
                  list.first.reload();
                  show(id);
                }}
              />
            )}
          </DialogButton>
        )}
      </PageHead>
      <SearchForm
        key={filters.search}
        label="Find an account"
        placeholder="Name, wallet address or start of an id"
        words={filters.search}
        find={(words) => address.change({ search: words })}
      />
      <div class="kinds">
        <Segments
          legend="Kind"
          value={filters.kind}
          options={[
            ['', 'All'],
            ['account', 'Accounts'],
            ['wallet', 'Wallets'],
          ]}
          onInput={(kind) => address.change({ kind })}
        />
      </div>
      <CursorTable
        label="Accounts"
        list={list}
        empty={
          address.isFiltered ? (
            <NothingMatches title="No account matches" clear={address.clear} />
          ) : (
            <Empty title="There are no accounts" />
          )
        }
        columns={columns}
        keyOf={({ id }) => id}
        open={({ id }) => show(id)}
      />
      {open !== undefined && <AccountDrawer id={open} close={close} changed={list.first.reload} />}
    </>
  );
}

function isZero(usd: string): boolean {
  return Number(usd) === 0;
}

/** The kind of the wallet of an account; `undefined` for another account. */
function walletOf(id: string): string | undefined {
  if (!id.startsWith('wallet:')) return undefined;
  return id.startsWith('wallet:0x') ? 'EVM wallet' : 'Solana wallet';
}

function NewAccount({ close, created }: { close: () => void; created: (id: string) => void }) {
  const { action, values, field } = useForm({ name: '', daily: '' });
  const create = (): void => {
    const { name, daily } = values;
    void action.run(async () => {
      const body = { name: name.trim(), ...(daily === '' ? {} : { dailyDiem: Number(daily) }) };
      const { data } = await callOnce<{ data: Account }>('/admin/accounts', body);
      toast('The account was created');
      created(data.id);
    });
  };
  return (
    <Overlay title="Create an account" close={close}>
      <ActionForm action={action} submit={create} label="Create">
        <TextField
          {...field('name')}
          label="Name"
          hint="Identifies the account in lists and commands."
          required
          maxLength={100}
        />
        <AmountField
          {...field('daily', 'dailyDiem')}
          label="Daily credit in USD"
          hint="Renewed each day at 00:00 UTC. Leave empty for none."
        />
      </ActionForm>
    </Overlay>
  );
}
