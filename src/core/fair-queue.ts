/**
 * A round-robin queue: first in, first out within one caller, and one item of each caller before
 * the second of any. However much one caller adds, another waits for at most one item of each
 * caller ahead of it.
 */
interface Line<T> {
  readonly caller: string;
  readonly items: T[];
}

export class FairQueue<T> {
  readonly #lines: Line<T>[] = [];
  size = 0;

  sizeOf(caller: string): number {
    return this.#line(caller)?.items.length ?? 0;
  }

  add(caller: string, item: T): void {
    const line = this.#line(caller);
    if (line === undefined) this.#lines.push({ caller, items: [item] });
    else line.items.push(item);
    this.size += 1;
  }

  remove(caller: string, item: T): void {
    const line = this.#line(caller);
    const at = line?.items.indexOf(item) ?? -1;
    if (line === undefined || at < 0) return;
    line.items.splice(at, 1);
    this.size -= 1;
    if (line.items.length === 0) this.#lines.splice(this.#lines.indexOf(line), 1);
  }

  /** Removes the next item of a caller that may go; the caller moves to the end. */
  next(mayGo?: (caller: string) => boolean): T | undefined {
    const at = mayGo === undefined ? 0 : this.#lines.findIndex(({ caller }) => mayGo(caller));
    const line = this.#lines[at];
    if (line === undefined) return undefined;
    const item = line.items.shift();
    this.size -= 1;
    this.#lines.splice(at, 1);
    if (line.items.length > 0) this.#lines.push(line);
    return item;
  }

  /** Removes the newest item of the longest line, if that is longer than the caller's line. */
  takeLastOfLongest(caller: string): T | undefined {
    let longest: Line<T> | undefined;
    for (const line of this.#lines)
      if (longest === undefined || line.items.length > longest.items.length) longest = line;
    if (longest === undefined || longest.items.length <= this.sizeOf(caller) + 1) return undefined;
    this.size -= 1;
    return longest.items.pop();
  }

  #line(caller: string): Line<T> | undefined {
    return this.#lines.find((line) => line.caller === caller);
  }
}
