/** The credit page: balance, payment by card or from a wallet, and the statement. */
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { useAddress } from '../address.ts';
import { shortDay, usdDecimals, usdText } from '../format.ts';
import { balance, lastTopUp, useRenewal } from '../live.ts';
import { RAILS, TAKES_CARDS, networkName } from '../page-facts.ts';
import { useCursorList } from '../cursor-list.ts';
import { Days } from '../parts/filters.tsx';
import { PageHead } from '../parts/page-head.tsx';
import { Id, NONE, SafeLink, State, Tile, Time, Usd } from '../parts/values.tsx';
import { Empty, Loaded } from '../parts/loaded.tsx';
import { type Column, CursorTable, aside, money } from '../parts/table.tsx';
import { useCall } from '../resource.ts';
import { can, session } from '../session.ts';
import type { Balance, StatementEntry, TopUp } from '../shapes.ts';
import { AutoTopUpSection } from './auto-top-up.tsx';
import { CardPanel } from './card-panel.tsx';
import { TopUpPanel } from './top-up-panel.tsx';

/** The wallet that owns the account, if it is the account of a wallet. */
function walletOfAccount(): string | undefined {
  const { value } = session;
  const [kind, wallet] = (value?.accountId ?? '').split(':');
  return value?.wallet ?? (kind === 'wallet' ? wallet : undefined);
}

export function Credit() {
  const funds = useCall<Balance>('/billing/balance');
  const wallet = walletOfAccount();
  return (
    <>
      <PageHead
        title="Credit"
        lead="Requests are paid from a prepaid balance, which is never negative."
      />
      <Loaded from={{ ...funds, data: balance.value ?? funds.data }}>
        {(data) => <Funds of={data} />}
      </Loaded>
      {RAILS.length > 0 && wallet !== undefined && <TopUpPanel wallet={wallet} />}
      {TAKES_CARDS && (can('billing') || session.value?.kind === 'key') && (
        <CardPanel
          label={RAILS.length > 0 && wallet !== undefined ? 'Add credit by card' : 'Add credit'}
        />
      )}
      {!TAKES_CARDS && RAILS.length > 0 && wallet === undefined && (
        <p class="notice">
          Only the account of a wallet can be topped up with USDC: sign in with the wallet. The
          operator of the server adds credit to this account.
        </p>
      )}
      {!TAKES_CARDS && RAILS.length === 0 && (
        <p class="notice">
          This service accepts no payments. The operator adds credit with{' '}
          <code>farebox credit</code> or on the operator page Accounts.
        </p>
      )}
      {wallet !== undefined && <TopUps />}
      {TAKES_CARDS && can('billing') && <AutoTopUpSection />}
      {can('billing') ? (
        <Statement />
      ) : (
        <p class="notice">
          Only ADMIN keys, wallets, and members with the role owner or billing can read the
          statement. Activity shows the requests.
        </p>
      )}
    </>
  );
}

function Funds({ of: { balances, held, available, diemEpochAllocation } }: { of: Balance }) {
  const decimals = usdDecimals([balances.usd, available.usd, balances.diem]);
  return (
    <dl class="tiles">
      <Tile name="Balance">
        <Usd value={balances.usd} decimals={decimals} />
      </Tile>
      <Tile
        name="Available now"
        note={
          held.usd > 0
            ? `${usdText(held.usd)} is on hold for running requests`
            : 'nothing is on hold'
        }
      >
        <Usd value={available.usd} decimals={decimals} />
      </Tile>
      {diemEpochAllocation > 0 && (
        <Tile
          name="Daily credit left"
          note={`of ${usdText(diemEpochAllocation)}, spent first, renewed at 00:00 UTC`}
        >
          <Usd value={balances.diem} decimals={decimals} />
        </Tile>
      )}
    </dl>
  );
}

const TOP_UP_WORDS: Readonly<Record<TopUp['state'], string>> = {
  open: 'not sent yet',
  sent: 'pending',
  credited: 'credited',
  failed: 'failed',
};

