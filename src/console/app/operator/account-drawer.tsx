/** One account: its money, what it may, its keys, its latest requests; and what can be done to it. */
import { useSignal } from '@preact/signals';
import { useState } from 'preact/hooks';
import { call } from '../api.ts';
import { usdText } from '../format.ts';
import { Caps, MadeKey } from '../pages/keys.tsx';
import { KeyForm } from '../pages/key-form.tsx';
import { RequestTable, ReceiptDrawer } from '../pages/request-table.tsx';
import { toast } from '../parts/announce.tsx';
import { AmountField, Refusal, Select, TextField, problemOf, useAction } from '../parts/form.tsx';
import { Overlay } from '../parts/overlay.tsx';
import { Copy, Fact, Facts, State, Time, Usd } from '../parts/show.tsx';
import { Empty, Loaded } from '../parts/states.tsx';
import { Table } from '../parts/table.tsx';
import { useResource } from '../resource.ts';
import type { ApiKey, Page, Receipt } from '../shapes.ts';
import type { Account } from './operator-shapes.ts';

interface AccountDrawerProps {
  readonly id: string;
  readonly close: () => void;
  readonly changed: () => void;
}

export function AccountDrawer({ id, close, changed }: AccountDrawerProps) {
  const path = `/admin/accounts/${encodeURIComponent(id)}`;
  const account = useResource(`account ${id}`, (signal) =>
    call<{ data: Account }>(path, { signal }),
  );
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
            <Movement account={data} path={path} moved={renew} />
            <Settings account={data} path={path} changed={renew} />
          </>
        )}
      </Loaded>
      <AccountKeys path={path} />
      <AccountRequests path={path} />
    </Overlay>
  );
}

function AccountFacts({ account }: { account: Account }) {
  const { balance } = account;
  return (
    <>
      <p class="total">
        <span class="figure num">{usdText(balance.usd)}</span>
        <State
          value={account.disabled ? 'disabled' : 'active'}
          tone={account.disabled ? 'bad' : 'good'}
        />
      </p>
      <Facts>
        <Fact name="Name">
          <span class="text">{account.name}</span>
        </Fact>
        <Fact name="Id">
          <code>{account.id}</code> <Copy text={account.id} />
        </Fact>
        <Fact name="Available">
          <Usd value={balance.availableUsd} />
        </Fact>
        <Fact name="Set aside">
          <Usd value={balance.heldUsd} />
        </Fact>
        <Fact name="Daily credit">
          <span class="num">
            {usdText(balance.diem)} of {usdText(balance.dailyAllocation)}
          </span>
        </Fact>
        {Number(balance.debtUsd) > 0 && (
          <Fact name="Debt">
            <Usd value={balance.debtUsd} />
          </Fact>
        )}
        <Fact name="Since">
          <Time iso={account.createdAt} />
        </Fact>
      </Facts>
    </>
  );
}

/** A reference names one movement: sent twice, it moves once. */
function newReference(): string {
  return `console-${Array.from(crypto.getRandomValues(new Uint8Array(6)), (byte) => byte.toString(16).padStart(2, '0')).join('')}`;
}

function Movement({ account, path, moved }: { account: Account; path: string; moved: () => void }) {
  const action = useAction();
  const [kind, setKind] = useState('credit');
  const [amount, setAmount] = useState('');
  const [note, setNote] = useState('');
  const [reference, setReference] = useState(newReference);
  const move = (): void => {
    void action.run(async () => {
      const body = { amountUsd: amount, reference, ...(note === '' ? {} : { note }) };
      const { data } = await call<{ data: { balanceUsd: string; isRepeat: boolean } }>(
        `${path}/${kind}`,
        { method: 'POST', body },
      );
      toast(
        data.isRepeat
          ? 'This movement was made before'
          : `${kind === 'credit' ? 'Credited' : 'Debited'} ${usdText(amount)}; the balance is ${usdText(data.balanceUsd)}`,
      );
      setAmount('');
      setNote('');
      setReference(newReference());
      moved();
    });
  };
  return (
    <details class="action">
      <summary>Credit or debit</summary>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          move();
        }}
      >
        <div class="fields-row">
          <Select
            label="Movement"
            value={kind}
            options={[
              ['credit', 'Credit: give'],
              ['debit', 'Debit: take'],
            ]}
            onChange={setKind}
          />
          <AmountField
            label="USD"
            problem={problemOf(action.error, 'amountUsd')}
            required
            value={amount}
            onInput={setAmount}
          />
        </div>
        <TextField
          label="Reference"
          hint="Names this movement; the same one never moves twice."
          problem={problemOf(action.error, 'reference')}
          required
          value={reference}
          onInput={setReference}
        />
        <TextField
          label="Note"
          hint="Stands on the statement."
          maxLength={200}
          value={note}
          onInput={setNote}
        />
        <Refusal error={action.error} />
        <p class="row end">
          <button type="submit" class="primary" disabled={action.isRunning}>
            {kind === 'credit' ? 'Credit' : 'Debit'}{' '}
            {account.name === '' ? 'the account' : account.name}
          </button>
        </p>
      </form>
    </details>
  );
}

