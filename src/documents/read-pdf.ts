/**
 * Extracts the text of a PDF, page by page, without rendering fonts or decoding images. A document
 * without text is reported as a scan.
 */
import { getDocumentProxy, getResolvedPDFJS } from 'unpdf';
import { ReaderError } from './reader-error.ts';
import type { TextSink } from './text-sink.ts';

/** Makes the parser skip images, since only text is needed. */
const MAX_IMAGE_PIXELS = 1;

/** Loads the parser in advance, because files cannot be read later. */
export async function preparePdf(): Promise<void> {
  await getResolvedPDFJS();
}

export async function readPdf(bytes: Uint8Array, sink: TextSink, maxPages: number): Promise<void> {
  const document = await open(bytes);
  try {
    const last = Math.min(document.numPages, maxPages);
    let textChars = 0;
    for (let number = 1; number <= last && !sink.isFull; number++) {
      const text = await readPage(document, number);
      textChars += text.length;
      sink.write(`[Page ${number}]\n${text}\n\n`);
      if (sink.isFull && number < last) sink.markTruncated();
    }
    if (last < document.numPages) sink.markTruncated();
    if (textChars === 0)
      throw new ReaderError('contains no text; scanned pages are not recognised');
  } finally {
    await document.loadingTask.destroy();
  }
}

type Document = Awaited<ReturnType<typeof getDocumentProxy>>;

async function open(bytes: Uint8Array): Promise<Document> {
  try {
    return await getDocumentProxy(new Uint8Array(bytes), {
      disableFontFace: true,
      useSystemFonts: false,
      maxImageSize: MAX_IMAGE_PIXELS,
      verbosity: 0,
    });
  } catch (error) {
    const name = error instanceof Error ? error.name : ''; // the parser distinguishes errors by name
    if (name === 'PasswordException') throw new ReaderError('is protected by a password');
    throw new ReaderError('is damaged or not a PDF');
  }
}

async function readPage(document: Document, number: number): Promise<string> {
  const page = await document.getPage(number);
  const content = await page.getTextContent();
  let text = '';
  for (const item of content.items) {
    if ('str' in item) text += item.hasEOL ? `${item.str}\n` : item.str;
  }
  page.cleanup();
  const lines = text.split('\n').map((line) => line.trimEnd());
  return lines.join('\n').trim();
}
