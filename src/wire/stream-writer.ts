/**
 * Collects the bytes of one answer to one piece of input: one buffer, one write to the socket.
 * The buffer is handed out and never touched again.
 */

/** Our id and model are rarely much longer than the engine's. */
const SLACK_BYTES = 1024;
const EMPTY = Buffer.alloc(0);

export class StreamWriter {
  #bytes: Buffer = EMPTY;
  #length = 0;
  readonly #expectedBytes: number;

  constructor(expectedBytes: number) {
    this.#expectedBytes = expectedBytes;
  }

  write(bytes: Buffer): void {
    this.writeSpan(bytes, 0, bytes.length);
  }

  writeSpan(bytes: Buffer, start: number, end: number): void {
    this.#reserve(end - start);
    this.#length += bytes.copy(this.#bytes, this.#length, start, end);
  }

  writeText(text: string): void {
    this.#reserve(Buffer.byteLength(text));
    this.#length += this.#bytes.write(text, this.#length);
  }

  finish(): Buffer {
    return this.#bytes.subarray(0, this.#length);
  }

  #reserve(sizeBytes: number): void {
    const needed = this.#length + sizeBytes;
    if (needed <= this.#bytes.length) return;
    const grown = Math.max(needed, 2 * this.#bytes.length, this.#expectedBytes + SLACK_BYTES);
    const bytes = Buffer.allocUnsafe(grown);
    this.#bytes.copy(bytes, 0, 0, this.#length);
    this.#bytes = bytes;
  }
}
