/**
 * Messages on a pipe between the server and a worker process: a length, a JSON header, a length,
 * raw bytes. The payload is never converted, and a large one is one write.
 */

export interface Frame<Header> {
  readonly header: Header;
  readonly payload: Buffer;
}

const PREFIX_BYTES = 8;

export function encodeFrame(header: unknown, payload: Uint8Array): readonly Uint8Array[] {
  const text = Buffer.from(JSON.stringify(header));
  const prefix = Buffer.alloc(PREFIX_BYTES);
  prefix.writeUInt32BE(text.length, 0);
  prefix.writeUInt32BE(payload.byteLength, 4);
  return [Buffer.concat([prefix, text]), payload];
}

export class FrameReader<Header> {
  readonly #maxBytes: number;
  #chunks: Buffer[] = [];
  #bytes = 0;
  /** Bytes needed to complete the next frame, or to read its lengths. */
  #wantedBytes = PREFIX_BYTES;

  /** `push` throws if the peer announces a frame of more than `maxBytes`. */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  push(chunk: Buffer): Frame<Header>[] {
    this.#chunks.push(chunk);
    this.#bytes += chunk.length;
    const frames: Frame<Header>[] = [];
    while (this.#bytes >= this.#wantedBytes) {
      const all = Buffer.concat(this.#chunks);
      const headerEnd = PREFIX_BYTES + all.readUInt32BE(0);
      const frameBytes = headerEnd + all.readUInt32BE(4);
      if (frameBytes > this.#maxBytes) throw new RangeError('The frame is larger than any message');
      if (this.#bytes >= frameBytes) {
        // Both ends are this program.
        const header = JSON.parse(all.toString('utf8', PREFIX_BYTES, headerEnd)) as Header;
        frames.push({ header, payload: all.subarray(headerEnd, frameBytes) });
        this.#keep(all.subarray(frameBytes), PREFIX_BYTES);
      } else this.#keep(all, frameBytes);
    }
    return frames;
  }

  #keep(rest: Buffer, wantedBytes: number): void {
    this.#chunks = [rest];
    this.#bytes = rest.length;
    this.#wantedBytes = wantedBytes;
  }
}