function Settings({
  account,
  path,
  changed,
}: {
  account: Account;
  path: string;
  changed: () => void;
}) {
  const action = useAction();
  const [name, setName] = useState(account.name);
  const [plan, setPlan] = useState(account.plan);
  const [daily, setDaily] = useState(String(Number(account.balance.dailyAllocation)));
  const save = (body: Readonly<Record<string, unknown>>, says: string): void => {
    void action.run(async () => {
      await call(path, { method: 'PATCH', body });
      toast(says);
      changed();
    });
  };
  return (
    <details class="action">
      <summary>Settings</summary>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          save(
            { name: name.trim(), plan: plan.trim(), dailyDiem: Number(daily) },
            'The account is changed',
          );
        }}
      >
        <TextField
          label="Name"
          problem={problemOf(action.error, 'name')}
          required
          maxLength={100}
          value={name}
          onInput={setName}
        />
        <div class="fields-row">
          <TextField
            label="Plan"
            problem={problemOf(action.error, 'plan')}
            required
            value={plan}
            onInput={setPlan}
          />
          <AmountField
            label="Daily credit in USD"
            problem={problemOf(action.error, 'dailyDiem')}
            value={daily}
            onInput={setDaily}
          />
        </div>
        <Refusal error={action.error} />
        <p class="row end">
          <button
            type="button"
            class={account.disabled ? '' : 'danger'}
            disabled={action.isRunning}
            onClick={() =>
              save(
                { disabled: !account.disabled },
                account.disabled ? 'The account is active again' : 'The account is disabled',
              )
            }
          >
            {account.disabled ? 'Enable' : 'Disable'}
          </button>
          <button type="submit" class="primary" disabled={action.isRunning}>
            Save
          </button>
        </p>
      </form>
    </details>
  );
}

type AdminKey = ApiKey & { readonly revokedAt?: string | null };

function AccountKeys({ path }: { path: string }) {
  const keys = useResource(`keys of ${path}`, (signal) =>
    call<{ data: readonly AdminKey[] }>(`${path}/keys`, { signal }),
  );
  const isMaking = useSignal(false);
  const made = useSignal<{ readonly apiKey: string; readonly description: string } | undefined>(
    undefined,
  );
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
      <Loaded from={keys} rows={2}>
        {({ data }) =>
          data.length === 0 ? (
            <Empty title="It has no key" />
          ) : (
            <Table
              label="Keys of the account"
              rows={data}
              keyOf={({ id }) => id}
              columns={[
                {
                  name: 'Key',
                  show: (key) => (
                    <>
                      <span class="text">{key.description}</span>
                      <span class="under num">…{key.last6Chars}</span>
                    </>
                  ),
                },
                { name: 'Kind', show: ({ apiKeyType }) => <span class="soft">{apiKeyType}</span> },
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
          )
        }
      </Loaded>
      {isMaking.value && (
        <Overlay title="Create a key for the account" close={() => (isMaking.value = false)}>
          <KeyForm
            save={async (body) => {
              const answer = await call<{ data: { apiKey: string; description: string } }>(
                `${path}/keys`,
                { method: 'POST', body },
              );
              isMaking.value = false;
              made.value = answer.data;
              keys.reload();
            }}
          />
        </Overlay>
      )}
      {made.value !== undefined && (
        <MadeKey
          secret={made.value.apiKey}
          description={made.value.description}
          close={() => (made.value = undefined)}
        />
      )}
    </section>
  );
}

function AccountRequests({ path }: { path: string }) {
  const requests = useResource(`requests of ${path}`, (signal) =>
    call<Page<Receipt>>(`${path}/requests?limit=10`, { signal }),
  );
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
