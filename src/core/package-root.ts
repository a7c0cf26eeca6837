/**
 * Finds what lies beside the code in the package: assets and the lock of the engines. A checkout and
 * a build have them at the same places.
 */
import { fileURLToPath } from 'node:url';

/** The absolute path of a file or folder of the package, such as `assets/farebox-demo.gguf`. */
export function packagePath(name: string): string {
  return fileURLToPath(new URL(`../../${name}`, import.meta.url));
}
