/**
 * Collects extracted text up to a number of characters; what comes later is dropped and said to
 * be. Readers ask `isFull` to stop early.
 */
export class TextSink {
  readonly #parts: string[] = [];
  readonly #maxChars: number;
  #chars = 0;
  #truncated = false;

  constructor(maxChars: number) {
    this.#maxChars = maxChars;
  }

  get isFull(): boolean {
    return this.#chars >= this.#maxChars;
  }

  get isTruncated(): boolean {
    return this.#truncated;
  }

  get chars(): number {
    return this.#chars;
  }

  /** Takes as much of `text` as there is room for. */
  write(text: string): void {
    const room = this.#maxChars - this.#chars;
    if (text.length > room) this.#truncated = true;
    const taken = text.length > room ? text.slice(0, room) : text;
    if (taken === '') return;
    this.#parts.push(taken);
    this.#chars += taken.length;
  }

  /** Says that something was left out, although there was room. */
  markTruncated(): void {
    this.#truncated = true;
  }

  toString(): string {
    return this.#parts.join('').toWellFormed().trim();
  }
}
