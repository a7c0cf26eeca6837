/**
 * The program that tests start in processes of its own: the build of a whole run, which starts in
 * half the time, or the source of the checkout.
 */
import { fileURLToPath } from 'node:url';

/** Names the built program to the processes of a run. */
export const BUILT_PROGRAM = 'TEST_BUILT_PROGRAM';

export const PROGRAM =
  process.env[BUILT_PROGRAM] ?? fileURLToPath(new URL('../../src/main.ts', import.meta.url));
