/**
 * Locates the entry file of a worker or child process next to the module that starts it, in
 * TypeScript (checkout) or JavaScript (package).
 */

/** Returns the URL of `<name>` with the extension of `moduleUrl`, next to it. */
export function siblingUrl(moduleUrl: string, name: string): URL {
  const extension = moduleUrl.endsWith('.ts') ? '.ts' : '.js';
  return new URL(`${name}${extension}`, moduleUrl);
}
