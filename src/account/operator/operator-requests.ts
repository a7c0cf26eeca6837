/** `/admin/requests` and `/admin/failures`: the requests of all accounts, and one of them explained. */
import * as z from 'zod';
import {
  type ReceiptConditions,
  type UsageRow,
  allReceipts,
  countReceipts,
  receiptsOf,
} from '../../billing/ledger/ledger.ts';
import { dayStartMs, isoTime } from '../../core/clock.ts';
import { Fault } from '../../core/faults.ts';
import { formatUsd, usdToNano } from '../../core/money.ts';
import { decodeCursor, encodeCursor } from '../../http/cursor.ts';
import { readQuery } from '../../http/read-request.ts';
import type { RequestContext } from '../../http/request-context.ts';
import { type Route, get } from '../../http/route.ts';
import { accountIdOf, accountNames, accountOfKey } from '../../identity/identity.ts';
import { type FailureRecord, failuresOf } from '../../observability/failure-log.ts';
import type { AccountParts } from '../account-parts.ts';
import { csvFields } from '../activity.ts';
import { receiptBody } from '../receipts.ts';
import {
  badQuery,
  csvField,
  dayText,
  headOf,
  rangeOf,
  sendCsvStream,
  wantsCsv,
} from '../usage-query.ts';
import { explainRequest } from './explain-request.ts';
import {
  EXPLAIN_REQUEST,
  type ExplainedResponse,
  FailuresQuery,
  type FailuresResponse,
  OPERATOR_FAILURES,
  OPERATOR_REQUESTS,
  REQUESTS_CSV_HEAD,
  RequestsQuery,
  type RequestsResponse,
} from './operator-requests-schema.ts';

const PAGE_OF_DOWNLOAD = 1_000;
const MAX_DOWNLOAD_ROWS = 1_000_000;
/** The page begins below this id, of a request that began at this time. */
const Place = z.tuple([z.string(), z.number().int()]);

export function operatorRequestRoutes(parts: AccountParts): Route[] {
  return [
    get('/admin/requests', 'operator', OPERATOR_REQUESTS, (context) =>
      sendRequests(parts, context),
    ),
    get('/admin/requests/:id', 'operator', EXPLAIN_REQUEST, async (context) => {
      const data = await explainRequest(parts, context.parameters['id'] ?? '');
      if (data === undefined) throw new Fault('REQUEST_ID_NOT_FOUND');
      await context.json(200, { data } satisfies ExplainedResponse);
    }),
    get('/admin/failures', 'operator', OPERATOR_FAILURES, (context) =>
      sendFailures(parts, context),
    ),
  ];
}

interface Wanted extends ReceiptConditions {
  readonly fromDay: number;
  readonly toDay: number;
  readonly accountId: string | undefined;
}

type Place = z.infer<typeof Place>;

async function sendRequests(parts: AccountParts, context: RequestContext): Promise<void> {
  const query = readQuery(context, RequestsQuery);
  const range = rangeOf(query, parts.clock.nowMs());
  const { account, key: keyId, model: modelId, kind, status, engine, minUsd, tag } = query;
  const wanted: Wanted = {
    ...range,
    accountId:
      keyId === undefined || account !== undefined
        ? await idOfAccount(parts, account)
        : await accountOfKey(parts.stores.store, keyId),
    keyId,
    modelId,
    kind,
    status,
    engine,
    minNano: minUsd === undefined ? undefined : usdToNano(minUsd),
    tagPair: tag === undefined ? undefined : [tag, query.tagValue ?? ''],
  };
  if (wantsCsv(context, query)) return download(parts, context, wanted);
  const { rows, next } = await pageOf(
    parts,
    wanted,
    query.limit,
    decodeCursor(query.cursor, Place),
  );
  const names = await accountNames(
    parts.stores.identity,
    rows.map(({ account_id: id }) => id),
  );
  const body: RequestsResponse = {
    ...headOf(range),
    data: rows.map((row) => ({
      ...receiptBody(row),
      accountId: row.account_id,
      accountName: names.get(row.account_id) ?? '',
      supplierUsd: row.cost_nano === null ? null : formatUsd(row.cost_nano),
    })),
    nextCursor: next === undefined ? null : encodeCursor(next),
  };
  await context.json(200, body);
}

