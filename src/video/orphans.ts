/** Deletes the files of the media folder that belong to no job. */
import { HOUR_MS } from '../core/clock.ts';
import type { JobTable, JobTrace } from './job-table.ts';
import type { MediaStore, StoredFile } from './media-store.ts';

const BATCH = 100;
/** Minimum age before an unreferenced file is deleted. */
const ORPHAN_AGE_MS = HOUR_MS;

/** `deadFiles`: names of files that a dead process has left; they need not be old. */
export async function removeOrphans(
  files: MediaStore,
  table: Pick<JobTable, 'states'>,
  deadFiles: ReadonlySet<string>,
  nowMs: number,
): Promise<void> {
  const all = await files.files();
  const idOf = ({ name }: StoredFile): string => name.split('.')[0] ?? name;
  for (let at = 0; at < all.length; at += BATCH) {
    const some = all.slice(at, at + BATCH);
    const known = await table.states(some.map(idOf));
    for (const file of some) {
      const isOrphan =
        isUnneeded(file, known.get(idOf(file))) ??
        (deadFiles.has(file.name) || (await files.isLeft(file, nowMs - ORPHAN_AGE_MS)));
      if (isOrphan) await files.remove(file.kind, file.name);
    }
  }
}

/**
 * `undefined` if the age decides: the file may belong to a job that is about to be written or to a
 * running download, of this or another process.
 */
function isUnneeded(file: StoredFile, job: JobTrace | undefined): boolean | undefined {
  // A name with a dot is a partial file.
  if (file.name.includes('.') || job === undefined) return undefined;
  const isOpen = job.state !== 'completed' && job.state !== 'failed';
  // Only the finished result of an ended job is kept.
  return !isOpen && !(file.kind === 'results' && job.hasMedia);
}
