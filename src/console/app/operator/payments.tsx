/** The payments page: wallet payments of all accounts, and the details of one. */
import { useAddress } from '../address.ts';
import { query } from '../api.ts';
import { RAILS, networkName } from '../page-facts.ts';
import { Transaction } from '../pages/credit.tsx';
import { SearchForm } from '../parts/filters.tsx';
import { Select } from '../parts/form.tsx';
import { Overlay } from '../parts/overlay.tsx';
import { AccountLink, AccountName, WithId } from '../parts/names.tsx';
import { PageHead } from '../parts/page-head.tsx';
import { CopyId, Facts, OpenButton, State, Time, Usd } from '../parts/values.tsx';
import { Empty, Loaded } from '../parts/loaded.tsx';
import { type Column, CursorTable, aside, money } from '../parts/table.tsx';
import { useCursorList } from '../cursor-list.ts';
import { useCall } from '../resource.ts';
import type { TopUpAdminItem as AdminTopUp, TopUpDetailResponse } from '../shapes.ts';

const CHOICES = [
  ['', 'Any state'],
  ['stuck', 'Stuck'],
  ['open', 'Open'],
  ['sent', 'Sent'],
  ['credited', 'Credited'],
  ['failed', 'Failed'],
] as const;

export function Payments() {
  const { filters, open, show, change, close } = useAddress('state', 'wallet');
  const { state, wallet } = filters;
  const wanted = state === 'stuck' ? { stuck: 'true', wallet } : filters;
  const list = useCursorList<AdminTopUp>(`/admin/top-ups${query(wanted)}`);
  const columns: readonly Column<AdminTopUp>[] = [
    {
      name: 'Started',
      show: ({ createdAt, paymentId }) => (
        <OpenButton open={() => show(paymentId)}>
          <Time iso={createdAt} />
        </OpenButton>
      ),
    },
    {
      name: 'Wallet',
      show: ({ wallet: one, accountName }) => (
        <AccountName id={`wallet:${one}`} name={accountName || one} />
      ),
    },
    aside('Network', ({ network }) => networkName(network)),
    { name: 'State', show: (row) => <TopUpState topUp={row} /> },
    { name: 'Transaction', kind: 'wide', show: (row) => <Transaction entry={row} /> },
    money('Amount', ({ amountUsd }) => amountUsd),
  ];
  return (
    <>
      <PageHead title="Payments" lead="Wallet payments, from the signature to the credit." />
      <SearchForm
        key={wallet}
        label="Wallet"
        placeholder="Address"
        words={wallet}
        find={(one) => change({ wallet: one })}
      >
        <Select
          label="State"
          value={state}
          options={CHOICES}
          onInput={(one) => change({ state: one })}
        />
      </SearchForm>
      <CursorTable
        label="Payments"
        list={list}
        empty={
          <Empty title={state === 'stuck' ? 'No payment is stuck' : 'No payments'}>
            {RAILS.length === 0 && (
              <p>
                To take payments from wallets, set <code>payments</code> in the{' '}
                <a href="/console/operator/configuration">configuration</a>.
              </p>
            )}
          </Empty>
        }
        columns={columns}
        keyOf={({ paymentId }) => paymentId}
        open={({ paymentId }) => show(paymentId)}
      />
      {open !== undefined && <PaymentDrawer id={open} close={close} />}
    </>
  );
}

function TopUpState({ topUp }: { topUp: AdminTopUp }) {
  const { state, isStuck, reversals, failure } = topUp;
  return (
    <>
      <State value={state} /> {isStuck && <State value="stuck" />}
      {reversals > 0 && (
        <span class="under">reverted {reversals === 1 ? 'once' : `${reversals} times`}</span>
      )}
      {failure !== null && <span class="under text">{failure}</span>}
    </>
  );
}

/** Members that have their own line; the others are listed by name. */
const SHOWN = new Set([
  'paymentId',
  'wallet',
  'accountName',
  'network',
  'amountUsd',
  'state',
  'transaction',
  'explorerUrl',
  'failure',
  'createdAt',
  'updatedAt',
  'isStuck',
  'advice',
]);
const ISO = /^\d{4}-\d\d-\d\dT/;

function PaymentDrawer({ id, close }: { id: string; close: () => void }) {
  const payment = useCall<TopUpDetailResponse>(`/admin/top-ups/${encodeURIComponent(id)}`);
  return (
    <Overlay kind="drawer" title="Payment" close={close}>
      <Loaded from={payment}>
        {({ data }) => (
          <>
            <p class="total">
              <span class="figure num">
                <Usd value={data.amountUsd} />
              </span>
              <TopUpState topUp={data} />
            </p>
            <p class={data.isStuck ? 'notice warn' : 'notice'}>{data.advice}</p>
            <Facts
              of={[
                ['Payment', <CopyId value={data.paymentId} />],
                [
                  'Wallet',
                  <WithId id={data.wallet}>
                    <AccountLink
                      id={`wallet:${data.wallet}`}
                      name={data.accountName || data.wallet}
                    />
                  </WithId>,
                ],
                ['Network', networkName(data.network)],
                ['Transaction', <Transaction entry={data} />],
                ['Started', <Time iso={data.createdAt} />],
                ['Last change', <Time iso={data.updatedAt} />],
                ...Object.entries(data)
                  .filter(([name, value]) => !SHOWN.has(name) && value !== null)
                  .map(([name, value]) => [spaced(name), <AnyFact value={value} />] as const),
              ]}
            />
            <button type="button" onClick={payment.reload}>
              Refresh
            </button>
          </>
        )}
      </Loaded>
    </Overlay>
  );
}

/** `signedAt` becomes `signed at`. */
function spaced(name: string): string {
  return name.replaceAll(/([a-z])([A-Z])/g, '$1 $2').toLowerCase();
}

function AnyFact({ value }: { value: unknown }) {
  if (typeof value === 'string' && ISO.test(value)) return <Time iso={value} />;
  return <span class="num text">{String(value)}</span>;
}
