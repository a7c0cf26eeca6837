/** Periods of caps and budgets in UTC: their labels, and start and end of the current period. */
import type { ApiKey } from './shapes.ts';

export type Period = ApiKey['limitPeriod'];

export const PERIODS: Readonly<Record<Period, string>> = {
  EPOCH: 'a day',
  WEEK: 'a week',
  MONTH: 'a month',
  LIFETIME: 'in total',
};
export const SO_FAR: typeof PERIODS = {
  EPOCH: 'today',
  WEEK: 'this week',
  MONTH: 'this month',
  LIFETIME: 'in total',
};
export const PERIOD_CHOICES: readonly (readonly [Period, string])[] = [
  ['EPOCH', 'each day, UTC'],
  ['WEEK', 'each Monday, UTC'],
  ['MONTH', 'each month, UTC'],
  ['LIFETIME', 'never'],
];

const DAY_MS = 86_400_000;
/** 1 January 1970 was a Thursday. */
const MONDAY_OFFSET = 3;

/** The first day of the current period, `YYYY-MM-DD`; `undefined` for `LIFETIME`. */
export function periodStart(period: Period): string | undefined {
  const day = Math.floor(Date.now() / DAY_MS);
  if (period === 'EPOCH') return dayText(day);
  if (period === 'WEEK') return dayText(day - ((day + MONDAY_OFFSET) % 7));
  return period === 'MONTH' ? `${dayText(day).slice(0, 7)}-01` : undefined;
}

/** The end of the current period in ISO 8601; `undefined` for `LIFETIME`. */
export function periodEnd(period: Period): string | undefined {
  const start = periodStart(period);
  if (start === undefined) return undefined;
  const end = new Date(`${start}T00:00:00Z`);
  if (period === 'MONTH') end.setUTCMonth(end.getUTCMonth() + 1);
  else end.setUTCDate(end.getUTCDate() + (period === 'WEEK' ? 7 : 1));
  return end.toISOString();
}

function dayText(day: number): string {
  return new Date(day * DAY_MS).toISOString().slice(0, 10);
}
