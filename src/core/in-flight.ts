/**
 * What is under way: a list that an item enters and leaves in constant time, with its place kept in
 * the item. A `Set` would do the same and cost a third of a request: V8 rebuilds its table after
 * about as many insertions as it has room for, and an abandoned table that has reached the old
 * generation keeps every item that was ever in its successors alive at each scavenge.
 */

/** What can be under way, in one list at a time. */
export interface Placed {
  /** The list's own: where the item stands, -1 outside. */
  place: number;
}

export class InFlight<T extends Placed> {
  readonly #items: T[] = [];

  get size(): number {
    return this.#items.length;
  }

  add(item: T): void {
    item.place = this.#items.length;
    this.#items.push(item);
  }

  /** The last item takes the place of the one that leaves; one that is not here changes nothing. */
  delete(item: T): void {
    const { place } = item;
    if (this.#items[place] !== item) return;
    item.place = -1;
    const last = this.#items.pop();
    if (last === undefined || last === item) return;
    last.place = place;
    this.#items[place] = last;
  }

  /** Those that are under way now; they may leave while the caller walks through them. */
  all(): readonly T[] {
    return [...this.#items];
  }
}
