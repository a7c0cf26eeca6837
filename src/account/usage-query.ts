/** Shared parts of the usage routes: filters, sums and CSV. */
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { UsageGroup, UsageSums } from '../billing/ledger/ledger.ts';
import { dayOf, dayStartMs, isoTime } from '../core/clock.ts';
import type { Fault } from '../core/faults.ts';
import { formatUsd, toUsdNumber } from '../core/money.ts';
import type { RequestContext } from '../http/request-context.ts';
import type { Caller } from '../identity/identity.ts';
import { refuseIssues } from '../json/validation.ts';
import type { UsageResponse } from './usage-schema.ts';

const USUAL_DAYS = 30;
const MAX_DAYS = 366;

export interface DayQuery {
  readonly from?: string | undefined;
  readonly to?: string | undefined;
}

/** The days of a query, both inclusive. Throws 400. */
export function rangeOf(query: DayQuery, nowMs: number): { fromDay: number; toDay: number } {
  const toDay = query.to === undefined ? dayOf(nowMs) : dayOf(Date.parse(query.to));
  const fromDay = query.from === undefined ? toDay - USUAL_DAYS + 1 : dayOf(Date.parse(query.from));
  if (fromDay > toDay) throw badQuery('from', 'Must not be after "to"');
  if (toDay - fromDay >= MAX_DAYS) {
    throw badQuery('from', `Must be at most ${MAX_DAYS} days before "to"`);
  }
  return { fromDay, toDay };
}

export function badQuery(name: string, message: string): Fault {
  return refuseIssues([{ code: 'custom', path: [name], message }]);
}

/** The key whose requests a caller may see: any key for a wallet or an ADMIN key, else its own. */
export function visibleKey(caller: Caller, requested: string | undefined): string | undefined {
  return caller.kind === 'wallet' || caller.keyKind !== 'INFERENCE' ? requested : caller.keyId;
}

export function wantsCsv(
  context: RequestContext,
  { format }: { readonly format?: 'json' | 'csv' | undefined },
): boolean {
  if (format !== undefined) return format === 'csv';
  return /(?:^|[,\s])text\/csv\b/i.test(context.header('accept') ?? '');
}

/** Quotes by RFC 4180; an apostrophe keeps spreadsheets from running a formula. */
export function csvField(text: string): string {
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** Sends lines as a file while they are read, so that a file of any length takes little memory. */
export async function sendCsvStream(
  context: RequestContext,
  name: string,
  lines: AsyncIterable<string>,
): Promise<void> {
  context.set('content-disposition', `attachment; filename="${name}"`);
  try {
    await pipeline(Readable.from(lines), context.pipe(200, 'text/csv; charset=utf-8'));
  } catch (error) {
    // The client has disconnected.
    if (!context.isGone) throw error;
  }
}

/** A download is built in memory. */
export const MAX_CSV_ROWS = 100_000;

/** Sends rows as a file `<name>-<first day>-<last day>.csv`. Throws 400 for too many of them. */
export async function sendCsv<Row>(
  context: RequestContext,
  name: string,
  { fromDay, toDay }: { readonly fromDay: number; readonly toDay: number },
  head: string,
  rows: readonly Row[],
  fieldsOf: (row: Row) => readonly (string | bigint)[],
): Promise<void> {
  if (rows.length > MAX_CSV_ROWS) {
    throw badQuery(
      'from',
      `The download must have at most ${MAX_CSV_ROWS} rows; request fewer days`,
    );
  }
  const lines = rows.map((row) => fieldsOf(row).join(','));
  const file = `${name}-${dayText(fromDay)}-${dayText(toDay)}.csv`;
  context.set('content-disposition', `attachment; filename="${file}"`);
  const text = `${[head, ...lines].join('\r\n')}\r\n`;
  await context.bytes(200, 'text/csv; charset=utf-8', Buffer.from(text));
}

type SumsRow = UsageSums | UsageGroup;

export function csvSums(row: SumsRow): (string | bigint)[] {
  const { requests, prompt_tokens, completion_tokens, usd_nano, diem_nano } = row;
  return [requests, prompt_tokens, completion_tokens, formatUsd(usd_nano), formatUsd(diem_nano)];
}

export function sumsOf(row: SumsRow): UsageResponse['totals'] {
  return {
    requests: Number(row.requests),
    errors: Number(row.errors),
    promptTokens: Number(row.prompt_tokens),
    completionTokens: Number(row.completion_tokens),
    cost: { usd: toUsdNumber(row.usd_nano), diem: toUsdNumber(row.diem_nano) },
  };
}

export function headOf({ fromDay, toDay }: { readonly fromDay: number; readonly toDay: number }) {
  return { object: 'list' as const, from: dayText(fromDay), to: dayText(toDay) };
}

export function dayText(day: number): string {
  return isoTime(dayStartMs(day)).slice(0, 10);
}
