/**
 * Writes Markdown from a flat sequence of elements and text: collapses white space, counts line
 * breaks, indents lists and quotes, builds table rows. It builds no tree; nesting is tracked by
 * bounded counters.
 */
import { TextSink } from './text-sink.ts';

/** Deeper lists are written at this depth, so that malicious input cannot grow the indentation. */
const MAX_LIST_DEPTH = 8;
const MAX_QUOTE_DEPTH = 3;

const BARE_ITEM = /^ {0,16}(?:-|\d{1,7}\.) $/;
const MAX_BARE_ITEM_CHARS = 25;

const PARAGRAPHS = new Set(['p', 'table', 'dl', 'figure', 'fieldset', 'form', 'details']);
const LINES = new Set(
  (
    'div section article main header footer nav aside body dt dd address figcaption caption ' +
    'summary thead tbody tfoot legend option'
  ).split(' '),
);
const HEADING = /^h[1-6]$/;

interface OpenLink {
  readonly href: string | undefined;
  text: string;
}

export class MarkdownWriter {
  readonly #sink: TextSink;
  /** Not read while it grows, because each reading of a long line copies it. */
  #line = '';
  #endsInSpace = false;
  #pendingBreaks = 0;
  #hasContent = false;
  #codeDepth = 0;
  #quoteDepth = 0;
  #lists: { isOrdered: boolean; items: number }[] = [];
  #cells: string[] | undefined;
  #tables: { rows: number }[] = [];
  #link: OpenLink | undefined;

  constructor(maxChars: number) {
    this.#sink = new TextSink(maxChars);
  }

