/**
 * Loads a package that may be missing: the native parts of embedded engines are optional
 * dependencies, and a machine without them gets a sentence that says how to add them.
 */
import { Fault } from '../../core/faults.ts';

/**
 * Imports `name`, typed by the caller. Faults: SERVICE_UNAVAILABLE with the command that adds it,
 * or with the loader's own words when the package is there but does not load.
 */
export async function optionalPackage<T>(name: string, need: string): Promise<T> {
  try {
    return (await import(name)) as T; // the caller names the package's own type
  } catch (error) {
    // Absent or not loadable: an expected state of a machine, told in words.
    const code = error instanceof Error && 'code' in error ? error.code : undefined;
    const isAbsent = code === 'ERR_MODULE_NOT_FOUND' || code === 'MODULE_NOT_FOUND';
    const message = isAbsent
      ? `${need} needs the optional package "${name}": run \`npm install ${name}\` beside Farebox and start again`
      : `${need} could not load the package "${name}": run \`npm rebuild ${name}\`, or use an engine of your own`;
    throw new Fault('SERVICE_UNAVAILABLE', { message, cause: error, canRetry: false });
  }
}
