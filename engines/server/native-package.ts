/** Imports a native package of an engine. */
import { Fault } from '../../src/core/faults.ts';

/** Typed by the caller. Faults: SERVICE_UNAVAILABLE if the package does not load on this machine. */
export async function nativePackage<T>(name: string, need: string): Promise<T> {
  try {
    return (await import(name)) as T; // the caller names the package's own type
  } catch (error) {
    // A processor or a C library without a binary is an expected state of a machine.
    const reason = error instanceof Error ? (error.message.split('\n')[0] ?? '') : String(error);
    const message = `${need} could not load the package "${name}" (${reason}): use an engine of your own`;
    throw new Fault('SERVICE_UNAVAILABLE', { message, cause: error, canRetry: false });
  }
}
