/**
 * The child's side of the native packages: makes the imports of an engine find them in the folder
 * of its set. Call it before the first import of one.
 */
import { Fault } from '../../core/faults.ts';
import {
  type EngineSet,
  enginePackages,
  findPackages,
  missingPackages,
  packageSet,
} from './engine-packages.ts';
import { importFrom } from './package-imports.ts';

/** Faults: SERVICE_UNAVAILABLE with the command that fetches them. */
export function useEnginePackages(name: EngineSet, dataFolder: string | undefined): void {
  const folder = findPackages(packageSet(name), dataFolder);
  if (folder === undefined) {
    const message = `The engine cannot start: ${missingPackages(name)}`;
    throw new Fault('SERVICE_UNAVAILABLE', { message, canRetry: false });
  }
  importFrom(folder, enginePackages(name));
}

/**
 * Imports a package of the set, typed by the caller. Faults: SERVICE_UNAVAILABLE when it does not
 * load on this machine.
 */
export async function nativePackage<T>(name: string, need: string): Promise<T> {
  try {
    return (await import(name)) as T; // the caller names the package's own type
  } catch (error) {
    // A processor or a C library that it was not made for: an expected state of a machine.
    const reason = error instanceof Error ? (error.message.split('\n')[0] ?? '') : String(error);
    const message = `${need} could not load the package "${name}" (${reason}): use an engine of your own`;
    throw new Fault('SERVICE_UNAVAILABLE', { message, cause: error, canRetry: false });
  }
}
