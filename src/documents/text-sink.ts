/**
 * Collects text up to a number of characters; drops the rest and sets `isTruncated`. Readers check
 * `isFull` to stop early, and `isTruncated` before they start another part.
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

  get leftChars(): number {
    return this.#maxChars - this.#chars;
  }

  write(text: string): void {
    if (text.length > this.leftChars) this.#truncated = true;
    const taken = text.slice(0, this.leftChars);
    if (taken === '') return;
    this.#parts.push(taken);
    this.#chars += taken.length;
  }

  writeMarkdown({
    text,
    isTruncated,
  }: {
    readonly text: string;
    readonly isTruncated: boolean;
  }): void {
    this.write(text);
    if (isTruncated) this.#truncated = true;
  }

  /** Marks the text as truncated although there was capacity. */
  markTruncated(): void {
    this.#truncated = true;
  }

  toString(): string {
    return this.#parts.join('').toWellFormed().trim();
  }
}
