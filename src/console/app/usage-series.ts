/** Day rollups as the series of a chart: the largest models by name, the others together. */
import type { Series } from './parts/chart.tsx';
import { SERIES_COLOURS } from './parts/chart.tsx';

/** Every UTC day from one to the other, both included. */
export function daysBetween(from: string, to: string): string[] {
  const days: string[] = [];
  for (
    let at = Date.parse(`${from}T00:00:00Z`);
    at <= Date.parse(`${to}T00:00:00Z`);
    at += 86_400_000
  ) {
    days.push(new Date(at).toISOString().slice(0, 10));
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
