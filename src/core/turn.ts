/** Long work in pieces: between two of them the event loop serves others. */
import type { Hash } from 'node:crypto';

/** Some 6 ms of work. */
const HASHED_AT_ONCE_BYTES = 2 * 1024 * 1024;

/** Resolves in a later turn of the event loop, after what waits there now. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve);
  });
}

/** `hash.update(bytes)`, in several turns when there are many. */
export async function updateInTurns(hash: Hash, bytes: Buffer): Promise<void> {
  for (let at = 0; at < bytes.length; at += HASHED_AT_ONCE_BYTES) {
    if (at > 0) await nextTurn();
    hash.update(bytes.subarray(at, at + HASHED_AT_ONCE_BYTES));
  }
}
