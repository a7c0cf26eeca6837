/**
 * `GET /usage/requests`: the requests of an account, as pages or as one download. `GET /usage/days`: the
 * sums by day and model.
 */
import {
  type ReceiptFilter,
  type ReceiptPage,
  type ReceiptPageOptions,
  type ReceiptPlace,
  type UsageRow,
  countReceipts,
  receiptOf,
  receiptsOf,
  usageGroups,
  usageTotals,
} from '../billing/ledger/ledger.ts';
import { isoTime } from '../core/clock.ts';
import { formatUsd } from '../core/money.ts';
import { decodeTimeCursor, encodeCursor } from '../http/cursor.ts';
import { readQuery } from '../http/read-request.ts';
import type { RequestContext } from '../http/request-context.ts';
import { type Route, get } from '../http/route.ts';
import { type AccountParts, requestIdOf } from './account-parts.ts';
import {
  ACTIVITY,
  ACTIVITY_CSV_HEAD,
  type ActivityResponse,
  ActivityQuery,
  DAYS,
  type DaysResponse,
  DaysQuery,
} from './activity-schema.ts';
import { receiptBody } from './receipts.ts';
import {
  badQuery,
  csvField,
  dayText,
  headOf,
  rangeOf,
  sendCsvStream,
  sumsOf,
  visibleKey,
  wantsCsv,
} from './usage-query.ts';

const PAGE_OF_DOWNLOAD = 1_000;
/** A year of a busy account; larger ranges are downloaded in parts. */
const MAX_DOWNLOAD_ROWS = 1_000_000;
/** More rows than a chart can show. */
const MAX_DAY_ROWS = 20_000;

export interface Scope {
  readonly accountId: string;
  readonly keyId: string | undefined;
}

export function activityRoutes(parts: AccountParts): Route[] {
  const scopeOf = ({ caller, query }: RequestContext): Scope => ({
    accountId: caller.accountId,
    keyId: visibleKey(caller, query.get('key') ?? undefined),
  });
  return [
    get('/usage/requests', 'key-or-wallet', ACTIVITY, (context) =>
      sendActivity(parts, context, scopeOf(context)),
    ),
    get('/usage/days', 'key-or-wallet', DAYS, (context) =>
      sendDays(parts, context, scopeOf(context)),
    ),
  ];
}

export async function sendActivity(
  parts: AccountParts,
  context: RequestContext,
  { accountId, keyId }: Scope,
): Promise<void> {
  const query = readQuery(context, ActivityQuery);
  const range = rangeOf(query, parts.clock.nowMs());
  const { model: modelId, kind, status, limit } = query;
  const filter: ReceiptFilter = { accountId, ...range, keyId, modelId, kind, status };
  const after = decodeTimeCursor(query.cursor, 'requestId');
  const wanted = { filter, requestId: query.requestId };
  if (wantsCsv(context, query)) return download(parts, context, wanted);
  const page = await pageOf(parts, wanted, { limit, after });
  const body: ActivityResponse = {
    ...headOf(range),
    data: page.rows.map(receiptBody),
    nextCursor:
      page.next === undefined ? null : encodeCursor([page.next.createdMs, page.next.requestId]),
  };
  await context.json(200, body);
}

interface Wanted {
  readonly filter: ReceiptFilter;
  readonly requestId: string | undefined;
}

/** A page of the matching requests, or the one request with an id. */
async function pageOf(
  parts: AccountParts,
  { filter, requestId }: Wanted,
  part: ReceiptPageOptions,
): Promise<ReceiptPage> {
  if (requestId !== undefined) {
    return { rows: await oneReceipt(parts, filter, requestId), next: undefined };
  }
  return receiptsOf(parts.stores.store.readerFor(filter.accountId), filter, part);
}

/** A request by its id, of any day, if it matches the other filters. */
async function oneReceipt(
  { stores }: AccountParts,
  filter: ReceiptFilter,
  requestId: string,
): Promise<UsageRow[]> {
  const row = await receiptOf(stores.store, filter.accountId, requestIdOf(requestId));
  if (row === undefined) return [];
  const filters = [
    [filter.keyId, row.key_id],
    [filter.modelId, row.model_id],
    [filter.kind, row.kind],
    [filter.status, row.status],
  ];
  return filters.every(([wanted, is]) => wanted === undefined || wanted === is) ? [row] : [];
}

async function download(
  parts: AccountParts,
  context: RequestContext,
  wanted: Wanted,
): Promise<void> {
  const { filter, requestId } = wanted;
  const store = parts.stores.store.readerFor(filter.accountId);
  if (requestId === undefined && (await countReceipts(store, filter)) > MAX_DOWNLOAD_ROWS) {
    const most = MAX_DOWNLOAD_ROWS.toLocaleString('en');
    throw badQuery('from', `The range must have at most ${most} requests; request fewer days`);
  }
  async function* lines(): AsyncGenerator<string> {
    yield `${ACTIVITY_CSV_HEAD}\r\n`;
    let after: ReceiptPlace | undefined;
    do {
      const { rows, next } = await pageOf(parts, wanted, { limit: PAGE_OF_DOWNLOAD, after });
      if (rows.length > 0) yield rows.map((row) => `${csvFields(row).join(',')}\r\n`).join('');
      after = next;
    } while (after !== undefined);
  }
  const name = `requests-${dayText(filter.fromDay)}-${dayText(filter.toDay)}.csv`;
  await sendCsvStream(context, name, lines());
}

export function csvFields(row: UsageRow): readonly unknown[] {
  return [
    row.request_id,
    isoTime(Number(row.created_ms)),
    csvField(row.key_id),
    row.kind,
    csvField(row.model_id),
    row.status,
    csvField(row.replica ?? ''),
    row.attempts,
    row.prompt_tokens,
    row.completion_tokens,
    row.cached_tokens,
    row.cache_write_tokens,
    row.reasoning_tokens,
    row.counted_by,
    csvField(row.price_version),
    formatUsd(row.usd_nano),
    formatUsd(row.diem_nano),
    row.reserved_nano === null ? '' : formatUsd(row.reserved_nano),
    row.latency_ms,
    row.first_token_ms ?? '',
    csvField(row.extras ?? ''),
    csvField(row.metadata ?? ''),
  ];
}

export async function sendDays(
  parts: AccountParts,
  context: RequestContext,
  { accountId, keyId }: Scope,
): Promise<void> {
  const query = readQuery(context, DaysQuery);
  const range = rangeOf(query, parts.clock.nowMs());
  const filter = { accountId, ...range, keyId, modelId: query.model };
  const store = parts.stores.store.readerFor(accountId);
  const [rows, totals] = await Promise.all([
    usageGroups(store, filter, ['day', 'model_id'], MAX_DAY_ROWS),
    usageTotals(store, filter),
  ]);
  const body: DaysResponse = {
    ...headOf(range),
    totals: sumsOf(totals),
    data: rows.map((row) => ({
      date: dayText(Number(row.day)),
      model: row.model_id ?? '',
      ...sumsOf(row),
    })),
  };
  await context.json(200, body);
}
