/** Locates assets and the engine lock file, in a checkout and in a build. */
import { fileURLToPath } from 'node:url';

/** Returns the absolute path of a file or folder, such as `assets/farebox-demo.gguf`. */
export function packagePath(name: string): string {
  return fileURLToPath(new URL(`../../${name}`, import.meta.url));
}
