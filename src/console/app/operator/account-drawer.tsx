/** The drawer of an account: balance, settings, keys, budgets and latest requests. */
import { useSignal } from '@preact/signals';
import { call } from '../api.ts';
import { usdDecimals, usdText } from '../format.ts';
import { BudgetList, NewBudget, canChangeBudgets } from '../pages/budgets.tsx';
import { CreatedKey, type NewKey, capsColumn } from '../pages/keys.tsx';
import { KeyForm } from '../pages/key-form.tsx';
import { ReceiptDrawer, requestTable } from '../pages/request-table.tsx';
import { toast } from '../parts/announce.tsx';
import {
  ActionForm,
  AmountField,
  ErrorMessage,
  Select,
  TextField,
  useAction,
  useForm,
} from '../parts/form.tsx';
import { DialogButton, Overlay } from '../parts/overlay.tsx';
import { CopyId, Facts, State, Time, Usd } from '../parts/values.tsx';
import { Empty, Loaded } from '../parts/loaded.tsx';
import { LoadedTable, aside } from '../parts/table.tsx';
import { type Resource, useCall } from '../resource.ts';
import { can } from '../session.ts';
import type { Account, ApiKey, Budget, List, Page, Receipt, RefundState } from '../shapes.ts';
import { AccountPrices, type ChangeProps, Discount } from './account-prices.tsx';

interface AccountDrawerProps {
  readonly id: string;
  readonly close: () => void;
  readonly changed: () => void;
}

export function AccountDrawer({ id, close, changed }: AccountDrawerProps) {
  const path = `/admin/accounts/${encodeURIComponent(id)}`;
  const account = useCall<{ data: Account }>(path);
  const keys = useCall<List<AdminKey>>(`${path}/keys`);
  const renew = (): void => {
    account.reload();
    changed();
  };
  return (
    <Overlay kind="drawer" title="Account" close={close}>
      <Loaded from={account}>
        {({ data }) => (
          <>
            <AccountFacts account={data} />
            {can('billing') && <Movement account={data} path={path} changed={renew} />}
            {can('billing') && data.id.startsWith('wallet:') && (
              <Refund account={data} path={path} changed={renew} />
            )}
            {can('own') && <Settings account={data} path={path} changed={renew} />}
            {can('own') && <Discount account={data} path={path} changed={renew} />}
          </>
        )}
      </Loaded>
      <AccountPrices id={id} />
      <AccountKeys keys={keys} path={path} />
      <AccountBudgets path={`${path}/budgets`} />
      <AccountRequests path={path} keys={keys.data?.data ?? []} />
    </Overlay>
  );
}

export function AccountState({ account: { disabled } }: { account: Account }) {
  return <State value={disabled ? 'disabled' : 'active'} tone={disabled ? 'bad' : 'good'} />;
}

function AccountFacts({ account }: { account: Account }) {
  const { id, name, createdAt, balance } = account;
  const { usd, availableUsd, heldUsd, diem, dailyAllocation, debtUsd } = balance;
  const decimals = usdDecimals([availableUsd, heldUsd, diem, dailyAllocation, debtUsd]);
  return (
    <>
      <p class="total">
        <span class="figure num">
          <Usd value={usd} decimals={decimals} />
        </span>
        <AccountState account={account} />
      </p>
      <Facts
        of={[
          ['Name', <span class="text">{name}</span>],
          ['Id', <CopyId value={id} />],
          ['Available', <Usd value={availableUsd} decimals={decimals} />],
          ['On hold', <Usd value={heldUsd} decimals={decimals} />],
          [
            'Daily credit',
            <>
              <Usd value={diem} decimals={decimals} /> of{' '}
              <Usd value={dailyAllocation} decimals={decimals} />
            </>,
          ],
          Number(debtUsd) > 0 && ['Debt', <Usd value={debtUsd} decimals={decimals} />],
          ['Created', <Time iso={createdAt} />],
        ]}
      />
    </>
  );
}

