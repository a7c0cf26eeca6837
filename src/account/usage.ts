/**
 * `GET /usage`: what was used, by day, model and key, as JSON pages or one CSV download; and
 * `GET /usage/{request id}`: the receipt of one request. Everybody sees their own only: a wallet
 * and an ADMIN key their account, another key itself.
 */
import {
  type UsageFilter,
  type UsageTotals,
  receiptOf,
  usageDays,
  usageTotals,
} from '../billing/ledger/ledger.ts';
import { dayOf, dayStartMs, isoTime } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { formatUsd, toUsdNumber } from '../core/money.ts';
import { offsetOf, pageHeaders, readQuery } from '../http/read-request.ts';
import type { RequestContext } from '../http/request-context.ts';
import { type Route, get } from '../http/route.ts';
import type { Caller } from '../identity/identity.ts';
import { refuseIssues } from '../json/validation.ts';
import type { AccountParts } from './account-parts.ts';
import {
  CSV_HEAD,
  RECEIPT,
  type ReceiptAnswer,
  USAGE,
  type UsageAnswer,
  UsageQuery,
} from './usage-schema.ts';

const USUAL_DAYS = 30;
const MAX_DAYS = 366;
/** A download is made in memory; a year of a busy account fits in it many times. */
const MAX_CSV_ROWS = 100_000;

export function usageRoutes(parts: AccountParts): Route[] {
  return [
    get('/usage', 'key-or-wallet', USAGE, (context) => answerUsage(parts, context)),
    get('/usage/:id', 'key-or-wallet', RECEIPT, (context) => answerReceipt(parts, context)),
  ];
}

async function answerUsage(parts: AccountParts, context: RequestContext): Promise<void> {
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
    usageDays(parts.stores.store, filter, { limit: query.limit, offset: offsetOf(query) }),
    usageTotals(parts.stores.store, filter),
  ]);
  const body: UsageAnswer = {
    object: 'list',
    from: dayText(range.fromDay),
    to: dayText(range.toDay),
    totals: sumsOf(totals),
    data: rows.map((row) => ({
      date: dayText(Number(row.day)),
      model: row.model_id,
      apiKeyId: row.key_id === '' ? null : row.key_id,
      ...sumsOf(row),
    })),
  };
  context.setAll(pageHeaders(query, Number(totals.rows)));
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
  parts: AccountParts,
  context: RequestContext,
  filter: UsageFilter,
): Promise<void> {
  const rows = await usageDays(parts.stores.store, filter, { limit: MAX_CSV_ROWS + 1, offset: 0 });
  if (rows.length > MAX_CSV_ROWS) {
    throw badRange(`The download has more than ${MAX_CSV_ROWS} rows; ask for fewer days`);
  }
  const lines = rows.map((row) =>
    [
      dayText(Number(row.day)),
      csvField(row.model_id),
      csvField(row.key_id),
      row.requests,
      row.prompt_tokens,
      row.completion_tokens,
      formatUsd(row.usd_nano),
      formatUsd(row.diem_nano),
    ].join(','),
  );
  const name = `usage-${dayText(filter.fromDay)}-${dayText(filter.toDay)}.csv`;
  context.set('content-disposition', `attachment; filename="${name}"`);
  const text = `${[CSV_HEAD, ...lines].join('\r\n')}\r\n`;
  await context.bytes(200, 'text/csv; charset=utf-8', Buffer.from(text));
}

/** RFC 4180 quoting; a leading formula sign is put in quotes as text for spreadsheets. */
function csvField(text: string): string {
  const harmless = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(harmless) ? `"${harmless.replaceAll('"', '""')}"` : harmless;
}

async function answerReceipt(parts: AccountParts, context: RequestContext): Promise<void> {
  const { caller } = context;
  const id = (context.parameters['id'] ?? '').replace(/^chatcmpl-/, '');
  const receipt = await receiptOf(parts.stores.store, caller.accountId, id);
  const owned = visibleKey(caller, undefined);
  if (receipt === undefined || (owned !== undefined && receipt.key_id !== owned)) {
    throw new Fault('REQUEST_ID_NOT_FOUND', {
      message: 'No such request: give the x-request-id of an answer that you were charged for',
    });
  }
  const body: ReceiptAnswer = {
    object: 'receipt',
    requestId: receipt.request_id,
    createdAt: isoTime(Number(receipt.created_ms)),
    apiKeyId: receipt.key_id === '' ? null : receipt.key_id,
    kind: receipt.kind,
    model: receipt.model_id,
    status: receipt.status,
    router: receipt.replica,
    attempts: Number(receipt.attempts),
    tokens: {
      prompt: Number(receipt.prompt_tokens),
      completion: Number(receipt.completion_tokens),
      cached: Number(receipt.cached_tokens),
      cacheWrite: Number(receipt.cache_write_tokens),
      reasoning: Number(receipt.reasoning_tokens),
      countedBy: receipt.counted_by,
    },
    priceVersion: receipt.price_version,
    cost: { usd: toUsdNumber(receipt.usd_nano), diem: toUsdNumber(receipt.diem_nano) },
    latencyMs: Number(receipt.latency_ms),
    firstTokenMs: receipt.first_token_ms === null ? null : Number(receipt.first_token_ms),
    extras: JSON.parse(receipt.extras ?? '{}') as Record<string, unknown>, // written by the ledger
  };
  await context.json(200, body);
}

function sumsOf(row: Omit<UsageTotals, 'rows'>): UsageAnswer['totals'] {
  return {
    requests: Number(row.requests),
    promptTokens: Number(row.prompt_tokens),
    completionTokens: Number(row.completion_tokens),
    cost: { usd: toUsdNumber(row.usd_nano), diem: toUsdNumber(row.diem_nano) },
  };
}

function dayText(day: number): string {
  return isoTime(dayStartMs(day)).slice(0, 10);
}
