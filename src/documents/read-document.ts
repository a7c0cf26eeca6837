/**
 * Detects the type of a file, by its bytes first and its name second, and calls its reader. Runs in
 * worker processes only.
 */
import { sniffMedia } from '../core/media-type.ts';
import { decodeText, htmlCharset } from './charset.ts';
import { htmlToMarkdown } from './html-markdown.ts';
import { officePart } from './ooxml.ts';
import { readDocx } from './read-docx.ts';
import { readEpub } from './read-epub.ts';
import { readPdf } from './read-pdf.ts';
import { readPptx } from './read-pptx.ts';
import { readXlsx } from './read-xlsx.ts';
import { ReaderError } from './reader-error.ts';
import { TextSink } from './text-sink.ts';
import { ZipArchive } from './zip.ts';

export interface ReadOptions {
  readonly filename: string;
  readonly mediaType: string;
  readonly maxChars: number;
  readonly maxPages: number;
}

export interface DocumentText {
  readonly text: string;
  readonly isTruncated: boolean;
}

/** The text of a file; throws `ReaderError` with the reason if it has none. */
export async function readDocument(bytes: Buffer, options: ReadOptions): Promise<DocumentText> {
  if (bytes.length === 0) throw new ReaderError('is empty');
  const sink = new TextSink(options.maxChars);
  await write(bytes, options, sink);
  const text = sink.toString();
  if (text === '') throw new ReaderError('contains no text');
  return { text, isTruncated: sink.isTruncated };
}

async function write(bytes: Buffer, options: ReadOptions, sink: TextSink): Promise<void> {
  if (bytes.subarray(0, 1_024).includes('%PDF-')) return readPdf(bytes, sink, options.maxPages);
  if (bytes.subarray(0, 4).toString('latin1') === 'PK\x03\x04') return readArchive(bytes, sink);
  if (bytes.subarray(0, 8).toString('hex') === 'd0cf11e0a1b11ae1') throw oldOffice(bytes);
  if (bytes.subarray(0, 5).toString('latin1') === '{\\rtf') {
    throw new ReaderError('is RTF, which is not supported; save it as DOCX or PDF');
  }
  const media = sniffMedia(bytes);
  if (media !== undefined) throw new ReaderError(`is ${media}, not a document`);
  const isNamedHtml =
    /\.x?html?$/i.test(options.filename) ||
    /^(?:text\/html|application\/xhtml\+xml)/i.test(options.mediaType);
  const text = decodeText(bytes, isNamedHtml ? htmlCharset(bytes) : undefined);
  if (isNamedHtml || /^\s*<(?:!doctype html|html)[\s>]/i.test(text.slice(0, 512))) {
    sink.writeMarkdown(htmlToMarkdown(text, { maxChars: sink.leftChars }));
  } else {
    sink.write(text);
  }
}

async function readArchive(bytes: Buffer, sink: TextSink): Promise<void> {
  const zip = await ZipArchive.open(bytes);
  const part = (await officePart(zip)) ?? '';
  if (part.startsWith('word/')) return readDocx(zip, sink);
  if (part.startsWith('ppt/')) return readPptx(zip, part, sink);
  if (part.endsWith('.bin')) {
    throw new ReaderError('is a binary workbook (.xlsb), which is not supported; save it as .xlsx');
  }
  if (part.startsWith('xl/')) return readXlsx(zip, part, sink);
  if (zip.has('META-INF/container.xml')) return readEpub(zip, sink);
  if (zip.has('content.xml')) {
    throw new ReaderError(
      'is an OpenDocument file, which is not supported; save it as DOCX or PDF',
    );
  }
  throw new ReaderError('is an archive, not a document; send the files inside it');
}

function oldOffice(bytes: Buffer): ReaderError {
  if (bytes.includes(Buffer.from('EncryptedPackage', 'utf16le'))) {
    return new ReaderError('is protected by a password');
  }
  return new ReaderError(
    'is in the old Office format (.xls, .doc, .ppt), which is not supported; save it as .xlsx, .docx or .pptx',
  );
}
