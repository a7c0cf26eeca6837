/**
 * Limits how many rows of a table accounts may add per day for free. Once half of the daily total
 * is used, each account gets only a few, so that many free accounts share the rest.
 *
 * Counts are per process and start with it, so several processes have these limits each.
 */

export interface DailyBounds {
  readonly ofAccount: number;
  /** Rows per account and day once more than half of `ofAll` is used. */
  readonly few: number;
  readonly ofAll: number;
}

export class DailyRows {
  readonly #bounds: DailyBounds;
  #day = 0;
  #taken = 0;
  readonly #accounts = new Map<string, number>();

  constructor(bounds: DailyBounds) {
    this.#bounds = bounds;
  }

  /** `rows` is more than 1 for a row that counts as several, because of its size. */
  take(accountId: string, day: number, rows = 1): boolean {
    if (day > this.#day) {
      this.#day = day;
      this.#taken = 0;
      this.#accounts.clear();
    }
    // After the clock was set back by days, the count of the later day continues today only.
    if (day < this.#day - 1) this.#day = day;
    const { ofAccount, few, ofAll } = this.#bounds;
    const taken = this.#accounts.get(accountId) ?? 0;
    const most = this.#taken < ofAll / 2 ? ofAccount : few;
    if (taken >= most || this.#taken >= ofAll) return false;
    this.#accounts.set(accountId, taken + rows);
    this.#taken += rows;
    return true;
  }
}