async function pageOf(
  { stores, clock }: AccountParts,
  { accountId, ...wanted }: Wanted,
  limit: number,
  place: Place | undefined,
): Promise<{ readonly rows: readonly UsageRow[]; readonly next: Place | undefined }> {
  if (accountId === undefined) {
    const filter = { ...wanted, nowMs: clock.nowMs() };
    const part = { limit, below: place?.[0] };
    const { rows, next } = await allReceipts(stores.store, filter, part);
    return { rows, next: next === undefined ? undefined : [next, 0] };
  }
  const store = stores.store.readerFor('');
  const after = place && { requestId: place[0], createdMs: place[1] };
  const { rows, next } = await receiptsOf(store, { ...wanted, accountId }, { limit, after });
  return { rows, next: next && [next.requestId, next.createdMs] };
}

async function download(
  parts: AccountParts,
  context: RequestContext,
  wanted: Wanted,
): Promise<void> {
  const { fromDay, toDay, accountId, keyId, modelId } = wanted;
  const counted = { fromDay, toDay, accountId, keyId, modelId };
  if ((await countReceipts(parts.stores.store.readerFor(''), counted)) > MAX_DOWNLOAD_ROWS) {
    const most = MAX_DOWNLOAD_ROWS.toLocaleString('en');
    throw badQuery('from', `The range must have at most ${most} requests; request fewer days`);
  }
  async function* lines(): AsyncGenerator<string> {
    yield `${REQUESTS_CSV_HEAD}\r\n`;
    let place: Place | undefined;
    do {
      const { rows, next } = await pageOf(parts, wanted, PAGE_OF_DOWNLOAD, place);
      if (rows.length > 0) {
        yield rows.map(operatorLine).join('');
      }
      place = next;
    } while (place !== undefined);
  }
  const name = `all-requests-${dayText(fromDay)}-${dayText(toDay)}.csv`;
  await sendCsvStream(context, name, lines());
}

function operatorLine(row: UsageRow): string {
  const cost = row.cost_nano === null ? '' : formatUsd(row.cost_nano);
  return `${[csvField(row.account_id), ...csvFields(row), cost].join(',')}\r\n`;
}

async function sendFailures(parts: AccountParts, context: RequestContext): Promise<void> {
  const { limit, cursor, account, model, engine, code, ...days } = readQuery(
    context,
    FailuresQuery,
  );
  const range = rangeOf(days, parts.clock.nowMs());
  const [below] = decodeCursor(cursor, Place) ?? [];
  const filter = {
    fromMs: dayStartMs(range.fromDay),
    untilMs: dayStartMs(range.toDay + 1),
    accountId: await idOfAccount(parts, account),
    modelId: model,
    engine,
    code,
  };
  // Lists the request that the operator has just seen failing.
  await parts.failureLog.flush();
  const store = parts.stores.store.readerFor('');
  const { rows, next } = await failuresOf(store, filter, { limit, below });
  const names = await accountNames(
    parts.stores.identity,
    rows.map(({ accountId }) => accountId),
  );
  const body: FailuresResponse = {
    ...headOf(range),
    data: rows.map((row) => failureItem(row, names.get(row.accountId) ?? '')),
    nextCursor: next === undefined ? null : encodeCursor([next, 0]),
  };
  await context.json(200, body);
}

function failureItem(record: FailureRecord, accountName: string): FailuresResponse['data'][0] {
  const { requestId, accountId, route, modelId, engine, status, code, tookMs, facts } = record;
  return {
    requestId,
    createdAt: isoTime(record.createdMs),
    accountId: accountId === '' ? null : accountId,
    accountName,
    route,
    model: modelId ?? null,
    engine: engine ?? null,
    status,
    code: code === '' ? null : code,
    message: facts.message === '' ? null : facts.message,
    tries: facts.tries.length,
    tookMs,
  };
}

/** The id of the account that a filter names by id, address or name. */
async function idOfAccount(
  { stores: { identity } }: AccountParts,
  wanted: string | undefined,
): Promise<string | undefined> {
  if (wanted === undefined) return undefined;
  const id = accountIdOf(wanted);
  if ((await identity.findAccount(id)) !== undefined) return id;
  const [named] = await identity.accountsNamed(wanted, 1);
  return named?.id ?? id;
}
