/** Tables for a terminal: columns as wide as their widest cell, two spaces between them. */
import { printableLine } from './terminal.ts';

export interface TableColumn {
  readonly title: string;
  /** Figures end at the same place. Default `left`. */
  readonly align?: 'left' | 'right';
}

/** Rows under their titles, one line each, without spaces at the ends; ends with a line break. */
export function table(
  columns: readonly TableColumn[],
  rows: readonly (readonly string[])[],
): string {
  const all = [columns.map((column) => column.title), ...rows.map((row) => row.map(printableLine))];
  const widths = columns.map((_, index) =>
    Math.max(...all.map((row) => (row[index] ?? '').length)),
  );
  const lines = all.map((row) =>
    columns
      .map((column, index) => {
        const cell = row[index] ?? '';
        const width = widths[index] ?? 0;
        return column.align === 'right' ? cell.padStart(width) : cell.padEnd(width);
      })
      .join('  ')
      .trimEnd(),
  );
  return `${lines.join('\n')}\n`;
}

/** Names and values under each other, the values in one column. */
export function listing(pairs: readonly (readonly [string, string])[]): string {
  const width = Math.max(...pairs.map(([name]) => name.length));
  return pairs.map(([name, value]) => `${name.padEnd(width)}  ${printableLine(value)}\n`).join('');
}
