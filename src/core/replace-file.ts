/** Replaces files that people keep, such as settings, at once: a reader finds the old or the new text. */
import { realpath, rename, rm, stat, writeFile } from 'node:fs/promises';

/** Mode of a new file. */
const PRIVATE = 0o600;

/** `mode`: default: that of the old file. */
export async function replaceFile(path: string, text: string, mode?: number): Promise<void> {
  const found = await stat(path).catch(() => undefined);
  const draft = `${path}.${process.pid}.new`;
  try {
    await writeFile(draft, text, { mode: mode ?? found?.mode ?? PRIVATE, flag: 'wx', flush: true });
    await rename(draft, await fileBehind(path));
  } finally {
    await rm(draft, { force: true });
  }
}

/** The file to replace, so that a symbolic link stays one. */
export async function fileBehind(path: string): Promise<string> {
  return await realpath(path).catch((error: NodeJS.ErrnoException) => {
    // A new file.
    if (error.code === 'ENOENT') return path;
    throw error;
  });
}