function TopUps() {
  const list = useCursorList<TopUp>('/billing/top-ups?limit=10');
  const stamp = `${lastTopUp.value?.paymentId} ${lastTopUp.value?.state}`;
  useEffect(() => {
    if (lastTopUp.value !== undefined) list.first.reload();
  }, [stamp]);
  const columns: readonly Column<TopUp>[] = [
    { name: 'Started', show: ({ createdAt }) => <Time iso={createdAt} /> },
    aside('Network', ({ network }) => networkName(network)),
    {
      name: 'State',
      show: ({ state, failure }) => (
        <>
          <State value={TOP_UP_WORDS[state]} />
          {failure !== null && <span class="under text">{failure}</span>}
        </>
      ),
    },
    { name: 'Transaction', show: (row) => <Transaction entry={row} /> },
    money('Amount', ({ amountUsd }) => amountUsd),
  ];
  if (list.rows.length === 0) return null;
  return (
    <section>
      <h2>Payments of this wallet</h2>
      <CursorTable
        label="Payments"
        list={list}
        empty={null}
        columns={columns}
        keyOf={({ paymentId }) => paymentId}
      />
    </section>
  );
}

export function Transaction({ entry }: { entry: Pick<TopUp, 'transaction' | 'explorerUrl'> }) {
  const { transaction, explorerUrl } = entry;
  if (transaction === null) return NONE;
  if (explorerUrl === null) return <Id value={transaction} />;
  return (
    <SafeLink href={explorerUrl}>
      <Id value={transaction} />
    </SafeLink>
  );
}

export const ENTRY_TYPES: Readonly<Record<StatementEntry['type'], string>> = {
  TOP_UP: 'Top-up',
  CREDIT: 'Credit by the operator',
  REFUND: 'Refund',
  PAYOUT: 'Payout',
  REVERSAL: 'Returned top-up',
  DEBT: 'Debt',
  CHARGES: 'Requests of the day',
};

export const DATE_COLUMN: Column<StatementEntry> = {
  name: 'Date',
  show: ({ createdAt, date }) =>
    createdAt === null ? <span class="num">{shortDay(date)}</span> : <Time iso={createdAt} />,
};

/** The note and the receipt of an entry, below its name. */
export function EntryDetails({ entry: { note, receiptUrl } }: { entry: StatementEntry }) {
  return (
    <>
      {note !== null && <span class="under text">{note}</span>}
      {receiptUrl !== null && (
        <span class="under">
          <SafeLink href={receiptUrl}>Receipt</SafeLink>
        </span>
      )}
    </>
  );
}

const STATEMENT_COLUMNS: readonly Column<StatementEntry>[] = [
  DATE_COLUMN,
  {
    name: 'Movement',
    show: (entry) => (
      <>
        {entry.type === 'CHARGES' ? (
          <a href={`/console/activity?from=${entry.date}&to=${entry.date}`}>
            <span class="num">{entry.requests}</span>{' '}
            {entry.requests === 1 ? 'request' : 'requests'}
          </a>
        ) : (
          ENTRY_TYPES[entry.type]
        )}
        <EntryDetails entry={entry} />
      </>
    ),
  },
  { name: 'Transaction', kind: 'wide', show: (entry) => <Transaction entry={entry} /> },
  money('Amount', ({ amount }) => amount.usd, {
    below: ({ amount }) =>
      amount.diem !== 0 && <span class="under num">{usdText(amount.diem)} daily credit</span>,
  }),
  money('Balance after', ({ balanceAfter }) => balanceAfter, { isWide: true }),
];

function Statement() {
  const { filters, search, change } = useAddress('from', 'to');
  const list = useCursorList<StatementEntry>(`/billing/statement${search}`);
  const seen = useSignal(balance.value?.balances.usd);
  useRenewal(list.first.reload);
  const now = balance.value?.balances.usd;
  useEffect(() => {
    if (seen.value !== undefined && seen.value !== now) list.first.reload();
    seen.value = now;
  }, [now]);
  return (
    <section>
      <div class="section-head">
        <h2>Statement</h2>
        <div class="filters">
          <Days {...filters} change={change} />
          <a class="button" href="/console/statement">
            Print a month
          </a>
        </div>
      </div>
      <CursorTable
        label="Statement"
        list={list}
        empty={<Empty title="No movements on these days" />}
        columns={STATEMENT_COLUMNS}
        keyOf={({ id }) => id}
      />
    </section>
  );
}
