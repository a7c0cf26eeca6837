/**
 * A folder for files that live as long as this process: uploads in the works, sound that was taken
 * out of a video. What a killed process left is removed by a later one.
 */
import { mkdir, readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { type Clock, DAY_MS, HOUR_MS } from '../kernel/clock.ts';
import type { Ids } from '../kernel/ids.ts';

export interface WorkFolder {
  readonly path: string;
  /** Deletes it with all that is in it. */
  remove(): Promise<void>;
}

const NAME_BYTES = 8;
/** No work takes this long: the folder's process is gone. */
const LEFT_BEHIND_MS = DAY_MS + HOUR_MS;

/** Makes a new folder below `root`, and clears away what dead processes left there. */
export async function openWorkFolder(root: string, ids: Ids, clock: Clock): Promise<WorkFolder> {
  await mkdir(root, { recursive: true });
  await sweep(root, clock.nowMs() - LEFT_BEHIND_MS);
  const path = join(root, ids.hex(NAME_BYTES));
  await mkdir(path);
  return { path, remove: () => rm(path, { recursive: true, force: true }) };
}

async function sweep(root: string, beforeMs: number): Promise<void> {
  for (const name of await readdir(root)) {
    const path = join(root, name);
    try {
      if ((await stat(path)).mtimeMs < beforeMs) await rm(path, { recursive: true, force: true });
    } catch {
      // Another process removed it first.
    }
  }
}
