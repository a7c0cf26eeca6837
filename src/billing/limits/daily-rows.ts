/**
 * How many rows of a table accounts may add in a day for nothing. When half of the rows of all
 * accounts are taken an account gets few, so that many accounts, which cost nothing either, share the rest.
 *
 * A process counts from its start and for itself: several have the bounds each.
 */

export interface DailyBounds {
  /** Rows that one account may add in a day. */
  readonly ofAccount: number;
  /** The same of an account while more than half of the rows of all are taken. */
  readonly few: number;
  /** Rows that all accounts together may add in a day. */
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

  /** Takes one row; `false` when the account has no more today. */
  take(accountId: string, day: number): boolean {
    // A day that was counted does not begin again when the clock is set back.
    if (day > this.#day) {
      this.#day = day;
      this.#taken = 0;
      this.#accounts.clear();
    }
    const { ofAccount, few, ofAll } = this.#bounds;
    const taken = this.#accounts.get(accountId) ?? 0;
    const most = this.#taken < ofAll / 2 ? ofAccount : few;
    if (taken >= most || this.#taken >= ofAll) return false;
    this.#accounts.set(accountId, taken + 1);
    this.#taken += 1;
    return true;
  }
}
