/**
 * Output of commands: streams that print no control characters of foreign names (they could erase
 * lines, change colours, or reverse the direction of text), and tables.
 */
import { printable } from '../observability/log-writer.ts';

/** The terminal and the process, handed in so that tests own them. */
export interface Console {
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly cwd: string;
  readonly stdout: TextOutput;
  readonly stderr: TextOutput;
  /** Missing where nothing can be piped in. */
  readonly stdin?: () => AsyncIterable<Uint8Array | string>;
  readonly onSignal: (signal: 'SIGINT' | 'SIGTERM' | 'SIGHUP', listener: () => void) => void;
}

export interface TextOutput {
  readonly write: (text: string) => unknown;
  /** Writes a text unchanged: a progress line, or a line of the log, which is printable already. */
  readonly draw?: (text: string) => unknown;
  readonly isTTY?: boolean;
  readonly columns?: number;
}

/** What is printable of a text, on one line: for a cell of a table or a name in a sentence. */
export function printableLine(text: string): string {
  return printable(text).replaceAll('\n', '\\n');
}

/** The console whose streams print what is printable; `draw` is for lines that are drawn again. */
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

/**
 * Rows under titles in columns of one width, with a line break at the end; `right` aligns figures.
 */
export function table(
  titles: readonly string[],
  rows: readonly (readonly string[])[],
  right: readonly string[] = [],
): string {
  const columns = new Columns(titles, right);
  columns.fit(rows);
  return columns.head() + columns.lines(rows);
}

/** The columns of a table whose rows come page by page: first their widths, then their lines. */
export class Columns {
  readonly #titles: readonly string[];
  readonly #right: readonly string[];
  #widths: readonly number[];

  constructor(titles: readonly string[], right: readonly string[] = []) {
    this.#titles = titles;
    this.#right = right;
    this.#widths = titles.map(({ length }) => length);
  }

  /** Makes room for the cells of the rows. */
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

/** Names and values under each other, the values in one column. */
export function listing(pairs: readonly (readonly [string, string])[]): string {
  const width = Math.max(...pairs.map(([name]) => name.length));
  return pairs.map(([name, value]) => `${name.padEnd(width)}  ${printableLine(value)}\n`).join('');
}
