/**
 * Assertions for programmer errors, never for bad input. A failed assertion ends the request with a
 * 500 and releases its hold; the process continues.
 */

/** Thrown for a broken invariant: always a bug in Farebox. */
export class AssertionError extends Error {
  override readonly name = 'AssertionError';
}

export function assert(condition: unknown, message: string): asserts condition {
  if (!condition) throw new AssertionError(message);
}

/** Ends an exhaustive `switch`: reaching it is a bug. */
export function unreachable(value: never): never {
  throw new AssertionError(`unreachable value: ${String(value)}`);
}
