/** Deletes rows in statements that are short enough for the statements of others. */

/** Some seconds: the other jobs of the minute, and the end of the process, wait for one run. */
const MAX_BATCHES = 500;

/**
 * Calls `deleteSome`, which deletes at most `most` rows and returns them, until fewer are left, or until
 * it has run for some seconds. Returns the number of deleted rows.
 */
export async function deleteInBatches(
  most: number,
  deleteSome: () => Promise<readonly unknown[]>,
): Promise<number> {
  let deleted = 0;
  for (let batches = 0; batches < MAX_BATCHES; batches += 1) {
    const { length } = await deleteSome();
    deleted += length;
    if (length < most) break;
  }
  return deleted;
}
