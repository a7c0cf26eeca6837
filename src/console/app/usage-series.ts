/** Converts usage by day and model to chart series: the largest models, and the sum of the others. */
import { SERIES_COLOURS, type Series } from './parts/chart.tsx';

const DAY_MS = 86_400_000;

/** All UTC days from `from` to `to`, both included. */
export function daysBetween(from: string, to: string): string[] {
  const days: string[] = [];
  const lastMs = Date.parse(`${to}T00:00:00Z`);
  for (let ms = Date.parse(`${from}T00:00:00Z`); ms <= lastMs; ms += DAY_MS) {
    days.push(new Date(ms).toISOString().slice(0, 10));
  }
  return days;
}

export function seriesByModel<Row extends { readonly date: string; readonly model: string }>(
  rows: readonly Row[],
  days: readonly string[],
  valueOf: (row: Row) => number,
): Series[] {
  const totals = new Map<string, number>();
  for (const row of rows) totals.set(row.model, (totals.get(row.model) ?? 0) + valueOf(row));
  const names = [...totals].toSorted(([, a], [, b]) => b - a).map(([name]) => name);
  const own = names.length > SERIES_COLOURS ? names.slice(0, SERIES_COLOURS - 1) : names;
  const place = new Map(days.map((day, index) => [day, index]));
  const series = new Map(own.map((name) => [name, days.map(() => 0)]));
  const rest = days.map(() => 0);
  for (const row of rows) {
    const index = place.get(row.date);
    const values = series.get(row.model) ?? rest;
    if (index !== undefined) values[index] = (values[index] ?? 0) + valueOf(row);
  }
  const shown = own.map((name) => ({ name, values: series.get(name) ?? [] }));
  return names.length > own.length ? [...shown, { name: 'Others', values: rest }] : shown;
}
