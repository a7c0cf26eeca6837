/** One account: its money, what it may, its keys, its latest requests; and what can be done to it. */
import { useSignal } from '@preact/signals';
import { call } from '../api.ts';
import { usdText } from '../format.ts';
import { BudgetList, type BudgetsResponse, NewBudget } from '../pages/budgets.tsx';
import { Caps, MadeKey, type NewKey } from '../pages/keys.tsx';
import { KeyForm } from '../pages/key-form.tsx';
import { RequestTable, ReceiptDrawer } from '../pages/request-table.tsx';
import { toast } from '../parts/announce.tsx';
import {
  ActionForm,
  AmountField,
  Refusal,
  Select,
  TextField,
  useAction,
  useForm,
} from '../parts/form.tsx';
import { Overlay } from '../parts/overlay.tsx';
import { Copy, Facts, State, Time, Usd } from '../parts/values.tsx';
import { Empty, Loaded } from '../parts/loaded.tsx';
import { LoadedTable, aside } from '../parts/table.tsx';
import { useCall } from '../resource.ts';
import type { ApiKey, Page, Receipt } from '../shapes.ts';
import type { Account } from './operator-shapes.ts';

interface AccountDrawerProps {
  readonly id: string;
  readonly close: () => void;
  readonly changed: () => void;
}

export function AccountDrawer({ id, close, changed }: AccountDrawerProps) {
  const path = `/admin/accounts/${encodeURIComponent(id)}`;
  const account = useCall<{ data: Account }>(path);
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
            <Movement account={data} path={path} changed={renew} />
            <Settings account={data} path={path} changed={renew} />
          </>
        )}
      </Loaded>
      <AccountKeys path={path} />
      <AccountBudgets path={`${path}/budgets`} />
      <AccountRequests path={path} />
    </Overlay>
  );
}

export function AccountState({ account: { disabled } }: { account: Account }) {
  return <State value={disabled ? 'disabled' : 'active'} tone={disabled ? 'bad' : 'good'} />;
}

function AccountFacts({ account }: { account: Account }) {
  const { id, name, createdAt, balance } = account;
  return (
    <>
      <p class="total">
        <span class="figure num">{usdText(balance.usd)}</span>
        <AccountState account={account} />
      </p>
      <Facts
        of={[
          ['Name', <span class="text">{name}</span>],
          [
            'Id',
            <>
              <code>{id}</code> <Copy text={id} />
            </>,
          ],
          ['Available', <Usd value={balance.availableUsd} />],
          ['Set aside', <Usd value={balance.heldUsd} />],
          [
            'Daily credit',
            <span class="num">
              {usdText(balance.diem)} of {usdText(balance.dailyAllocation)}
            </span>,
          ],
          Number(balance.debtUsd) > 0 && ['Debt', <Usd value={balance.debtUsd} />],
          ['Since', <Time iso={createdAt} />],
        ]}
      />
    </>
  );
}

/** A reference names one movement: sent twice, it moves once. */
function newReference(): string {
  return `console-${Array.from(crypto.getRandomValues(new Uint8Array(6)), (byte) => byte.toString(16).padStart(2, '0')).join('')}`;
}

interface ChangeProps {
  readonly account: Account;
  readonly path: string;
  readonly changed: () => void;
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
          ? 'This movement was made before'
          : `${kind === 'credit' ? 'Credited' : 'Debited'} ${usdText(amount)}; the balance is ${usdText(data.balanceUsd)}`,
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
        does={`${kind === 'credit' ? 'Credit' : 'Debit'} ${account.name === '' ? 'the account' : account.name}`}
      >
        <div class="fields-row">
          <Select
            {...field('kind')}
            label="Movement"
            options={[
              ['credit', 'Credit: give'],
              ['debit', 'Debit: take'],
            ]}
          />
          <AmountField {...field('amount', 'amountUsd')} label="USD" required />
        </div>
        <TextField
          {...field('reference')}
          label="Reference"
          hint="Names this movement; the same one never moves twice."
          required
        />
        <TextField
          {...field('note')}
          label="Note"
          hint="Stands on the statement."
          maxLength={200}
        />
      </ActionForm>
    </details>
  );
}

