/**
 * What may be had so many times at once, shared out by who asks: while most of it is taken, the rest is
 * for those who have less than that much.
 */
const SHARE_FOR_ALL = 3 / 4;

export class FairShare {
  readonly #most: number;
  readonly #taken = new Map<string, number>();
  #all = 0;

  constructor(most: number) {
    this.#most = most;
  }

  /** How often it is taken. */
  get all(): number {
    return this.#all;
  }

  /** Takes one, which is to be given back; `false` when there is none for this one. */
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
