/**
 * Formats numbers, money and times. Money is exact to nine decimals and shown without rounding. Times
 * are in the time zone of the browser.
 */

const NANO_DECIMALS = 9;
const GROUPED = /\B(?=(\d{3})+(?!\d))/g;

/** `1234.5` becomes `1,234.50`, `0.0000137` stays. `least`: minimum number of decimals. */
export function amountText(value: number | string, least = 2): string {
  const number = Number(value);
  if (!Number.isFinite(number)) return '–';
  const [whole = '0', all = ''] = Math.abs(number).toFixed(NANO_DECIMALS).split('.');
  const fraction = all.replace(/0+$/, '').padEnd(least, '0');
  const isZero = /^0*$/.test(whole + fraction);
  const sign = number < 0 && !isZero ? '\u2212' : '';
  return `${sign}${whole.replace(GROUPED, ',')}${fraction === '' ? '' : `.${fraction}`}`;
}

/** `$1,234.50`, or `−$1,234.50`. */
export function usdText(value: number | string, least = 2): string {
  const text = amountText(value, least);
  return text.startsWith('\u2212') ? `\u2212$${text.slice(1)}` : `$${text}`;
}

/** Rounded, for axes and estimates. */
export function roughUsd(value: number): string {
  if (value === 0) return '$0';
  const size = Math.abs(value);
  if (size >= 1_000_000) return `$${(value / 1_000_000).toFixed(1)}M`;
  if (size >= 10_000) return `$${(value / 1_000).toFixed(1)}k`;
  if (size >= 1) return `$${value.toFixed(2)}`;
  const decimals = Math.min(NANO_DECIMALS, 1 - Math.floor(Math.log10(size)));
  const [whole, fraction = ''] = Number(value.toPrecision(2)).toFixed(decimals).split('.');
  return `$${whole}.${fraction.replace(/0+$/, '').padEnd(2, '0')}`;
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
  return `${percent > 0 && percent < 1 ? '<1' : Math.round(percent)} %`;
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