/** The reference makes a movement idempotent: a retry moves no money. */
function newReference(): string {
  return `console-${Array.from(crypto.getRandomValues(new Uint8Array(6)), (byte) => byte.toString(16).padStart(2, '0')).join('')}`;
}

function Movement({ account, path, changed }: ChangeProps) {
  const form = useForm({ kind: 'credit', amount: '', note: '', reference: newReference() });
  const { action, values, field } = form;
  const { kind, amount, note } = values;
  const move = (): void => {
    void action.run(async () => {
      const body = {
        amountUsd: amount,
        reference: values.reference,
        ...(note === '' ? {} : { note }),
      };
      const { data } = await call<{ data: { balanceUsd: string; isRepeat: boolean } }>(
        `${path}/${kind}`,
        { method: 'POST', body },
      );
      toast(
        data.isRepeat
          ? 'Nothing changed: a movement with this reference exists'
          : `${kind === 'credit' ? 'Credited' : 'Debited'} ${usdText(amount)}. The balance is ${usdText(data.balanceUsd)}`,
      );
      form.set({ amount: '', note: '', reference: newReference() });
      changed();
    });
  };
  return (
    <details class="action">
      <summary>Credit or debit</summary>
      <ActionForm
        action={action}
        submit={move}
        label={`${kind === 'credit' ? 'Credit' : 'Debit'} ${account.name === '' ? 'the account' : account.name}`}
      >
        <div class="fields-row">
          <Select
            {...field('kind')}
            label="Movement"
            options={[
              ['credit', 'Credit: add to the balance'],
              ['debit', 'Debit: take from the balance'],
            ]}
          />
          <AmountField {...field('amount', 'amountUsd')} label="USD" required />
        </div>
        <TextField
          {...field('reference')}
          label="Reference"
          hint="Id of this movement. A repeated reference moves no money."
          required
        />
        <TextField
          {...field('note')}
          label="Note"
          hint="Appears on the statement of the account."
          maxLength={200}
        />
      </ActionForm>
    </details>
  );
}

/** Pays credit of a wallet back in USDC. The reference makes a retry pay nothing. */
function Refund({ account, path, changed }: ChangeProps) {
  const form = useForm({ amount: 'all', reference: newReference() });
  const { action, values, field } = form;
  const refund = (): void => {
    void action.run(async () => {
      const body = { amountUsd: values.amount.trim(), reference: values.reference };
      const { data } = await call<{ data: RefundState }>(`${path}/refund`, {
        method: 'POST',
        body,
      });
      toast(`Refund of ${usdText(data.amountUsd)}: ${data.failure ?? data.state}`);
      form.set({ reference: newReference() });
      changed();
    });
  };
  return (
    <details class="action">
      <summary>Refund</summary>
      <ActionForm action={action} submit={refund} label="Pay back in USDC">
        <p class="hint">
          The wallet gets back at most {usdText(account.balance.availableUsd)}, without credit from
          payments that the chain can still revert. You cannot undo this.
        </p>
        <TextField
          {...field('amount', 'amountUsd')}
          label="Amount in USD"
          hint="Such as 4.50, or all."
          required
        />
      </ActionForm>
    </details>
  );
}

function Settings({ account, path, changed }: ChangeProps) {
  const { name, plan, disabled, balance } = account;
  const daily = String(Number(balance.dailyAllocation));
  const { action, values, field } = useForm({ name, plan, daily });
  const save = (body: Readonly<Record<string, unknown>>, notice: string): void => {
    void action.run(async () => {
      await call(path, { method: 'PATCH', body });
      toast(notice);
      changed();
    });
  };
  const submit = (): void =>
    save(
      { name: values.name.trim(), plan: values.plan.trim(), dailyDiem: Number(values.daily) },
      'The account was changed',
    );
  const toggle = (): void =>
    save({ disabled: !disabled }, disabled ? 'The account is enabled' : 'The account is disabled');
  return (
    <details class="action">
      <summary>Settings</summary>
      <ActionForm
        action={action}
        submit={submit}
        label="Save"
        others={
          <button
            type="button"
            class={disabled ? '' : 'danger'}
            disabled={action.isRunning}
            onClick={toggle}
          >
            {disabled ? 'Enable' : 'Disable'}
          </button>
        }
      >
        <TextField {...field('name')} label="Name" required maxLength={100} />
        <div class="fields-row">
          <TextField {...field('plan')} label="Plan" required />
          <AmountField {...field('daily', 'dailyDiem')} label="Daily credit in USD" />
        </div>
      </ActionForm>
    </details>
  );
}

