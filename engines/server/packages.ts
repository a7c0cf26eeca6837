/**
 * Resolves the packages of an engine from the folder into which they were fetched. Imports no other
 * file of the program, so that a process with one task starts quickly.
 */
import { registerHooks } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

/** Affects all later imports of this process. */
export function resolveFrom({
  folder,
  names,
}: {
  readonly folder: string;
  readonly names: readonly string[];
}): void {
  const parentURL = pathToFileURL(join(folder, 'engine.js')).href;
  registerHooks({
    resolve: (specifier, context, next) =>
      names.some((one) => specifier === one || specifier.startsWith(`${one}/`))
        ? next(specifier, { ...context, parentURL })
        : next(specifier, context),
  });
}
