/** Validates the callback URLs of callers when they are set. */
import { Fault, invalidField } from '../core/faults.ts';
import type { Guard } from '../net/guard.ts';

/** Throws 400 for a URL that the guard would reject. */
export async function requireCallbackUrl(
  guard: Pick<Guard, 'check'>,
  field: string,
  url: string,
): Promise<void> {
  try {
    await guard.check(url);
  } catch (error) {
    if (!(error instanceof Fault) || error.code !== 'UNSAFE_URL') throw error;
    throw invalidField([field], `${field}: ${error.message}`);
  }
}
