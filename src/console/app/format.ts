/**
 * Formats numbers, money and times. All amounts of a column have the same number of decimals. Times are
 * in the time zone of the browser.
 */

/** Amounts are exact to a nano-USD. */
const NANO_DECIMALS = 9;
const LEAST_DECIMALS = 2;
/** Most decimals of a column; the tooltip and the CSV have the exact amount. */
const MOST_DECIMALS = 6;
/** From here, an axis has no space for all digits. */
const COMPACT_USD = 10_000;

export type UsdAmount = number | string;

/** The decimals that an amount has, at most nine. */
function ownDecimals(value: UsdAmount): number {
  const [, fraction = ''] = Number(value).toFixed(NANO_DECIMALS).split('.');
  return fraction.replace(/0+$/, '').length;
}

/** The decimals that show each amount without rounding. */
export function exactDecimals(values: readonly (UsdAmount | null | undefined)[]): number {
  return Math.max(LEAST_DECIMALS, ...values.map((value) => ownDecimals(value ?? 0)));
}

/**
 * The decimals for all amounts of a column: two digits of the smallest amount, and not more than the
 * amounts have. `null` and `undefined` are cells without an amount.
 */
export function usdDecimals(values: readonly (UsdAmount | null | undefined)[]): number {
  const sizes = values.map((value) => Math.abs(Number(value ?? 0))).filter((size) => size > 0);
  if (sizes.length === 0) return LEAST_DECIMALS;
  const digits = 1 - Math.floor(Math.log10(Math.min(...sizes)));
  return Math.max(LEAST_DECIMALS, Math.min(digits, MOST_DECIMALS, exactDecimals(values)));
}

/** `$1,234.50` or `−$1,234.50`; without `decimals` exact. */
export function usdText(value: UsdAmount, decimals = exactDecimals([value])): string {
  const number = Number(value);
  if (!Number.isFinite(number)) return '–';
  const format = new Intl.NumberFormat('en-US', {
    style: 'currency',
    currency: 'USD',
    minimumFractionDigits: decimals,
    maximumFractionDigits: decimals,
    signDisplay: 'negative',
  });
  const smallest = 10 ** -decimals;
  const isHidden = number !== 0 && Math.abs(number) < smallest / 2;
  // A text is formatted without the rounding of a floating-point number.
  const text = format.format(isHidden ? Math.sign(number) * smallest : (value as number));
  const sign = isHidden ? (number > 0 ? '<' : '>') : '';
  return sign + text.replace('-', '\u2212');
}

/** Labels of an axis. */
export function usdAxis(values: readonly number[]): string[] {
  if (Math.max(...values.map(Math.abs)) < COMPACT_USD) {
    const decimals = exactDecimals(values.map((value) => value.toPrecision(6)));
    return values.map((value) => usdText(value, decimals));
  }
  const compact = new Intl.NumberFormat('en-US', {
    style: 'currency',
    currency: 'USD',
    notation: 'compact',
  });
  return values.map((value) => compact.format(value));
}

export function countText(value: number): string {
  return Math.round(value).toLocaleString('en-US');
}

/** `12.3k`, `4.5M`. */
export function roughCount(value: number): string {
  if (value < 10_000) return countText(value);
  if (value < 1_000_000) return `${(value / 1_000).toFixed(1)}k`;
  return value < 1e9 ? `${(value / 1e6).toFixed(1)}M` : `${(value / 1e9).toFixed(1)}G`;
}

export function percentText(part: number, whole: number): string {
  if (whole === 0) return '–';
  const percent = (part / whole) * 100;
  if (percent > 0 && percent < 1) return '<1 %';
  return percent > 99 && percent < 100 ? '>99 %' : `${Math.round(percent)} %`;
}

/** `33.3 %`: all margins of a column have one decimal. */
export function marginText(percent: number): string {
  return `${percent.toFixed(1).replace('-', '\u2212')} %`;
}

/** `840 ms`, `12.4 s`, `3 min`. */
export function durationText(ms: number | null | undefined): string {
  if (ms === null || ms === undefined) return '–';
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1_000).toFixed(1)} s`;
  const minutes = ms / 60_000;
  if (minutes < 90) return `${Math.round(minutes)} min`;
  return minutes < 2_880 ? `${Math.round(minutes / 60)} h` : `${Math.round(minutes / 1_440)} d`;
}

export function bytesText(bytes: number): string {
  if (bytes < 1_000) return `${bytes} B`;
  if (bytes < 1_000_000) return `${(bytes / 1_000).toFixed(1)} kB`;
  return `${(bytes / 1_000_000).toFixed(1)} MB`;
}

const DAY_MS = 86_400_000;
const CLOCK = new Intl.DateTimeFormat('en-GB', {
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
});
const DAY = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short' });
const DAY_OF_YEAR = new Intl.DateTimeFormat('en-GB', {
  day: 'numeric',
  month: 'short',
  year: 'numeric',
});

/** `14:03:22` for today, `21 Nov 14:03` for this year, else `21 Nov 2025`. */
export function timeText(iso: string): string {
  const time = new Date(iso);
  const now = new Date();
  if (Number.isNaN(time.getTime())) return '–';
  if (time.toDateString() === now.toDateString()) return CLOCK.format(time);
  if (time.getFullYear() !== now.getFullYear()) return DAY_OF_YEAR.format(time);
  return `${DAY.format(time)} ${CLOCK.format(time).slice(0, 5)}`;
}

/** `2026-11-21 14:03:22 UTC`. */
export function utcText(iso: string): string {
  const time = new Date(iso);
  if (Number.isNaN(time.getTime())) return iso;
  return `${time.toISOString().slice(0, 19).replace('T', ' ')} UTC`;
}

/** `3 min ago`, `in 4 d`. */
export function agoText(iso: string): string {
  const ms = Date.now() - Date.parse(iso);
  if (Math.abs(ms) < 5_000) return 'just now';
  const text = durationText(Math.abs(ms)).replace(/\.\d s/, ' s');
  return ms > 0 ? `${text} ago` : `in ${text}`;
}

/** The UTC day that many days before today, as `YYYY-MM-DD`. */
export function dayBefore(days: number): string {
  return new Date(Date.now() - days * DAY_MS).toISOString().slice(0, 10);
}

export function shortDay(day: string): string {
  return new Intl.DateTimeFormat('en-GB', {
    day: 'numeric',
    month: 'short',
    timeZone: 'UTC',
  }).format(new Date(`${day}T00:00:00Z`));
}

/** The first and last characters of a long id. */
export function shortId(id: string, ends = 6): string {
  return id.length <= ends * 2 + 2 ? id : `${id.slice(0, ends)}…${id.slice(-ends)}`;
}
