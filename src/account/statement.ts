/** `GET /billing/statement`: transactions and the charges of each day; `GET /billing/top-ups`. */
import * as z from 'zod';
import {
  type ChargedDay,
  type MovementRow,
  balanceChange,
  statementPage,
} from '../billing/ledger/ledger.ts';
import { dayOf, dayStartMs, isoTime } from '../core/clock.ts';
import { formatUsd, toUsdNumber, usdToNano } from '../core/money.ts';
import type { Queryable } from '../db/db.ts';
import { cursorQuery, decodeCursor, encodeCursor, pageOf, timePage } from '../http/cursor.ts';
import { type RouteDescription, jsonResponse } from '../http/describe.ts';
import { costOf } from '../http/model-sale.ts';
import { readQuery } from '../http/read-request.ts';
import type { RequestContext } from '../http/request-context.ts';
import { walletOfAccount } from '../identity/identity.ts';
import { cardReceipts } from '../payments/cards/cards.ts';
import { type TopUpDetail, explorerUrl, listTopUps } from '../payments/payments.ts';
import type { AccountParts } from './account-parts.ts';
import { DecimalText, Time } from './api-key-schema.ts';
import { MAX_CSV_ROWS, badQuery, csvField, dayText, sendCsv, wantsCsv } from './usage-query.ts';
import { Cost, Day, jsonOrCsv } from './usage-schema.ts';

export const StatementQuery = z.object({
  from: Day.optional().describe('First day; default: the first day of the account.'),
  to: Day.optional().describe('Last day; default: today.'),
  format: z
    .enum(['json', 'csv'])
    .optional()
    .describe('`csv` downloads all entries, as does the header `Accept: text/csv`.'),
  ...cursorQuery(),
});

const Transaction = z.string().nullable().describe('Id of the transaction on the chain.');
const ExplorerUrl = z
  .string()
  .nullable()
  .describe('URL of the transaction in a block explorer, or null.');

type Entry = z.infer<typeof Entry>;
const Entry = z.object({
  id: z.string().describe('Id of the entry.'),
  type: z
    .enum(['TOP_UP', 'CREDIT', 'REFUND', 'PAYOUT', 'REVERSAL', 'DEBT', 'CHARGES'])
    .describe(
      'TOP_UP from a wallet or by card; CREDIT or debit by the operator; REFUND of a failed job or payout; PAYOUT to a wallet or card; REVERSAL of a top-up after a chain reorganisation, a refund or a dispute; DEBT repaid; CHARGES of a day.',
    ),
  date: Day.describe('Day of the entry, UTC.'),
  createdAt: Time.nullable().describe('ISO 8601, UTC; null for the charges of a day.'),
  amount: Cost.describe('Positive: added to the balance; negative: deducted.'),
  balanceAfter: z.number().nullable().describe('USD balance after the entry; null for charges.'),
  requests: z.number().int().nullable().describe('Number of charged requests of a day, or null.'),
  note: z.string().nullable().describe('Note of the entry, or null.'),
  network: z.string().nullable().describe('CAIP-2 name of the chain, or null.'),
  transaction: Transaction,
  explorerUrl: ExplorerUrl,
  receiptUrl: z.string().nullable().describe('Receipt of a card payment, or null.'),
});

export type StatementResponse = z.infer<typeof StatementResponse>;
const Balance = DecimalText.nullable();
export const StatementResponse = pageOf(Entry)
  .extend({
    openingUsd: Balance.describe(
      'USD balance before `from`, or null if entries since then were deleted. It is `closingUsd` of the days before.',
    ),
    closingUsd: Balance.describe(
      'USD balance at the end of `to`: `openingUsd` plus the USD amounts of all entries.',
    ),
  })
  .meta({ id: 'BillingStatement' });

const CSV_HEAD = 'date,type,usd,diem,balance_after_usd,requests,id,note,transaction,receipt_url';

export const STATEMENT: RouteDescription = {
  tag: 'Usage and billing',
  summary: 'Get the statement',
  about:
    'All transactions of the account, and its balance before and after them; the charges of a day are one entry. The CSV file begins with the closing balance and ends with the opening balance.',
  query: StatementQuery,
  response: jsonOrCsv(
    'Entries, newest first.',
    StatementResponse,
    {
      object: 'list',
      data: [
        {
          id: 'charges-2026-11-21',
          type: 'CHARGES',
          date: '2026-11-21',
          createdAt: null,
          amount: { usd: -0.0021, diem: 0 },
          balanceAfter: null,
          requests: 12,
          note: null,
          network: null,
          transaction: null,
          explorerUrl: null,
          receiptUrl: null,
        },
      ],
      nextCursor: null,
      openingUsd: '25.000000000',
      closingUsd: '24.997900000',
    },
    `${CSV_HEAD}\r\n2026-11-21,CHARGES,-0.002100000,0.000000000,,12,charges-2026-11-21,,,\r\n`,
  ),
};

