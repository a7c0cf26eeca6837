/** Passes Node's compile cache to child processes, which start a third faster with it. */
import { getCompileCacheDir } from 'node:module';
import { dirname } from 'node:path';

/** Returns the environment of a child process; empty if this process has no compile cache. */
export function compileCache(): Readonly<Record<string, string>> {
  // Node reports the subfolder of its own version.
  const folder = getCompileCacheDir();
  return folder === undefined ? {} : { NODE_COMPILE_CACHE: dirname(folder) };
}
