/**
 * Resolves the packages of an engine in the folder that they were fetched into. Imports nothing else of
 * the program, so that a process that runs one task starts soon.
 */
import { registerHooks } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

export interface FetchedPackages {
  /** Contains `node_modules`. */
  readonly folder: string;
  readonly names: readonly string[];
}

/** Affects all later imports of this process. */
export function resolveFrom({ folder, names }: FetchedPackages): void {
  const parentURL = pathToFileURL(join(folder, 'engine.js')).href;
  registerHooks({
    resolve: (specifier, context, next) =>
      names.some((one) => specifier === one || specifier.startsWith(`${one}/`))
        ? next(specifier, { ...context, parentURL })
        : next(specifier, context),
  });
}
