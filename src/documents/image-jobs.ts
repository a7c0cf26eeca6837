/** Jobs of an `image` worker: reads the properties of generated images. */
import type { Job, Reply } from './jobs.ts';
import { readPng } from './read-png.ts';
import { ReaderError, reasonFor } from './reader-error.ts';

export async function runImageJob(job: Job, payload: Buffer): Promise<Reply> {
  try {
    if (job.kind !== 'png') throw new ReaderError('is not a job of an image worker');
    const png = await readPng(payload);
    return { header: { ok: true, png }, payload: Buffer.alloc(0) };
  } catch (error) {
    return { header: { ok: false, reason: reasonFor(error) }, payload: Buffer.alloc(0) };
  }
}
