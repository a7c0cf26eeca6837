/**
 * Passes Node's compile cache to child processes that start without an environment. With it they
 * start in two thirds of the time.
 */
import { getCompileCacheDir } from 'node:module';
import { dirname } from 'node:path';

/** Returns the environment of a child process; empty if this process has no compile cache. */
export function compileCache(): Readonly<Record<string, string>> {
  // Node reports the subfolder of its own version.
  const folder = getCompileCacheDir();
  return folder === undefined ? {} : { NODE_COMPILE_CACHE: dirname(folder) };
}