type AdminKey = ApiKey & { readonly revokedAt?: string | null };

function AccountKeys({ keys, path }: { keys: Resource<List<AdminKey>>; path: string }) {
  const created = useSignal<NewKey | undefined>(undefined);
  const action = useAction();
  const revoke = (key: AdminKey): void => {
    void action.run(async () => {
      await call(`${path}/keys/${encodeURIComponent(key.id)}`, { method: 'DELETE' });
      toast('The key was revoked');
      keys.reload();
    });
  };
  return (
    <section>
      <div class="section-head">
        <h3>Keys</h3>
        {can('own') && (
          <DialogButton label="Create a key" class="small">
            {(close) => (
              <Overlay title="Create a key for the account" close={close}>
                <KeyForm
                  save={async (body) => {
                    const { data } = await call<{ data: NewKey }>(`${path}/keys`, {
                      method: 'POST',
                      body,
                    });
                    close();
                    created.value = data;
                    keys.reload();
                  }}
                />
              </Overlay>
            )}
          </DialogButton>
        )}
      </div>
      <ErrorMessage error={action.error} />
      <LoadedTable
        label="Keys of the account"
        from={keys}
        lines={2}
        empty={<Empty title="The account has no keys" />}
        keyOf={({ id }) => id}
        columns={[
          {
            name: 'Key',
            show: (key) => (
              <>
                <span class="text">{key.description}</span>
                <span class="under id">…{key.last6Chars}</span>
              </>
            ),
          },
          aside<AdminKey>('Kind', ({ apiKeyType }) => apiKeyType),
          capsColumn(),
          {
            name: 'State',
            show: (key) =>
              key.revokedAt === null || key.revokedAt === undefined ? (
                can('own') && (
                  <button
                    type="button"
                    class="small danger"
                    disabled={action.isRunning}
                    onClick={() => revoke(key)}
                  >
                    Revoke
                  </button>
                )
              ) : (
                <State value="revoked" tone="bad" />
              ),
          },
        ]}
      />
      {created.value !== undefined && (
        <CreatedKey created={created.value} close={() => (created.value = undefined)} />
      )}
    </section>
  );
}

function AccountBudgets({ path }: { path: string }) {
  const budgets = useCall<List<Budget>>(path);
  return (
    <section>
      <div class="section-head">
        <h3>Budgets</h3>
        {canChangeBudgets(path) && (
          <DialogButton label="Create a budget" class="small">
            {(close) => <NewBudget path={path} close={close} created={budgets.reload} />}
          </DialogButton>
        )}
      </div>
      <BudgetList
        from={budgets}
        path={path}
        empty={<Empty title="The account has no budgets" />}
        isNarrow
      />
    </section>
  );
}

function AccountRequests({ path, keys }: { path: string; keys: readonly AdminKey[] }) {
  const requests = useCall<Page<Receipt>>(`${path}/requests?limit=10`);
  const opened = useSignal<Receipt | undefined>(undefined);
  return (
    <section>
      <h3>Latest requests</h3>
      <LoadedTable
        label="Requests of the account"
        from={requests}
        lines={3}
        empty={<Empty title="The account has sent no requests" />}
        {...requestTable((request) => (opened.value = request))}
      />
      {opened.value !== undefined && (
        <ReceiptDrawer
          id={opened.value.requestId}
          known={opened.value}
          keyNames={new Map(keys.map(({ id, description }) => [id, description]))}
          close={() => (opened.value = undefined)}
        />
      )}
    </section>
  );
}
