/**
 * Writes responses with base64 images into one buffer, in turns of the event loop. Ten images of
 * 2 MB would block it for a tenth of a second. The end is written after the charge, whose cost it
 * contains.
 */
import { base64Of } from '../core/event-loop.ts';

/** For the end of a body, which contains the size, the usage and the cost. */
const SPARE_BYTES = 64 * 1024;
const BYTES_PER_GROUP = 3;
const CHARACTERS_PER_GROUP = 4;

/** Text, or bytes that are written as base64. */
export type BodyPart = string | Buffer;

export class ImagesBody {
  readonly #bytes: Buffer;
  readonly #sizeBytes: number;

  private constructor(bytes: Buffer, sizeBytes: number) {
    this.#bytes = bytes;
    this.#sizeBytes = sizeBytes;
  }

  static async of(parts: readonly BodyPart[]): Promise<ImagesBody> {
    let needed = SPARE_BYTES;
    for (const part of parts) needed += sizeOf(part);
    const bytes = Buffer.allocUnsafeSlow(needed);
    let at = 0;
    for (const part of parts) {
      if (typeof part === 'string') at += bytes.write(part, at);
      else for await (const piece of base64Of(part)) at += bytes.write(piece, at, 'latin1');
    }
    return new ImagesBody(bytes, at);
  }

  /** The complete body. A repeated call, as after a repeated settle, overwrites the previous body. */
  end(last: string): Buffer {
    const sizeBytes = this.#sizeBytes + Buffer.byteLength(last);
    const written = this.#bytes.subarray(0, this.#sizeBytes);
    if (sizeBytes > this.#bytes.length) return Buffer.concat([written, Buffer.from(last)]);
    this.#bytes.write(last, this.#sizeBytes);
    return this.#bytes.subarray(0, sizeBytes);
  }
}

function sizeOf(part: BodyPart): number {
  if (typeof part === 'string') return Buffer.byteLength(part);
  return Math.ceil(part.length / BYTES_PER_GROUP) * CHARACTERS_PER_GROUP;
}
