/** What people type and read on the command line: amounts, dates, lists, and words of a set. */
import { DAY_MS, HOUR_MS, MINUTE_MS, isoTime } from '../core/clock.ts';
import { type Nano, formatUsd, usdToNano } from '../core/money.ts';
import { type Invocation, UsageError } from './command.ts';

const AMOUNT = /^\d+(?:\.\d{1,9})?$/;
const SPAN = /^(\d{1,6})(m|h|d)$/;
const DATE = /^\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:\d{2}))?$/;
const SPAN_MS: Readonly<Record<string, number>> = { m: MINUTE_MS, h: HOUR_MS, d: DAY_MS };

/** The text of an option, or `undefined` when it was not given. */
export function textOption({ values }: Invocation, name: string): string | undefined {
  const value = values[name];
  return typeof value === 'string' ? value : undefined;
}

export function isGiven({ values }: Invocation, name: string): boolean {
  return values[name] === true;
}

/** An amount of zero or more with at most 9 decimals. */
export function amountNano(text: string, what: string): Nano {
  if (AMOUNT.test(text)) return usdToNano(text);
  throw new UsageError(`${what} must be a decimal amount such as 25 or 0.50, not "${text}"`);
}

export function amountOption(invocation: Invocation, name: string): Nano | undefined {
  const text = textOption(invocation, name);
  return text === undefined ? undefined : amountNano(text, `--${name}`);
}

/** One of a set of words, in any case; the set's spelling comes back. */
export function wordOption<Word extends string>(
  invocation: Invocation,
  name: string,
  words: readonly Word[],
): Word | undefined {
  const text = textOption(invocation, name);
  if (text === undefined) return undefined;
  const found = words.find((word) => word.toLowerCase() === text.toLowerCase());
  if (found !== undefined) return found;
  throw new UsageError(`--${name} must be one of ${words.join(', ')}, not "${text}"`);
}

/** A date, a time with its zone, or a span from now such as `12h` or `30d`; always in the future. */
export function futureMs(text: string, nowMs: number): number {
  const [, count, unit = ''] = SPAN.exec(text) ?? [];
  const span = SPAN_MS[unit];
  const atMs = span === undefined ? dateMs(text) : nowMs + Number(count) * span;
  if (atMs > nowMs) return atMs;
  throw new UsageError(`--expires must be in the future; "${text}" is ${isoTime(atMs)}`);
}

/** A date, a time with its zone, or a span back from now such as `12h` or `30d`. */
export function pastMs(text: string, nowMs: number): number {
  const [, count, unit = ''] = SPAN.exec(text) ?? [];
  const span = SPAN_MS[unit];
  const atMs =
    span === undefined ? Date.parse(DATE.test(text) ? text : '') : nowMs - Number(count) * span;
  if (atMs <= nowMs) return atMs;
  throw new UsageError(
    `--since must be a span such as 12h or 30d, or a date that has passed such as 2027-01-31 (00:00 UTC), not "${text}"`,
  );
}

function dateMs(text: string): number {
  const parsed = DATE.test(text) ? Date.parse(text) : Number.NaN;
  if (Number.isFinite(parsed)) return parsed;
  throw new UsageError(
    `--expires must be a span such as 12h or 30d, or a date such as 2027-01-31 (00:00 UTC), not "${text}"`,
  );
}

/** `a, b` -> `['a', 'b']`; at least one item. */
export function listOption(invocation: Invocation, name: string): readonly string[] | undefined {
  const text = textOption(invocation, name);
  if (text === undefined) return undefined;
  const items = text.split(',').map((item) => item.trim());
  if (items.every((item) => item !== '')) return [...new Set(items)];
  throw new UsageError(`--${name} must be names with commas between them, such as a,b`);
}

/** Decimal text without the zeros that say nothing, but with cents: `5.00`, `0.000012`. */
export function shownUsd(amount: bigint): string {
  return formatUsd(amount).replace(/(\.\d\d\d*?)0+$/, '$1');
}

/** `2026-11-21 05:12` UTC, or a dash. */
export function shownTime(ms: number | undefined): string {
  return ms === undefined ? '-' : isoTime(ms).slice(0, 16).replace('T', ' ');
}

/** A time for `--json`. */
export function jsonTime(ms: number | undefined): string | null {
  return ms === undefined ? null : isoTime(ms);
}

/** An amount for `--json`: decimal text, so that no reader rounds it. */
export function jsonUsd(amount: bigint | undefined): string | null {
  return amount === undefined ? null : shownUsd(amount);
}
