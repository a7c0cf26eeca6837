/**
 * Environment of a process that a test starts: only `PATH` and the compile cache, which halves the
 * start time.
 */
export function childEnvironment(
  more: Readonly<Record<string, string | undefined>> = {},
): Record<string, string | undefined> {
  const cache = process.env['NODE_COMPILE_CACHE'];
  return {
    PATH: process.env['PATH'],
    ...(cache === undefined ? {} : { NODE_COMPILE_CACHE: cache }),
    ...more,
  };
}
