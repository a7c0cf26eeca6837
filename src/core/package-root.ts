/** Locates assets and the engine lock file, in a checkout and in a build. */
import { fileURLToPath } from 'node:url';

export function packagePath(name: string): string {
  return fileURLToPath(new URL(`../../${name}`, import.meta.url));
}
