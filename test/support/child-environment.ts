/**
 * The environment of a process that a test starts: nothing of this one's but the path and where
 * compiled modules are kept, which halves the time of a start.
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
