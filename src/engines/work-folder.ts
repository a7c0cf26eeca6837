/**
 * A folder for files that live as long as this process: uploads in progress, sound extracted from a
 * video. A living process touches its folder every minute; a folder that is not touched belongs to
 * a killed process and is deleted.
 */
import { mkdir, readdir, rm, stat, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { type Clock, MINUTE_MS, SECOND_MS } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import { type Log, reasonOf } from '../core/log.ts';

export interface WorkFolder {
  readonly path: string;
  remove(): Promise<void>;
}

const NAME_BYTES = 8;
const TOUCH_MS = MINUTE_MS;
/** Longer than the interval, because touches may be late. */
const LEFT_BEHIND_MS = 5 * MINUTE_MS;

/** Creates a folder below `root`, and deletes those of dead processes. */
export async function openWorkFolder(
  root: string,
  { ids, clock, log }: { readonly ids: Ids; readonly clock: Clock; readonly log: Log },
): Promise<WorkFolder> {
  await mkdir(root, { recursive: true });
  const path = join(root, ids.hex(NAME_BYTES));
  await mkdir(path);
  let suspects: ReadonlySet<string> = new Set();
  const keep = async (): Promise<void> => {
    const nowSeconds = clock.nowMs() / SECOND_MS;
    await utimes(path, nowSeconds, nowSeconds);
    suspects = await sweep(root, clock.nowMs() - LEFT_BEHIND_MS, suspects);
  };
  await keep();
  const stop = clock.every(TOUCH_MS, () => {
    keep().catch((error: unknown) => {
      // The next minute retries.
      log.warn({ reason: reasonOf(error) }, 'The work folder could not be kept');
    });
  });
  return {
    path,
    remove: async () => {
      stop();
      await rm(path, { recursive: true, force: true });
    },
  };
}

/**
 * Deletes folders that were old a minute ago and still are. The second check is needed because a
 * resumed machine finds old folders of living processes. Returns the folders that are old now.
 */
async function sweep(
  root: string,
  beforeMs: number,
  suspects: ReadonlySet<string>,
): Promise<ReadonlySet<string>> {
  const old = new Set<string>();
  for (const name of await readdir(root)) {
    const path = join(root, name);
    try {
      if ((await stat(path)).mtimeMs >= beforeMs) continue;
      if (suspects.has(name)) await rm(path, { recursive: true, force: true });
      else old.add(name);
    } catch {
      // Another process removed it first.
    }
  }
  return old;
}
