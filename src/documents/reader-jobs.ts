/**
 * The jobs of a `reader` worker: documents and pages to text, pictures to facts, every failure to a
 * reason.
 */
import type { Job, Reply } from './jobs.ts';
import { readDocument } from './read-document.ts';
import { readPage } from './read-page.ts';
import { preparePdf } from './read-pdf.ts';
import { readPng } from './read-png.ts';
import { ReaderError } from './reader-error.ts';

const NOTHING = new Uint8Array();

/** Loads what its libraries would load later. */
export const prepareReader = preparePdf;

export async function runReaderJob(job: Job, payload: Buffer): Promise<Reply> {
  try {
    if (job.kind === 'extract') {
      const { text, pages, isTruncated } = await readDocument(payload, job);
      const header = {
        ok: true,
        truncated: isTruncated,
        ...(pages === undefined ? {} : { pages }),
      };
      return { header: { ...header, ok: true }, payload: Buffer.from(text) };
    }
    if (job.kind === 'page') {
      const { text, title, isTruncated } = readPage(payload, job);
      const header = { truncated: isTruncated, ...(title === undefined ? {} : { title }) };
      return { header: { ...header, ok: true }, payload: Buffer.from(text) };
    }
    if (job.kind === 'png') {
      return { header: { ok: true, png: await readPng(payload) }, payload: NOTHING };
    }
    return { header: { ok: false, reason: 'is no job of a reader' }, payload: NOTHING };
  } catch (error) {
    // Parsers throw anything at all on hostile input; whatever it is, the file was not readable.
    return { header: { ok: false, reason: reasonFor(error) }, payload: NOTHING };
  }
}

function reasonFor(error: unknown): string {
  if (error instanceof ReaderError) return error.message;
  if (error instanceof RangeError) return 'is nested too deeply or too large';
  return 'is damaged or of an unknown kind';
}
