/** Wallet payments of every account by state, and a look into one that is stuck. */
import { useLocation } from 'preact-iso';
import { useState } from 'preact/hooks';
import { call, query } from '../api.ts';
import { Transaction, networkName } from '../pages/credit.tsx';
import { Select } from '../parts/form.tsx';
import { Overlay } from '../parts/overlay.tsx';
import { PageHead } from '../parts/page-head.tsx';
import { Copy, Fact, Facts, Id, State, Time, Usd } from '../parts/show.tsx';
import { Empty, Failure, Loaded } from '../parts/states.tsx';
import { type Column, More, Table } from '../parts/table.tsx';
import { useCursorList } from '../pages-list.ts';
import { useResource } from '../resource.ts';
import type { AdminTopUp } from './operator-shapes.ts';

const CHOICES = [
  ['', 'Any state'],
  ['stuck', 'Stuck'],
  ['open', 'Open'],
  ['sent', 'Sent'],
  ['credited', 'Credited'],
  ['failed', 'Failed'],
] as const;

export function Payments() {
  const { query: given, path, route } = useLocation();
  const { state = '', wallet = '', open } = given;
  const filters = { state, wallet };
  const asked = state === 'stuck' ? { stuck: 'true', wallet } : filters;
  const list = useCursorList<AdminTopUp>(`/admin/top-ups${query(asked)}`);
  const show = (paymentId: string): void => route(path + query({ ...filters, open: paymentId }));
  const columns: readonly Column<AdminTopUp>[] = [
    {
      name: 'Begun',
      show: ({ createdAt, paymentId }) => (
        <button type="button" class="link" onClick={() => show(paymentId)}>
          <Time iso={createdAt} />
        </button>
      ),
    },
    { name: 'Wallet', show: ({ wallet: one }) => <Id value={one} /> },
    {
      name: 'Network',
      kind: 'wide',
      show: ({ network }) => <span class="soft">{networkName(network)}</span>,
    },
    { name: 'State', show: (row) => <TopUpState topUp={row} /> },
    { name: 'Transaction', kind: 'wide', show: (row) => <Transaction entry={row} /> },
    { name: 'Amount', kind: 'figure', show: ({ amountUsd }) => <Usd value={amountUsd} /> },
  ];
  return (
    <>
      <PageHead title="Payments" lead="What wallets have paid, from the signature to the credit." />
      <div class="filters">
        <Select
          isCompact
          label="State"
          value={state}
          options={CHOICES}
          onChange={(one) => route(path + query({ ...filters, state: one }))}
        />
        <WalletFilter
          key={wallet}
          wallet={wallet}
          find={(one) => route(path + query({ ...filters, wallet: one }))}
        />
      </div>
      {list.moreError !== undefined && <Failure error={list.moreError} />}
      <Loaded from={list.first}>
        {() =>
          list.rows.length === 0 ? (
            <Empty title={state === 'stuck' ? 'No payment is stuck' : 'No payment to show'} />
          ) : (
            <>
              <Table
                label="Payments"
                columns={columns}
                rows={list.rows}
                keyOf={({ paymentId }) => paymentId}
                open={({ paymentId }) => show(paymentId)}
              />
              <More isLoading={list.isLoadingMore} load={list.more} />
            </>
          )
        }
      </Loaded>
      {open !== undefined && (
        <PaymentDrawer id={open} close={() => route(path + query(filters), true)} />
      )}
    </>
  );
}

function WalletFilter({ wallet, find }: { wallet: string; find: (wallet: string) => void }) {
  const [words, setWords] = useState(wallet);
  return (
    <form
      class="filter grow"
      onSubmit={(event) => {
        event.preventDefault();
        find(words.trim());
      }}
    >
      <label for="wallet-filter">Wallet</label>
      <input
        id="wallet-filter"
        type="search"
        spellcheck={false}
        placeholder="Address"
        value={words}
        onInput={(event) => setWords(event.currentTarget.value)}
      />
    </form>
  );
}

function TopUpState({ topUp }: { topUp: AdminTopUp }) {
  const { state, isStuck, reversals, failure } = topUp;
  return (
    <>
      <State
        value={state}
        tone={state === 'failed' ? 'bad' : state === 'credited' ? 'good' : 'warn'}
      />{' '}
      {isStuck && <State value="stuck" tone="bad" />}
      {reversals > 0 && (
        <span class="under">taken back {reversals === 1 ? 'once' : `${reversals} times`}</span>
      )}
      {failure !== null && <span class="under text">{failure}</span>}
    </>
  );
}

type Detail = AdminTopUp & Readonly<Record<string, unknown>> & { readonly advice: string | null };

/** Shown in words of their own. */
const SHOWN = new Set([
  'paymentId',
  'wallet',
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
  const payment = useResource(`payment ${id}`, (signal) =>
    call<{ data: Detail }>(`/admin/top-ups/${encodeURIComponent(id)}`, { signal }),
  );
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
            {data.advice !== null && (
              <p class={data.isStuck ? 'notice warn' : 'notice'}>{data.advice}</p>
            )}
            <Facts>
              <Fact name="Payment">
                <Id value={data.paymentId} ends={8} /> <Copy text={data.paymentId} />
              </Fact>
              <Fact name="Wallet">
                <a
                  href={`/console/operator/accounts?open=${encodeURIComponent(`wallet:${data.wallet}`)}`}
                >
                  <Id value={data.wallet} ends={8} />
                </a>
              </Fact>
              <Fact name="Network">{networkName(data.network)}</Fact>
              <Fact name="Transaction">
                <Transaction entry={data} />
              </Fact>
              <Fact name="Begun">
                <Time iso={data.createdAt} />
              </Fact>
              <Fact name="Changed">
                <Time iso={data.updatedAt} />
              </Fact>
              {Object.entries(data)
                .filter(([name, value]) => !SHOWN.has(name) && value !== null)
                .map(([name, value]) => (
                  <Fact key={name} name={name.replaceAll(/([a-z])([A-Z])/g, '$1 $2').toLowerCase()}>
                    {typeof value === 'string' && ISO.test(value) ? (
                      <Time iso={value} />
                    ) : (
                      <span class="num text">{String(value)}</span>
                    )}
                  </Fact>
                ))}
            </Facts>
            <button type="button" onClick={payment.reload}>
              Look again
            </button>
          </>
        )}
      </Loaded>
    </Overlay>
  );
}
