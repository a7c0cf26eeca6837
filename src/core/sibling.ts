/** Locates the entry file of a child process or worker beside a module, as .ts or .js. */

/** Returns the URL of `<name>` with the extension of `moduleUrl`, next to it. */
export function siblingUrl(moduleUrl: string, name: string): URL {
  const extension = moduleUrl.endsWith('.ts') ? '.ts' : '.js';
  return new URL(`${name}${extension}`, moduleUrl);
}
