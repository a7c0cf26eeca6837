/**
 * Finds the entry file of a worker or child process beside the module that starts it, whether
 * the tree runs as TypeScript (checkout) or as JavaScript (package).
 */

/** URL of `<name>.ts` or `<name>.js`, resolved against `moduleUrl` and with its extension. */
export function siblingUrl(moduleUrl: string, name: string): URL {
  const extension = moduleUrl.endsWith('.ts') ? '.ts' : '.js';
  return new URL(`${name}${extension}`, moduleUrl);
}
