/**
 * Writes the cells of an XLSX workbook as CSV, one named part per sheet. Values are those
 * displayed: cached results of formulas, ISO dates, booleans as words. Empty columns are kept, and
 * hidden sheets are included.
 */
import { relationships } from './ooxml.ts';
import { ReaderError } from './reader-error.ts';
import { TextSink } from './text-sink.ts';
import { scanXml } from './markup.ts';
import type { ZipArchive } from './zip.ts';

/** The limit of the format: columns A to XFD. */
const MAX_COLUMNS = 16_384;
const MAX_SHARED_STRINGS = 2_000_000;

interface Sheet {
  readonly name: string;
  readonly path: string;
}

interface Workbook {
  readonly strings: readonly string[];
  readonly isDateStyle: readonly boolean[];
  /** Old Mac files count days from 1904. */
  readonly startsIn1904: boolean;
}

export async function readXlsx(zip: ZipArchive, part: string, sink: TextSink): Promise<void> {
  const { sheets, startsIn1904 } = await readWorkbook(zip, part);
  const book: Workbook = {
    strings: readSharedStrings(await zip.readText('xl/sharedStrings.xml')),
    isDateStyle: readDateStyles(await zip.readText('xl/styles.xml')),
    startsIn1904,
  };
  for (const sheet of sheets) {
    if (sink.isTruncated) break;
    sink.write(`## Sheet: ${sheet.name.replace(/\s+/g, ' ')}\n\n`);
    const xml = await zip.readText(sheet.path);
    if (xml !== undefined) readSheet(xml, book, sink);
    sink.write('\n');
  }
}

async function readWorkbook(
  zip: ZipArchive,
  part: string,
): Promise<{ sheets: Sheet[]; startsIn1904: boolean }> {
  const xml = await zip.readText(part);
  if (xml === undefined) throw new ReaderError('contains no workbook');
  const targets = await relationships(zip, part);
  const sheets: Sheet[] = [];
  let startsIn1904 = false;
  scanXml(xml, {
    open(name, attribute) {
      if (name === 'workbookPr') startsIn1904 = /^(1|true)$/.test(attribute('date1904') ?? '');
      if (name !== 'sheet') return;
      const path = targets.get(attribute('id') ?? '')?.path;
      if (path !== undefined) sheets.push({ name: attribute('name') ?? '', path });
    },
  });
  return { sheets, startsIn1904 };
}

function readSharedStrings(xml = ''): string[] {
  const strings: string[] = [];
  let current: string | undefined;
  let isText = false;
  let isPhonetic = false; // phonetic readings of Japanese words are not part of the text
  scanXml(xml, {
    open(name) {
      if (name === 'si') current = '';
      else if (name === 'rPh') isPhonetic = true;
      isText = name === 't';
    },
    text(text) {
      if (isText && !isPhonetic && current !== undefined) current += text;
    },
    close(name) {
      if (name === 't') isText = false;
      else if (name === 'rPh') isPhonetic = false;
      else if (name === 'si' && current !== undefined) strings.push(current);
    },
    isDone: () => strings.length >= MAX_SHARED_STRINGS,
  });
  return strings;
}

function readDateStyles(xml = ''): boolean[] {
  const dateFormats = new Set<number>();
  const styles: boolean[] = [];
  let isInCellFormats = false;
  scanXml(xml, {
    open(name, attribute) {
      if (name === 'numFmt' && isDateFormat(attribute('formatCode') ?? '')) {
        dateFormats.add(Number(attribute('numFmtId')));
      }
      if (name === 'cellXfs') isInCellFormats = true;
      if (name !== 'xf' || !isInCellFormats) return;
      const id = Number(attribute('numFmtId') ?? 0);
      // ECMA-376 §18.8.30: 14 to 22 and 45 to 47 are the built-in dates and times.
      styles.push((id >= 14 && id <= 22) || (id >= 45 && id <= 47) || dateFormats.has(id));
    },
    close(name) {
      if (name === 'cellXfs') isInCellFormats = false;
    },
  });
  return styles;
}

function isDateFormat(code: string): boolean {
  const bare = code.slice(0, 300).replace(/"[^"]*(?:"|$)|\[[^\]]*(?:\]|$)|\\./g, '');
  return /[dmyhs]/i.test(bare) && !/general/i.test(bare);
}

interface Cell {
  column: number;
  type: string;
  style: number;
  value: string;
}

function readSheet(xml: string, book: Workbook, sink: TextSink): void {
  let row = '';
  /** Columns that the row contains so far. */
  let columns = 0;
  /** The column of a cell without a reference. */
  let next = 0;
  let cell: Cell | undefined;
  let isValue = false;
  scanXml(xml, {
    open(name, attribute) {
      if (name === 'row') [row, columns, next] = ['', 0, 0];
      else if (name === 'c') {
        cell = {
          column: columnOf(attribute('r'), next),
          type: attribute('t') ?? 'n',
          style: Number(attribute('s') ?? -1),
          value: '',
        };
      }
      isValue = name === 'v' || name === 't';
    },
    text(text) {
      if (isValue && cell !== undefined) cell.value += text;
    },
    close(name) {
      isValue = false;
      if (name === 'c' && cell !== undefined) {
        const text = csvField(showCell(cell, book));
        if (text !== '') {
          row += `${','.repeat(Math.max(0, cell.column - Math.max(0, columns - 1)))}${text}`;
          columns = cell.column + 1;
        }
        next = cell.column + 1;
        cell = undefined;
      }
      if (name === 'row' && row !== '') sink.write(`${row}\n`);
    },
    isDone: () => sink.isFull,
  });
}

/** The zero-based column of a reference such as `AB12`; `next` if it is missing. */
function columnOf(reference: string | undefined, next: number): number {
  const letters = /^[A-Z]{1,3}/.exec(reference ?? '')?.[0];
  if (letters === undefined) return Math.min(next, MAX_COLUMNS - 1);
  let column = 0;
  for (const letter of letters) column = column * 26 + letter.charCodeAt(0) - 64;
  return Math.max(next, Math.min(column, MAX_COLUMNS) - 1);
}

function showCell(cell: Cell, book: Workbook): string {
  switch (cell.type) {
    case 's':
      return book.strings[Number(cell.value)] ?? '';
    case 'b':
      return cell.value === '1' ? 'TRUE' : 'FALSE';
    case 'n':
      return book.isDateStyle[cell.style] === true ? showDate(cell.value, book) : cell.value;
    default:
      return cell.value;
  }
}

/**
 * Days between the spreadsheet epoch and 1970. Spreadsheets include 29 February 1900, which did not
 * exist, so dates before it differ by one day.
 */
const DAYS_TO_1970 = 25_569;
const DAYS_TO_1970_FROM_1904 = 24_107;
const DAY_MS = 86_400_000;

function showDate(value: string, book: Workbook): string {
  const days = Number(value);
  if (value === '' || !Number.isFinite(days) || days < 0 || days > 2_958_466) return value;
  const epoch = book.startsIn1904 ? DAYS_TO_1970_FROM_1904 : DAYS_TO_1970;
  const iso = new Date(Math.round((days - epoch) * DAY_MS)).toISOString();
  if (days < 1) return iso.slice(11, 19);
  return Number.isInteger(days) ? iso.slice(0, 10) : iso.slice(0, 19).replace('T', ' ');
}

function csvField(text: string): string {
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
