/**
 * Makes imports of packages find them in a folder of their own. Needs nothing else of the program:
 * a process that is started for one task has it, and is to start soon.
 */
import { registerHooks } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

/** From here on, for this process. `folder` holds `node_modules`; call it before the first import. */
export function importFrom(folder: string, packages: readonly string[]): void {
  const parentURL = pathToFileURL(join(folder, 'engine.js')).href;
  registerHooks({
    resolve: (specifier, context, next) =>
      packages.some((one) => specifier === one || specifier.startsWith(`${one}/`))
        ? next(specifier, { ...context, parentURL })
        : next(specifier, context),
  });
}
