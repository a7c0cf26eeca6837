/** Imports a native package of an engine. */
import { Fault } from '../../src/core/faults.ts';

/** Resolves to the package. Faults: SERVICE_UNAVAILABLE if it does not load on this machine. */
export async function nativePackage<T>(name: string, need: string): Promise<T> {
  try {
    return (await import(name)) as T; // the caller names the type of the package
  } catch (error) {
    // Expected on machines whose processor or C library has no prebuilt binary.
    const reason = error instanceof Error ? (error.message.split('\n')[0] ?? '') : String(error);
    const message = `${need} could not load the package "${name}" (${reason}): use an engine of your own`;
    throw new Fault('SERVICE_UNAVAILABLE', { message, cause: error, canRetry: false });
  }
}
