/** Flushes written files, so that they outlast a loss of power. */
import { open } from 'node:fs/promises';

export async function flushFile(path: string): Promise<void> {
  await flush(path, 'r+');
}

/** Flushes the names of the files in a folder, such as one that was renamed. */
export async function flushNames(folder: string): Promise<void> {
  // Windows cannot open folders.
  if (process.platform !== 'win32') await flush(folder, 'r');
}

async function flush(path: string, flags: 'r' | 'r+'): Promise<void> {
  const file = await open(path, flags);
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}
