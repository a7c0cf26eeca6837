/** The headers of one answer: name, value, name, value, as Node writes them. */
export class HeaderList {
  /** For Node. */
  readonly flat: string[] = [];

  /** A later value replaces an earlier one in its place. */
  set(name: string, value: string): void {
    const at = this.#find(name);
    if (at < 0) this.flat.push(name, value);
    else this.flat[at + 1] = value;
  }

  get(name: string): string | undefined {
    const at = this.#find(name);
    return at < 0 ? undefined : this.flat[at + 1];
  }

  has(name: string): boolean {
    return this.#find(name) >= 0;
  }

  names(): string[] {
    return this.flat.filter((_text, at) => at % 2 === 0);
  }

  #find(name: string): number {
    // An answer has some twenty headers: looking through them is faster than a map.
    for (let at = 0; at < this.flat.length; at += 2) if (this.flat[at] === name) return at;
    return -1;
  }
}