const Place = z.tuple([z.number().int(), z.string(), z.number().int()]);
/** Id of the charges of a day in a cursor, which are sorted after all other entries of the day. */
const CHARGES_ID = '';

export async function sendStatement(
  parts: AccountParts,
  context: RequestContext,
  accountId: string,
): Promise<void> {
  const query = readQuery(context, StatementQuery);
  const nowMs = parts.clock.nowMs();
  const fromDay = query.from === undefined ? 0 : dayOf(Date.parse(query.from));
  const toDay = query.to === undefined ? dayOf(nowMs) : dayOf(Date.parse(query.to));
  if (fromDay > toDay) throw badQuery('from', 'Must not be after "to"');
  const [createdMs = lastMsOf(toDay), id = CHARGES_ID, part = 0] =
    decodeCursor(query.cursor, Place) ?? [];
  const isFirst = query.cursor === undefined;
  // The previous page had the charges of the day of the cursor.
  const lastDay = isFirst ? toDay : dayOf(createdMs) - 1;
  const store = parts.stores.store.readerFor(accountId);
  const isCsv = wantsCsv(context, query);
  const limit = (isCsv ? MAX_CSV_ROWS : query.limit) + 1;
  const after = id === CHARGES_ID ? { createdMs } : { createdMs, id, part };
  const range = { fromDay, toDay, after, lastDay, limit };
  const { movements, days, openingNano, closingNano } = await statementPage(
    store,
    accountId,
    range,
  );
  const [openingUsd, closingUsd] = [openingNano, closingNano].map((nanos) =>
    nanos === undefined ? undefined : formatUsd(nanos),
  );
  const lines = [
    ...days.map((day) => ({ ms: lastMsOf(Number(day.day)), day, movement: undefined })),
    ...movements.map((movement) => ({ ms: Number(movement.created_ms), day: undefined, movement })),
  ].toSorted((a, b) => b.ms - a.ms);
  if (isCsv) {
    const receipts = await receiptsOf(store, movements);
    const entries = lines.map((line) =>
      csvOf(
        line.movement === undefined
          ? chargesOf(line.day)
          : movementOf(parts, accountId, line.movement, receipts),
      ),
    );
    const rows = [
      csvOfBalance(toDay, 'CLOSING_BALANCE', closingUsd),
      ...entries,
      csvOfBalance(fromDay, 'OPENING_BALANCE', openingUsd),
    ];
    return sendCsv(context, 'statement', { fromDay, toDay }, CSV_HEAD, rows, (row) => row);
  }
  const shown = lines.slice(0, query.limit);
  const receipts = await receiptsOf(store, movements);
  const last = lines.length > query.limit ? shown.at(-1) : undefined;
  const body: StatementResponse = {
    object: 'list',
    data: shown.map(({ day, movement }) =>
      movement === undefined ? chargesOf(day) : movementOf(parts, accountId, movement, receipts),
    ),
    nextCursor:
      last === undefined
        ? null
        : encodeCursor([
            last.ms,
            last.movement?.id ?? CHARGES_ID,
            Number(last.movement?.part ?? 0),
          ]),
    openingUsd: openingUsd ?? null,
    closingUsd: closingUsd ?? null,
  };
  await context.json(200, body);
}

function lastMsOf(day: number): number {
  return dayStartMs(day + 1) - 1;
}

function chargesOf({ day, requests, usd_nano, diem_nano }: ChargedDay): Entry {
  const date = dayText(Number(day));
  return {
    id: `charges-${date}`,
    type: 'CHARGES',
    date,
    createdAt: null,
    amount: { usd: toUsdNumber(-usd_nano), diem: toUsdNumber(-diem_nano) },
    balanceAfter: null,
    requests: Number(requests),
    note: null,
    network: null,
    transaction: null,
    explorerUrl: null,
    receiptUrl: null,
  };
}

function csvOfBalance(day: number, type: string, usd: string | undefined): string[] {
  return [dayText(day), type, '', '', usd ?? '', '', '', '', '', ''];
}

function csvOf(entry: Entry): string[] {
  const { date, createdAt, type, amount, balanceAfter, requests, id } = entry;
  const usd = (value: number | null): string => {
    if (value === null) return '';
    return formatUsd(value < 0 ? 0n - usdToNano(-value) : usdToNano(value));
  };
  return [
    createdAt ?? date,
    type,
    usd(amount.usd),
    usd(amount.diem),
    usd(balanceAfter),
    String(requests ?? ''),
    ...[id, entry.note, entry.transaction, entry.receiptUrl].map((text) => csvField(text ?? '')),
  ];
}