function Settings({ account, path, changed }: ChangeProps) {
  const { name, plan, disabled, balance } = account;
  const daily = String(Number(balance.dailyAllocation));
  const { action, values, field } = useForm({ name, plan, daily });
  const save = (body: Readonly<Record<string, unknown>>, says: string): void => {
    void action.run(async () => {
      await call(path, { method: 'PATCH', body });
      toast(says);
      changed();
    });
  };
  const submit = (): void =>
    save(
      { name: values.name.trim(), plan: values.plan.trim(), dailyDiem: Number(values.daily) },
      'The account is changed',
    );
  const toggle = (): void =>
    save(
      { disabled: !disabled },
      disabled ? 'The account is active again' : 'The account is disabled',
    );
  return (
    <details class="action">
      <summary>Settings</summary>
      <ActionForm
        action={action}
        submit={submit}
        does="Save"
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

function AccountKeys({ path }: { path: string }) {
  const keys = useCall<{ data: readonly AdminKey[] }>(`${path}/keys`);
  const isMaking = useSignal(false);
  const made = useSignal<NewKey | undefined>(undefined);
  const action = useAction();
  const revoke = (key: AdminKey): void => {
    void action.run(async () => {
      await call(`${path}/keys/${encodeURIComponent(key.id)}`, { method: 'DELETE' });
      toast('The key is revoked');
      keys.reload();
    });
  };
  return (
    <section>
      <div class="section-head">
        <h3>Keys</h3>
        <button type="button" class="small" onClick={() => (isMaking.value = true)}>
          Create a key
        </button>
      </div>
      <Refusal error={action.error} />
      <LoadedTable
        label="Keys of the account"
        from={keys}
        lines={2}
        empty={<Empty title="It has no key" />}
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
          { name: 'Used', show: (key) => <Caps apiKey={key} /> },
          {
            name: 'State',
            show: (key) =>
              key.revokedAt === null || key.revokedAt === undefined ? (
                <button
                  type="button"
                  class="small danger"
                  disabled={action.isRunning}
                  onClick={() => revoke(key)}
                >
                  Revoke
                </button>
              ) : (
                <State value="revoked" tone="bad" />
              ),
          },
        ]}
      />
      {isMaking.value && (
        <Overlay title="Create a key for the account" close={() => (isMaking.value = false)}>
          <KeyForm
            save={async (body) => {
              const { data } = await call<{ data: NewKey }>(`${path}/keys`, {
                method: 'POST',
                body,
              });
              isMaking.value = false;
              made.value = data;
              keys.reload();
            }}
          />
        </Overlay>
      )}
      {made.value !== undefined && (
        <MadeKey made={made.value} close={() => (made.value = undefined)} />
      )}
    </section>
  );
}

function AccountBudgets({ path }: { path: string }) {
  const budgets = useCall<BudgetsResponse>(path);
  const isMaking = useSignal(false);
  return (
    <section>
      <div class="section-head">
        <h3>Budgets</h3>
        <button type="button" class="small" onClick={() => (isMaking.value = true)}>
          Set a budget
        </button>
      </div>
      <BudgetList from={budgets} path={path} empty={<Empty title="It has no budget" />} isNarrow />
      {isMaking.value && (
        <NewBudget path={path} close={() => (isMaking.value = false)} made={budgets.reload} />
      )}
    </section>
  );
}

function AccountRequests({ path }: { path: string }) {
  const requests = useCall<Page<Receipt>>(`${path}/requests?limit=10`);
  const opened = useSignal<Receipt | undefined>(undefined);
  return (
    <section>
      <h3>Latest requests</h3>
      <Loaded from={requests} rows={3}>
        {({ data }) =>
          data.length === 0 ? (
            <Empty title="It has asked nothing yet" />
          ) : (
            <RequestTable
              rows={data}
              label="Requests of the account"
              open={(id) => (opened.value = data.find(({ requestId }) => requestId === id))}
            />
          )
        }
      </Loaded>
      {opened.value !== undefined && (
        <ReceiptDrawer
          id={opened.value.requestId}
          known={opened.value}
          close={() => (opened.value = undefined)}
        />
      )}
    </section>
  );
}
