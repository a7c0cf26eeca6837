/** Values that are created once, on first use. */

/** Calls `make` once and shares its result; after a failure the next call tries again. */
export function onDemand<T>(make: () => Promise<T>): () => Promise<T> {
  let making: Promise<T> | undefined;
  return async () => {
    making ??= make();
    try {
      return await making;
    } catch (error) {
      making = undefined;
      throw error;
    }
  };
}
