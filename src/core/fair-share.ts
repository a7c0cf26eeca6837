/**
 * Shares a fixed number of slots between users: once `SHARE_FOR_ALL` of them are taken, the rest is
 * only for users that have taken less than the remaining share.
 */
const SHARE_FOR_ALL = 3 / 4;

export class FairShare {
  readonly #most: number;
  readonly #taken = new Map<string, number>();
  #all = 0;

  constructor(most: number) {
    this.#most = most;
  }

  get all(): number {
    return this.#all;
  }

  /** Takes a slot, which must be released; returns `false` if there is none for this user. */
  take(who: string): boolean {
    const own = this.#taken.get(who) ?? 0;
    const isGreedy = own >= this.#most * (1 - SHARE_FOR_ALL);
    if (this.#all >= this.#most * (isGreedy ? SHARE_FOR_ALL : 1)) return false;
    this.#taken.set(who, own + 1);
    this.#all += 1;
    return true;
  }

  giveBack(who: string): void {
    const left = (this.#taken.get(who) ?? 0) - 1;
    if (left > 0) this.#taken.set(who, left);
    else this.#taken.delete(who);
    this.#all -= 1;
  }
}
