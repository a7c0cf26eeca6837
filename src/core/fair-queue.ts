/**
 * A queue in which callers take turns: first come, first served within one caller, and one item of
 * each caller before the second of any. However much one caller puts in, another waits for at most
 * one item of each of those before it. Only what has to wait enters it.
 */
interface Line<T> {
  readonly caller: string;
  readonly items: T[];
}

export class FairQueue<T> {
  /** Those who wait, the next one first. */
  readonly #lines: Line<T>[] = [];
  /** Items that wait; the queue's own to change. */
  size = 0;

  /** Items of one caller. */
  sizeOf(caller: string): number {
    return this.#line(caller)?.items.length ?? 0;
  }

  add(caller: string, item: T): void {
    const line = this.#line(caller);
    if (line === undefined) this.#lines.push({ caller, items: [item] });
    else line.items.push(item);
    this.size += 1;
  }

  /** Takes an item out that waits no longer; harmless when it is not there. */
  remove(caller: string, item: T): void {
    const line = this.#line(caller);
    const at = line?.items.indexOf(item) ?? -1;
    if (line === undefined || at < 0) return;
    line.items.splice(at, 1);
    this.size -= 1;
    if (line.items.length === 0) this.#lines.splice(this.#lines.indexOf(line), 1);
  }

  /** Takes the next item of a caller that may go; its caller is last from then on. */
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

  /** Takes the newest item of the longest line out, if that is longer than the caller's would be. */
  takeLastOfLongest(caller: string): T | undefined {
    let longest: Line<T> | undefined;
    for (const line of this.#lines)
      if (longest === undefined || line.items.length > longest.items.length) longest = line;
    if (longest === undefined || longest.items.length <= this.sizeOf(caller) + 1) return undefined;
    // A line that long keeps items of its own.
    this.size -= 1;
    return longest.items.pop();
  }

  #line(caller: string): Line<T> | undefined {
    return this.#lines.find((line) => line.caller === caller);
  }
}
