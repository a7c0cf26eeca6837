/**
 * The number of prompt tokens that are evaluated at once. A token of another caller waits for the
 * end of such a slice, and so does the end of an aborted request, so the number depends on the
 * speed of the machine. Small slices take more time in total: each reads all weights.
 */
const SLICE_MS = 150;
const MIN_TOKENS = 8;
const MAX_TOKENS = 256;
/** Before any slice was measured. */
const FIRST_TOKENS = 32;
/** Limits the growth after a slice that was fast by chance. */
const MAX_GROWTH = 2;

export class SliceLength {
  #tokens = FIRST_TOKENS;

  get tokens(): number {
    return this.#tokens;
  }

  /** `ms`: the time until `tokens` were evaluated, with the work of other callers in it. */
  record(tokens: number, ms: number): void {
    // The fixed cost of a short rest says nothing about a whole slice.
    if (tokens < MIN_TOKENS) return;
    const fitting = Math.floor((tokens * SLICE_MS) / Math.max(ms, 1));
    const most = Math.min(MAX_TOKENS, this.#tokens * MAX_GROWTH);
    this.#tokens = Math.max(MIN_TOKENS, Math.min(fitting, most));
  }
}
