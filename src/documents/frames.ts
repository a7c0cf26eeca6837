/**
 * Messages on a pipe between the server and a worker process: a length, a JSON header, a length,
 * raw bytes. Bytes are never turned into text or JSON, and a large payload is one write.
 */

export interface Frame<Header> {
  readonly header: Header;
  readonly payload: Buffer;
}

const PREFIX_BYTES = 8;

/** The pieces of one frame, to be written in order. */
export function encodeFrame(header: unknown, payload: Uint8Array): readonly Uint8Array[] {
  const text = Buffer.from(JSON.stringify(header));
  const prefix = Buffer.alloc(PREFIX_BYTES);
  prefix.writeUInt32BE(text.length, 0);
  prefix.writeUInt32BE(payload.byteLength, 4);
  return [Buffer.concat([prefix, text]), payload];
}

/** Puts frames together again from whatever pieces the pipe gives. */
export class FrameReader<Header> {
  readonly #maxBytes: number;
  #chunks: Buffer[] = [];
  #bytes = 0;

  /** A peer that announces a frame of more than `maxBytes` is broken: `push` throws then. */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** The frames that `chunk` completes. */
  push(chunk: Buffer): Frame<Header>[] {
    this.#chunks.push(chunk);
    this.#bytes += chunk.length;
    const frames: Frame<Header>[] = [];
    for (let frame = this.#next(); frame !== undefined; frame = this.#next()) frames.push(frame);
    return frames;
  }

  #next(): Frame<Header> | undefined {
    if (this.#bytes < PREFIX_BYTES) return undefined;
    const first = this.#chunks[0];
    if (first === undefined || first.length < PREFIX_BYTES) this.#join();
    const prefix = this.#chunks[0] ?? Buffer.alloc(PREFIX_BYTES);
    const headerBytes = prefix.readUInt32BE(0);
    const frameBytes = PREFIX_BYTES + headerBytes + prefix.readUInt32BE(4);
    if (frameBytes > this.#maxBytes) throw new RangeError('The frame is larger than any message');
    if (this.#bytes < frameBytes) return undefined;
    const all = this.#join();
    const rest = all.subarray(frameBytes);
    this.#chunks = rest.length === 0 ? [] : [rest];
    this.#bytes = rest.length;
    const header = all.toString('utf8', PREFIX_BYTES, PREFIX_BYTES + headerBytes);
    return {
      header: JSON.parse(header) as Header, // both ends are this program
      payload: all.subarray(PREFIX_BYTES + headerBytes, frameBytes),
    };
  }

  #join(): Buffer {
    const all = this.#chunks.length === 1 ? this.#chunks[0] : undefined;
    const joined = all ?? Buffer.concat(this.#chunks);
    this.#chunks = [joined];
    return joined;
  }
}