  get #isBareItem(): boolean {
    return this.#line.length <= MAX_BARE_ITEM_CHARS && BARE_ITEM.test(this.#line);
  }

  get isFull(): boolean {
    return this.#sink.isFull;
  }

  get isTruncated(): boolean {
    return this.#sink.isTruncated;
  }

  text(text: string): void {
    if (this.#codeDepth > 0) this.#code(text);
    else this.#inline(text.replace(/[ \t\r\n\f\u00a0]+/g, ' '));
  }

  /** Ends the line; a `count` of 2 adds an empty line. Inside a table cell it writes a space. */
  #break(count: number): void {
    if (this.#cells !== undefined) {
      this.#inline(' ');
      return;
    }
    this.#closeLink();
    if (this.#isBareItem) return; // `<li><p>text`: the text belongs after the list mark
    this.#flush();
    this.#pendingBreaks = Math.max(this.#pendingBreaks, count);
  }

  /** Opens an element; `href` returns the target of a link. */
  open(name: string, href: () => string | undefined): void {
    this.#breakAround(name);
    switch (name) {
      case 'br':
        return this.#break(1);
      case 'hr':
        this.#break(2);
        this.#inline('---');
        return this.#break(2);
      case 'pre':
        return this.#openCode();
      case 'code':
        return this.#tick();
      case 'blockquote':
        this.#break(2);
        this.#quoteDepth += 1;
        return;
      case 'ul':
      case 'ol':
        this.#break(this.#lists.length === 0 ? 2 : 1);
        if (this.#lists.length < MAX_LIST_DEPTH) {
          this.#lists.push({ isOrdered: name === 'ol', items: 0 });
        }
        return;
      case 'li':
        return this.#openItem();
      case 'table':
        return this.#openTable();
      case 'tr':
        this.#closeRow();
        this.#break(1);
        this.#cells = [];
        return;
      case 'td':
      case 'th':
        return this.#openCell();
      case 'a':
        this.#closeLink();
        this.#link = { href: href(), text: '' };
        return;
      default:
        if (HEADING.test(name)) this.#inline(`${'#'.repeat(Number(name[1]))} `);
    }
  }

  close(name: string): void {
    this.#breakAround(name);
    switch (name) {
      case 'br':
      case 'hr':
        return this.open(name, () => undefined);
      case 'pre':
        return this.#closeCode();
      case 'code':
        return this.#tick();
      case 'blockquote':
        this.#break(2);
        this.#quoteDepth = Math.max(0, this.#quoteDepth - 1);
        return;
      case 'ul':
      case 'ol':
        this.#break(this.#lists.length === 1 ? 2 : 1);
        this.#lists.pop();
        return;
      case 'table':
        this.#closeRow();
        this.#tables.pop();
        return this.#break(2);
      case 'tr':
        return this.#closeRow();
      case 'a':
        return this.#closeLink();
    }
  }

  #breakAround(name: string): void {
    if (PARAGRAPHS.has(name) || HEADING.test(name)) this.#break(2);
    else if (LINES.has(name)) this.#break(1);
  }

  #openCode(): void {
    this.#break(2);
    if (this.#codeDepth === 0 && this.#cells === undefined) this.#writeLine('```');
    this.#pendingBreaks = 1;
    this.#codeDepth += 1;
  }

  #closeCode(): void {
    if (this.#codeDepth === 0) return;
    this.#flush();
    this.#codeDepth -= 1;
    if (this.#codeDepth > 0 || this.#cells !== undefined) return;
    this.#pendingBreaks = 1;
    this.#writeLine('```');
    this.#pendingBreaks = 2;
  }

  #tick(): void {
    if (this.#codeDepth === 0) this.#inline('`');
  }

  #openItem(): void {
    if (this.#isBareItem) this.#line = '';
    this.#break(1);
    const list = this.#lists.at(-1);
    if (list !== undefined) list.items += 1;
    const mark = list?.isOrdered === true ? `${list.items}. ` : '- ';
    // The items of a list in a table cell follow each other on one line.
    if (this.#cells !== undefined) return this.#inline(mark);
    this.#line = '  '.repeat(Math.max(0, this.#lists.length - 1)) + mark;
    this.#endsInSpace = true;
  }

  #openTable(): void {
    // A table inside a cell means a layout table: write its cells as blocks.
    if (this.#cells !== undefined) this.#spillCells();
    if (this.#tables.length < MAX_LIST_DEPTH) this.#tables.push({ rows: 0 });
    this.#break(2);
  }

  #openCell(): void {
    if (this.#cells === undefined) return this.#inline(' ');
    this.#closeLink();
    if (this.#line !== '' || this.#cells.length > 0) this.#cells.push(this.#line.trim());
    else this.#cells.push('');
    this.#line = '';
  }

  #closeRow(): void {
    const cells = this.#takeCells();
    if (cells === undefined || cells.every((cell) => cell === '')) return;
    this.#pendingBreaks = Math.max(this.#pendingBreaks, 1);
    const isTable = cells.length > 1;
    const row = cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ');
    this.#writeLine(isTable ? `| ${row} |` : (cells[0] ?? ''));
    const table = this.#tables.at(-1);
    this.#pendingBreaks = 1;
    if (isTable && table?.rows === 0) this.#writeLine(`|${' --- |'.repeat(cells.length)}`);
    if (table !== undefined) table.rows += 1;
    this.#pendingBreaks = 1;
  }

  #closeLink(): void {
    const link = this.#link;
    if (link === undefined) return;
    this.#link = undefined;
    const text = link.text.trim();
    if (text === '' || link.href === undefined) {
      this.#inline(link.text);
      return;
    }
    const [before, behind] = [/^\s/.test(link.text) ? ' ' : '', /\s$/.test(link.text) ? ' ' : ''];
    this.#inline(`${before}[${text.replace(/[[\]]/g, '')}](${link.href})${behind}`);
  }

  toString(): string {
    this.#closeLink();
    this.#closeRow();
    this.#flush();
    if (this.#codeDepth > 0) {
      this.#codeDepth = 1;
      this.#closeCode();
    }
    return this.#sink.toString();
  }

  #inline(text: string): void {
    if (this.#link !== undefined) {
      this.#link.text += text;
      return;
    }
    const isStart = this.#line === '' || this.#endsInSpace;
    this.#add(isStart && text.startsWith(' ') ? text.slice(1) : text);
    if (this.#line.length > LONG_LINE_CHARS && this.#cells === undefined) this.#flush(true);
  }

  #add(text: string): void {
    if (text === '') return;
    this.#line += text;
    this.#endsInSpace = text.endsWith(' ');
  }

  #code(text: string): void {
    const lines = text.replace(/\r\n?/g, '\n').split('\n');
    for (const [index, line] of lines.entries()) {
      if (index > 0) {
        this.#writeLine(this.#line);
        this.#line = '';
        this.#pendingBreaks = 1;
      }
      this.#add(line);
    }
  }

  /** Takes the cells of the open row; the first one was opened before any of its text. */
  #takeCells(): string[] | undefined {
    const cells = this.#cells;
    if (cells === undefined) return undefined;
    this.#closeLink();
    this.#cells = undefined;
    const all = [...cells.slice(1), this.#line.trim()];
    this.#line = '';
    return all;
  }

  #spillCells(): void {
    for (const cell of this.#takeCells() ?? []) {
      if (cell === '') continue;
      this.#line = cell;
      this.#break(1);
    }
  }

  #flush(isMidLine = false): void {
    const line = isMidLine ? this.#line : this.#line.trimEnd();
    this.#line = '';
    if (line.trim() === '' && this.#codeDepth === 0) return;
    this.#writeLine(line);
    this.#pendingBreaks = isMidLine ? 0 : 1;
  }

  #writeLine(line: string): void {
    const prefix = '> '.repeat(Math.min(this.#quoteDepth, MAX_QUOTE_DEPTH));
    if (this.#hasContent && this.#pendingBreaks > 0) {
      this.#sink.write(this.#pendingBreaks > 1 ? '\n\n' : '\n');
      this.#sink.write(prefix);
    } else if (!this.#hasContent) {
      this.#sink.write(prefix);
    }
    this.#sink.write(line);
    this.#hasContent = true;
    this.#pendingBreaks = 0;
  }
}

/** Longer paragraphs are written in pieces, so that line buffers stay small. */
const LONG_LINE_CHARS = 8_192;
