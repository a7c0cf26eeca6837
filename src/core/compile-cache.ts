/**
 * Where Node keeps what it has compiled: a process that is started without an environment gets this
 * much, and starts in two thirds of the time.
 */
import { getCompileCacheDir } from 'node:module';
import { dirname } from 'node:path';

/** For the environment of a child process; empty where this process keeps nothing. */
export function compileCache(): Readonly<Record<string, string>> {
  // The folder of this version of Node, inside the one that was named.
  const folder = getCompileCacheDir();
  return folder === undefined ? {} : { NODE_COMPILE_CACHE: dirname(folder) };
}
