/** Deletes rows in statements that are short enough for the statements of others. */

/**
 * Calls `deleteSome`, which deletes at most `most` rows and returns them, until fewer are left. Returns
 * the number of deleted rows.
 */
export async function deleteInBatches(
  most: number,
  deleteSome: () => Promise<readonly unknown[]>,
): Promise<number> {
  let deleted = 0;
  for (;;) {
    const { length } = await deleteSome();
    deleted += length;
    if (length < most) return deleted;
  }
}
