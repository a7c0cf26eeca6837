/**
 * Output of commands: tables, and streams that escape control characters, because a name chosen by a
 * caller could erase lines, change colours or reverse the direction of text.
 */
import { printable } from '../observability/log-writer.ts';

export interface Console {
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly cwd: string;
  readonly stdout: TextOutput;
  readonly stderr: TextOutput;
  readonly stdin?: () => AsyncIterable<Uint8Array | string>;
  readonly onSignal: (signal: 'SIGINT' | 'SIGTERM' | 'SIGHUP', listener: () => void) => void;
}

export interface TextOutput {
  readonly write: (text: string) => unknown;
  /** Writes text unchanged: a progress line, or a log line that is escaped already. */
  readonly draw?: (text: string) => unknown;
  readonly isTTY?: boolean;
  readonly columns?: number;
}

/** Escapes control characters and line breaks. */
export function printableLine(text: string): string {
  return printable(text).replaceAll('\n', '\\n');
}

/** Wraps a console so that `write` escapes control characters and `draw` does not. */
export function printableConsole(console: Console): Console {
  const { stdout, stderr } = console;
  return { ...console, stdout: printableOutput(stdout), stderr: printableOutput(stderr) };
}

const DEFAULT_COLUMNS = 80;

function printableOutput(output: TextOutput): TextOutput {
  return {
    isTTY: output.isTTY === true,
    columns: output.columns ?? DEFAULT_COLUMNS,
    write: (text: string) => output.write(printable(text)),
    draw: output.write.bind(output),
  };
}

/** Formats a table. `right`: titles of the columns that are aligned to the right. */
export function table(
  titles: readonly string[],
  rows: readonly (readonly string[])[],
  right: readonly string[] = [],
): string {
  const columns = new Columns(titles, right);
  columns.fit(rows);
  return columns.head() + columns.lines(rows);
}

/** A table whose rows come page by page: call `fit` for all rows, then `head` and `lines`. */
export class Columns {
  readonly #titles: readonly string[];
  readonly #right: readonly string[];
  #widths: readonly number[];

  constructor(titles: readonly string[], right: readonly string[] = []) {
    this.#titles = titles;
    this.#right = right;
    this.#widths = titles.map(({ length }) => length);
  }

  fit(rows: readonly (readonly string[])[]): void {
    for (const row of rows) {
      this.#widths = this.#widths.map((width, at) =>
        Math.max(width, printableLine(row[at] ?? '').length),
      );
    }
  }

  head(): string {
    return this.lines([this.#titles]);
  }

  lines(rows: readonly (readonly string[])[]): string {
    return rows.map((row) => this.#line(row)).join('');
  }

  #line(row: readonly string[]): string {
    const cells = this.#titles.map((title, at) => {
      const cell = printableLine(row[at] ?? '');
      const width = this.#widths[at] ?? 0;
      return this.#right.includes(title) ? cell.padStart(width) : cell.padEnd(width);
    });
    return `${cells.join('  ').trimEnd()}\n`;
  }
}

export function listing(pairs: readonly (readonly [string, string])[]): string {
  const width = Math.max(...pairs.map(([name]) => name.length));
  return pairs.map(([name, value]) => `${name.padEnd(width)}  ${printableLine(value)}\n`).join('');
}
