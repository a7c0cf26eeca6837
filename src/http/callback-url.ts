/** Addresses that callers want to be told at: looked at when they are named, not when it is too late. */
import { Fault, invalidField } from '../core/faults.ts';
import type { Guard } from '../net/guard.ts';

/** Throws 400 at a field with an address that nothing would be sent to. */
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
