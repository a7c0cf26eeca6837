/** Long work in pieces: between two of them the event loop serves others. */

/** Resolves in a later turn of the event loop, after what waits there now. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve);
  });
}
