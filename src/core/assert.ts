/**
 * Assertions for programmer errors. A failed assertion ends the request with 500 and a request
 * id, releases its hold, and leaves the process alive; it is never used for bad input.
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
