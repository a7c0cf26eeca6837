/** The drawer of an account: balance, settings, keys, budgets and latest requests. */
import { useSignal } from '@preact/signals';
import { call, callOnce } from '../api.ts';
import { usdDecimals } from '../format.ts';
import { BudgetList, NewBudget, canChangeBudgets } from '../pages/budgets.tsx';
import { ConfirmRevocation, CreatedKey, type NewKey, capsColumn } from '../pages/keys.tsx';
import { KeyForm } from '../pages/key-form.tsx';
import { ReceiptDrawer, requestTable } from '../pages/request-table.tsx';
import { DialogButton, Overlay } from '../parts/overlay.tsx';
import { CopyId, Facts, State, Time, Usd } from '../parts/values.tsx';
import { Empty, Loaded } from '../parts/loaded.tsx';
import { LoadedTable, aside } from '../parts/table.tsx';
import { type Resource, useCall } from '../resource.ts';
import { TAKES_CARDS } from '../page-facts.ts';
import { can } from '../session.ts';
import type { Account, ApiKey, Budget, List, Page, PricesResponse, Receipt } from '../shapes.ts';
import { AccountPrices } from './account-prices.tsx';
import { Movement, Refund, RefundCards, Settings } from './account-actions.tsx';
import { PriceRules } from './price-rules.tsx';

interface AccountDrawerProps {
  readonly id: string;
  readonly close: () => void;
  readonly changed: () => void;
}

export function AccountDrawer({ id, close, changed }: AccountDrawerProps) {
  const path = `/admin/accounts/${encodeURIComponent(id)}`;
  const account = useCall<{ data: Account }>(path);
  const keys = useCall<List<AdminKey>>(`${path}/keys`);
  const prices = useCall<PricesResponse>(`/admin/prices?account=${encodeURIComponent(id)}`);
  const renew = (): void => {
    account.reload();
    prices.reload();
    changed();
  };
  return (
    <Overlay kind="drawer" title="Account" close={close}>
      <Loaded from={account}>
        {({ data }) => {
          const change = { account: data, path, changed: renew };
          const { plans = [], data: sold = [] } = prices.data ?? {};
          return (
            <>
              <AccountFacts account={data} />
              {can('billing') && <Movement {...change} />}
              {can('billing') && data.id.startsWith('wallet:') && <Refund {...change} />}
              {can('billing') && TAKES_CARDS && <RefundCards {...change} />}
              {can('own') && <Settings {...change} plans={plans} />}
              {can('own') && <PriceRules {...change} sold={sold} />}
            </>
          );
        }}
      </Loaded>
      <AccountPrices prices={prices} />
      <AccountKeys keys={keys} path={path} />
      <AccountBudgets path={`${path}/budgets`} />
      <AccountRequests path={path} keys={keys.data?.data ?? []} />
    </Overlay>
  );
}

export function AccountState({ account: { disabled } }: { account: Account }) {
  return <State value={disabled ? 'disabled' : 'active'} />;
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

type AdminKey = ApiKey & { readonly revokedAt?: string | null };

function AccountKeys({ keys, path }: { keys: Resource<List<AdminKey>>; path: string }) {
  const created = useSignal<NewKey | undefined>(undefined);
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
                    const { data } = await callOnce<{ data: NewKey }>(`${path}/keys`, body);
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
      <LoadedTable
        label="Keys of the account"
        from={keys}
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
                  <DialogButton label="Revoke" class="small danger">
                    {(close) => (
                      <ConfirmRevocation
                        apiKey={key}
                        close={close}
                        run={() =>
                          call(`${path}/keys/${encodeURIComponent(key.id)}`, { method: 'DELETE' })
                        }
                        done={() => {
                          close();
                          keys.reload();
                        }}
                      />
                    )}
                  </DialogButton>
                )
              ) : (
                <State value="revoked" />
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
      <BudgetList from={budgets} path={path} empty={<Empty title="The account has no budgets" />} />
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
