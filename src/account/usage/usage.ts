/**
 * `GET /usage`: what was used, by day, model and key, as JSON pages or one CSV download; and
 * `GET /usage/{request id}`: the receipt of one request. Everybody sees their own only: a wallet
 * and an ADMIN key their account, another key itself.
 */
import type { UsageReports, UsageRow } from '../usage-reports.ts';
import type { Caller } from '../../identity/identity.ts';
import { type Clock, dayOf, dayStartMs, isoTime } from '../../core/clock.ts';
import { Fault } from '../../core/faults.ts';
import { formatUsd, toUsdNumber } from '../../core/money.ts';
import { refuseIssues } from '../../json/validation.ts';
import type { RequestContext } from '../../http/request-context.ts';
import { offsetOf, pageHeaders, readQuery } from '../../http/read-request.ts';
import type { Route } from '../../http/route.ts';
import { RECEIPT, USAGE } from './describe.ts';
import {
  CSV_COLUMNS,
  type ReceiptAnswer,
  type UsageAnswer,
  UsageQuery,
  type UsageRowItem,
} from './schema.ts';

export interface UsageRouteParts {
  readonly reports: UsageReports;
  readonly clock: Clock;
}

const USUAL_DAYS = 30;
const MAX_DAYS = 366;
/** A download is made in memory; a year of a busy account fits in it many times. */
const MAX_CSV_ROWS = 100_000;

export function usageRoutes(parts: UsageRouteParts): Route[] {
  return [
    {
      method: 'GET',
      path: '/usage',
      auth: 'key-or-wallet',
      describe: USAGE,
      handle: (context) => answerUsage(parts, context),
    },
    {
      method: 'GET',
      path: '/usage/:id',
      auth: 'key-or-wallet',
      describe: RECEIPT,
      handle: (context) => answerReceipt(parts, context),
    },
  ];
}

async function answerUsage(parts: UsageRouteParts, context: RequestContext): Promise<void> {
  const query = readQuery(context, UsageQuery);
  const range = rangeOf(query, dayOf(parts.clock.nowMs()));
  const filter = {
    accountId: context.caller.accountId,
    ...range,
    keyId: visibleKey(context.caller, query.key),
    modelId: query.model,
  };
  if (wantsCsv(context, query)) return answerCsv(parts, context, filter);
  const [rows, totals] = await Promise.all([
    parts.reports.days(filter, { limit: query.limit, offset: offsetOf(query) }),
    parts.reports.totals(filter),
  ]);
  const body: UsageAnswer = {
    object: 'list',
    from: dayText(range.fromDay),
    to: dayText(range.toDay),
    totals: sumsOf(totals),
    data: rows.map(rowItem),
  };
  context.setAll(pageHeaders(query, totals.rows));
  await context.json(200, body);
}

function rangeOf(query: UsageQuery, today: number): { fromDay: number; toDay: number } {
  const toDay = query.to === undefined ? today : dayOf(Date.parse(query.to));
  const fromDay = query.from === undefined ? toDay - USUAL_DAYS + 1 : dayOf(Date.parse(query.from));
  if (fromDay > toDay) throw badRange('Must not be after "to"');
  if (toDay - fromDay >= MAX_DAYS) throw badRange(`Must be at most ${MAX_DAYS} days before "to"`);
  return { fromDay, toDay };
}

function badRange(message: string): Fault {
  return refuseIssues([{ code: 'custom', path: ['from'], message }]);
}

/** A key that is not an ADMIN key asks about itself, whatever it asks. */
function visibleKey(caller: Caller, asked: string | undefined): string | undefined {
  return caller.kind === 'wallet' || caller.keyKind === 'ADMIN' ? asked : caller.keyId;
}

function wantsCsv(context: RequestContext, query: UsageQuery): boolean {
  if (query.format !== undefined) return query.format === 'csv';
  return /(?:^|,)\s*text\/csv\b/i.test(context.header('accept') ?? '');
}

async function answerCsv(
  parts: UsageRouteParts,
  context: RequestContext,
  filter: Parameters<UsageReports['days']>[0],
): Promise<void> {
  const rows = await parts.reports.days(filter, { limit: MAX_CSV_ROWS + 1, offset: 0 });
  if (rows.length > MAX_CSV_ROWS) {
    throw badRange(`The download has more than ${MAX_CSV_ROWS} rows; ask for fewer days`);
  }
  const lines = [CSV_COLUMNS.join(','), ...rows.map(csvLine)];
  const name = `usage-${dayText(filter.fromDay)}-${dayText(filter.toDay)}.csv`;
  context.set('content-disposition', `attachment; filename="${name}"`);
  await context.bytes(200, 'text/csv; charset=utf-8', Buffer.from(`${lines.join('\r\n')}\r\n`));
}

function csvLine(row: UsageRow): string {
  return [
    dayText(row.day),
    csvField(row.modelId),
    csvField(row.keyId),
    row.requests,
    row.promptTokens,
    row.completionTokens,
    formatUsd(row.usdNano),
    formatUsd(row.diemNano),
  ].join(',');
}

/** RFC 4180 quoting; a leading formula sign is put in quotes as text for spreadsheets. */
function csvField(text: string): string {
  const harmless = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(harmless) ? `"${harmless.replaceAll('"', '""')}"` : harmless;
}

async function answerReceipt(parts: UsageRouteParts, context: RequestContext): Promise<void> {
  const { caller } = context;
  const id = (context.parameters['id'] ?? '').replace(/^chatcmpl-/, '');
  const receipt = await parts.reports.receipt(caller.accountId, id);
  const owned = visibleKey(caller, undefined);
  if (receipt === undefined || (owned !== undefined && receipt.keyId !== owned)) {
    throw new Fault('REQUEST_ID_NOT_FOUND', {
      message: 'No such request: give the x-request-id of an answer that you were charged for',
    });
  }
  const body: ReceiptAnswer = {
    object: 'receipt',
    requestId: receipt.requestId,
    createdAt: isoTime(receipt.createdMs),
    apiKeyId: receipt.keyId === '' ? null : receipt.keyId,
    kind: receipt.kind,
    model: receipt.modelId,
    status: receipt.status,
    router: receipt.replica,
    attempts: receipt.attempts,
    tokens: { ...receipt.tokens, countedBy: receipt.countedBy },
    priceVersion: receipt.priceVersion,
    cost: { usd: toUsdNumber(receipt.usdNano), diem: toUsdNumber(receipt.diemNano) },
    latencyMs: receipt.latencyMs,
    firstTokenMs: receipt.firstTokenMs,
    extras: { ...receipt.extras },
  };
  await context.json(200, body);
}

function rowItem(row: UsageRow): UsageRowItem {
  return {
    date: dayText(row.day),
    model: row.modelId,
    apiKeyId: row.keyId === '' ? null : row.keyId,
    ...sumsOf(row),
  };
}

function sumsOf(sums: Omit<UsageRow, 'day' | 'modelId' | 'keyId'>): UsageAnswer['totals'] {
  return {
    requests: sums.requests,
    promptTokens: sums.promptTokens,
    completionTokens: sums.completionTokens,
    cost: { usd: toUsdNumber(sums.usdNano), diem: toUsdNumber(sums.diemNano) },
  };
}

function dayText(day: number): string {
  return isoTime(dayStartMs(day)).slice(0, 10);
}
