/**
 * Jobs of a `reader` worker: converts documents and pages to text, and every error to a reason.
 */
import type { Job, Reply, ReplyHeader } from './jobs.ts';
import { readDocument } from './read-document.ts';
import { readPage } from './read-page.ts';
import { preparePdf } from './read-pdf.ts';
import { ReaderError, reasonFor } from './reader-error.ts';

/** Loads libraries in advance that would otherwise be loaded on first use. */
export const prepareReader = preparePdf;

export async function runReaderJob(job: Job, payload: Buffer): Promise<Reply> {
  try {
    switch (job.kind) {
      case 'extract':
        return reply(await readDocument(payload, job));
      case 'page':
        return reply(readPage(payload, job));
      default:
        throw new ReaderError('is not a job of a reader');
    }
  } catch (error) {
    return { header: { ok: false, reason: reasonFor(error) }, payload: Buffer.alloc(0) };
  }
}

function reply({
  text,
  isTruncated: truncated = false,
  ...facts
}: Pick<ReplyHeader & { ok: true }, 'title'> & {
  readonly text: string;
  readonly isTruncated?: boolean;
}): Reply {
  return { header: { ok: true, truncated, ...facts }, payload: Buffer.from(text) };
}
