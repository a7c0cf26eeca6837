/** Assertions for programmer errors, never for bad input. A failed one ends its request: 500. */

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