/** URLs of the receipts of card payments, by the ids of their postings. */
async function receiptsOf(
  store: Queryable,
  movements: readonly MovementRow[],
): Promise<ReadonlyMap<string, string>> {
  return await cardReceipts(
    store,
    movements.filter(({ kind }) => kind === 'TOP_UP').map(({ id }) => id),
  );
}

/** Accounts of top-ups and payouts, which name the rail; the note of these postings is the transaction. */
const RAIL = /^house:(?:top-up|payout):(base|solana|eip155:\d{1,15})$/;

function movementOf(
  { config }: AccountParts,
  accountId: string,
  row: MovementRow,
  receipts: ReadonlyMap<string, string>,
): Entry {
  const rail = RAIL.exec(row.debit_account)?.[1] ?? RAIL.exec(row.credit_account)?.[1];
  const { base, solana } = config.current.payments;
  const network =
    rail === 'base' ? base?.network : rail === 'solana' ? solana?.network : (rail ?? undefined);
  const transaction = rail === undefined ? null : row.note;
  const createdMs = Number(row.created_ms);
  return {
    id: row.part === 0n ? row.id : `${row.id}:${row.part}`,
    type: row.kind as Entry['type'], // written by the ledger
    date: dayText(dayOf(createdMs)),
    createdAt: isoTime(createdMs),
    amount: costOf(balanceChange(row, accountId)),
    balanceAfter: toUsdNumber(row.balance_after_nano),
    requests: null,
    note: transaction === null ? row.note : null,
    network: network ?? null,
    transaction,
    explorerUrl:
      network === undefined || transaction === null ? null : explorerUrl(network, transaction),
    receiptUrl: receipts.get(row.id) ?? null,
  };
}

export type TopUpItem = z.infer<typeof TopUpItem>;
export const TopUpItem = z
  .object({
    paymentId: z.string().describe('Id of the payment.'),
    network: z.string().describe('CAIP-2.'),
    amountUsd: z.number().describe('Paid amount in USD.'),
    state: z
      .enum(['open', 'sent', 'credited', 'failed'])
      .describe('open: not sent yet; sent: not confirmed yet; credited and failed are final.'),
    transaction: Transaction,
    explorerUrl: ExplorerUrl,
    failure: z
      .string()
      .nullable()
      .describe('Reason of the failure, or of the last attempt, or null.'),
    createdAt: Time.describe('Time of receipt; ISO 8601, UTC.'),
    updatedAt: Time.describe('Time of the last change; ISO 8601, UTC.'),
  })
  .meta({ id: 'WalletPayment' });

export type TopUpsResponse = z.infer<typeof TopUpsResponse>;
export const TopUpsResponse = pageOf(TopUpItem);

const TopUpsQuery = z.object(cursorQuery());

export const TOP_UPS: RouteDescription = {
  tag: 'Usage and billing',
  summary: 'List top-ups',
  about:
    'The payments of the wallet of the account, including pending ones; empty for an account without a wallet. The server finishes an open or sent payment even if its payer disconnects.',
  query: TopUpsQuery,
  response: jsonResponse('Payments, newest first.', TopUpsResponse, {
    object: 'list',
    data: [
      {
        paymentId: 'x402-9f3c2a71',
        network: 'eip155:8453',
        amountUsd: 10,
        state: 'credited',
        transaction: '0x5e1f…',
        explorerUrl: 'https://basescan.org/tx/0x5e1f…',
        failure: null,
        createdAt: '2026-11-21T04:00:00.000Z',
        updatedAt: '2026-11-21T04:00:03.000Z',
      },
    ],
    nextCursor: null,
  }),
};

export async function sendTopUps(parts: AccountParts, context: RequestContext): Promise<void> {
  const { accountId } = context.caller;
  const wallet = walletOfAccount(accountId);
  const store = parts.stores.store.readerFor(accountId);
  const query = readQuery(context, TopUpsQuery);
  const { rows, nextCursor } = await timePage(query, 'paymentId', async (wanted) =>
    wallet === undefined ? [] : await listTopUps(store, { wallet }, wanted),
  );
  const body: TopUpsResponse = { object: 'list', data: rows.map(topUpItem), nextCursor };
  await context.json(200, body);
}

export function topUpItem(one: TopUpDetail): TopUpItem {
  const { network, transaction } = one;
  return {
    paymentId: one.paymentId,
    network,
    amountUsd: toUsdNumber(one.amountNano),
    state: one.state,
    transaction: transaction ?? null,
    explorerUrl: transaction === undefined ? null : explorerUrl(network, transaction),
    failure: one.failure ?? null,
    createdAt: isoTime(one.createdMs),
    updatedAt: isoTime(one.updatedMs),
  };
}
