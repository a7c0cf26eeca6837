/**
 * Collects bytes and texts in one buffer: one body, or one write to the socket.
 * The buffer is handed out and never touched again.
 */

/** What we add is rarely longer. */
const SLACK_BYTES = 1024;
const EMPTY = Buffer.alloc(0);

export class ByteWriter {
  #bytes: Buffer = EMPTY;
  #length = 0;
  readonly #expectedBytes: number;
  readonly #slackBytes: number;

  /** Takes the expected bytes and the slack at once, so both can be exact. */
  constructor(expectedBytes: number, slackBytes: number = SLACK_BYTES) {
    this.#expectedBytes = expectedBytes;
    this.#slackBytes = slackBytes;
  }

  write(bytes: Buffer): void {
    this.writeSpan(bytes, 0, bytes.length);
  }

  writeSpan(bytes: Buffer, start: number, end: number): void {
    this.#reserve(end - start);
    this.#length += bytes.copy(this.#bytes, this.#length, start, end);
  }

  writeText(text: string): void {
    // Three bytes hold any UTF-16 unit; counting them costs as much as writing them.
    this.#reserve(text.length > SLACK_BYTES ? Buffer.byteLength(text) : 3 * text.length);
    this.#length += this.#bytes.write(text, this.#length);
  }

  finish(): Buffer {
    if (this.#length === this.#bytes.length) return this.#bytes;
    return this.#bytes.subarray(0, this.#length);
  }

  #reserve(sizeBytes: number): void {
    const needed = this.#length + sizeBytes;
    if (needed <= this.#bytes.length) return;
    const grown = Math.max(needed, 2 * this.#bytes.length, this.#expectedBytes + this.#slackBytes);
    const bytes = Buffer.allocUnsafe(grown);
    this.#bytes.copy(bytes, 0, 0, this.#length);
    this.#bytes = bytes;
  }
}
