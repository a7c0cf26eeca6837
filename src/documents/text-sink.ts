/**
 * Collects extracted text up to a number of characters; what comes later is dropped and said to
 * be. Readers ask `isFull` to stop a part early, and `isTruncated` before they begin another.
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

  get room(): number {
    return this.#maxChars - this.#chars;
  }

  write(text: string): void {
    if (text.length > this.room) this.#truncated = true;
    const taken = text.slice(0, this.room);
    if (taken === '') return;
    this.#parts.push(taken);
    this.#chars += taken.length;
  }

  /** Takes what was made of a part, within the room that there was. */
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

  /** Says that something was left out, although there was room. */
  markTruncated(): void {
    this.#truncated = true;
  }

  toString(): string {
    return this.#parts.join('').toWellFormed().trim();
  }
}
