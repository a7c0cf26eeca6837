/** What is made once, when the first asks for it. */

/** Makes it for the first and all who ask meanwhile or later; what failed is tried again. */
export function onDemand<T>(make: () => Promise<T>): () => Promise<T> {
  let making: Promise<T> | undefined;
  return async () => {
    making ??= make();
    try {
      return await making;
    } catch (error) {
      // The next one tries again.
      making = undefined;
      throw error;
    }
  };
}
