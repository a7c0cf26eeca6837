/**
 * Decodes a PNG completely without storing pixels: verifies every chunk with its checksum and all
 * rows of all passes, and measures the visible and the transparent share of its alpha channel. A
 * PNG that passes can be displayed.
 *
 * Only the alpha bytes are unfiltered: a PNG filter never mixes bytes of different channels (PNG
 * §9). This saves most of the work and needs the memory of two rows.
 */
import { crc32, createInflate } from 'node:zlib';
import { ReaderError } from './reader-error.ts';

export interface PngFacts {
  readonly width: number;
  readonly height: number;
  /** Shares of all pixels, from 0 to 1; `undefined` for an image without alpha. */
  readonly alpha: AlphaShares | undefined;
}

export interface AlphaShares {
  readonly visible: number;
  readonly clear: number;
}

/**
 * A quarter of full opacity: a pixel below it counts as transparent; above its mirror value it
 * counts as opaque.
 */
const VISIBLE_FROM = 64;
const CLEAR_TO = 255 - VISIBLE_FROM;

const SIGNATURE = Buffer.from('\x89PNG\r\n\x1a\n', 'latin1');
const CHUNK_FRAME_BYTES = 12;
const HEADER_BYTES = 13;
const INFLATE_CHUNK_BYTES = 256 * 1024;

interface Chunk {
  readonly type: string;
  readonly data: Buffer;
}

function damaged(problem: string): ReaderError {
  return new ReaderError(`is not a complete PNG: ${problem}`);
}

/** The properties of a PNG; throws `ReaderError` if it is invalid or incomplete. */
export async function readPng(bytes: Buffer): Promise<PngFacts> {
  const [first, ...chunks] = chunksOf(bytes);
  if (first?.type !== 'IHDR') throw damaged('it does not begin with its header');
  const header = readHeader(first.data);
  const dataOf = (wanted: string): Buffer[] =>
    chunks.flatMap(({ type, data }) => (type === wanted ? [data] : []));
  if (header.colour === PALETTE && dataOf('PLTE').length === 0) throw damaged('it has no palette');
  const rows = new Rows(header, dataOf('tRNS')[0]);
  const inflate = createInflate({ chunkSize: INFLATE_CHUNK_BYTES });
  for (const data of dataOf('IDAT')) inflate.write(data);
  inflate.end();
  try {
    for await (const chunk of inflate as AsyncIterable<Buffer>) rows.push(chunk); // without an encoding, chunks are buffers
  } catch (error) {
    throw error instanceof ReaderError ? error : damaged('its pixels cannot be decompressed');
  }
  if (!rows.isComplete) throw damaged('pixels are missing');
  const { width, height } = header;
  return { width, height, alpha: rows.alpha };
}

/** All chunks; throws if one is cut off or damaged, or if data follows the last one. */
function chunksOf(bytes: Buffer): Chunk[] {
  if (!bytes.subarray(0, SIGNATURE.length).equals(SIGNATURE)) throw damaged('it has no signature');
  const chunks: Chunk[] = [];
  for (let at = SIGNATURE.length; at + CHUNK_FRAME_BYTES <= bytes.length;) {
    const end = at + CHUNK_FRAME_BYTES + bytes.readUInt32BE(at);
    if (end > bytes.length) break;
    const body = bytes.subarray(at + 4, end - 4);
    const type = body.toString('latin1', 0, 4);
    if (crc32(body) !== bytes.readUInt32BE(end - 4)) throw damaged('a checksum does not match');
    chunks.push({ type, data: body.subarray(4) });
    if (type === 'IEND') {
      if (end !== bytes.length) throw damaged('bytes follow its end');
      return chunks;
    }
    at = end;
  }
  throw damaged('it is incomplete');
}

const [GREY, COLOUR, PALETTE, GREY_ALPHA, COLOUR_ALPHA] = [0, 2, 3, 4, 6] as const;
/** PNG §11.2.2: channels and allowed bit depths of each colour type. */
const FORMATS: Readonly<Record<number, { channels: number; depths: readonly number[] }>> = {
  [GREY]: { channels: 1, depths: [1, 2, 4, 8, 16] },
  [COLOUR]: { channels: 3, depths: [8, 16] },
  [PALETTE]: { channels: 1, depths: [1, 2, 4, 8] },
  [GREY_ALPHA]: { channels: 2, depths: [8, 16] },
  [COLOUR_ALPHA]: { channels: 4, depths: [8, 16] },
};
/** Position of the first pixel of a pass, and the steps to the next ones (PNG §8.2). */
const ADAM7 = [
  [0, 0, 8, 8],
  [4, 0, 8, 8],
  [0, 4, 4, 8],
  [2, 0, 4, 4],
  [0, 2, 2, 4],
  [1, 0, 2, 2],
  [0, 1, 1, 2],
] as const;

interface Pass {
  readonly width: number;
  readonly height: number;
}

interface Header extends Pass {
  readonly depth: number;
  readonly colour: number;
  readonly bitsPerPixel: number;
  readonly passes: readonly Pass[];
}

function readHeader(data: Buffer): Header {
  if (data.length !== HEADER_BYTES) throw damaged('its header is invalid');
  const [width, height] = [data.readUInt32BE(0), data.readUInt32BE(4)];
  const [depth = 0, colour = 0, compression, filter, interlace = 0] = data.subarray(8);
  const format = FORMATS[colour];
  const isMethodKnown = compression === 0 && filter === 0 && interlace <= 1;
  if (format?.depths.includes(depth) !== true || !isMethodKnown || width * height === 0) {
    throw damaged('its header is invalid');
  }
  const passes =
    interlace === 0
      ? [{ width, height }]
      : ADAM7.map(([x, y, across, down]) => ({
          width: Math.ceil((width - x) / across),
          height: Math.ceil((height - y) / down),
        })).filter((pass) => pass.width > 0 && pass.height > 0);
  return { width, height, depth, colour, bitsPerPixel: depth * format.channels, passes };
}

/** Assembles rows from decompressed bytes, and counts their alpha values. */
class Rows {
  readonly #header: Header;
  readonly #transparency: Buffer | undefined;
  readonly #hasAlpha: boolean;
  /** Offset of the alpha byte (the high one of two) in a pixel, and bytes per pixel. */
  readonly #lane: number;
  readonly #stride: number;
  #pass = 0;
  #done = 0;
  #row: Buffer = Buffer.alloc(0);
  #filled = 0;
  #above: Uint8Array = new Uint8Array();
  #here: Uint8Array = new Uint8Array();
  #visible = 0;
  #clear = 0;

  constructor(header: Header, transparency: Buffer | undefined) {
    const { colour, depth, bitsPerPixel } = header;
    this.#header = header;
    this.#transparency = colour === PALETTE ? transparency : undefined;
    this.#hasAlpha =
      colour === GREY_ALPHA || colour === COLOUR_ALPHA || this.#transparency !== undefined;
    this.#stride = Math.max(1, bitsPerPixel / 8);
    this.#lane = colour === PALETTE ? 0 : this.#stride - depth / 8;
    this.#begin();
  }

  get isComplete(): boolean {
    return this.#pass === this.#header.passes.length;
  }

  get alpha(): AlphaShares | undefined {
    const pixels = this.#header.width * this.#header.height;
    return this.#hasAlpha
      ? { visible: this.#visible / pixels, clear: this.#clear / pixels }
      : undefined;
  }

  push(chunk: Buffer): void {
    let at = 0;
    while (at < chunk.length) {
      if (this.isComplete) throw damaged('it has more pixels than its header states');
      const take = Math.min(chunk.length - at, this.#row.length - this.#filled);
      chunk.copy(this.#row, this.#filled, at, at + take);
      at += take;
      this.#filled += take;
      if (this.#filled === this.#row.length) this.#end();
    }
  }

  #begin(): void {
    const pass = this.#header.passes[this.#pass];
    if (pass === undefined) return;
    const { bitsPerPixel, colour } = this.#header;
    const bytes = Math.ceil((pass.width * bitsPerPixel) / 8);
    // Each row starts with a filter byte.
    this.#row = Buffer.alloc(1 + bytes);
    this.#done = 0;
    this.#above = new Uint8Array(colour === PALETTE ? bytes : pass.width);
    this.#here = new Uint8Array(this.#above.length);
  }

  #end(): void {
    this.#filled = 0;
    const filter = this.#row[0] ?? 0;
    if (filter > 4) throw damaged('a row has an unknown filter');
    const { width = 0, height = 0 } = this.#header.passes[this.#pass] ?? {};
    if (this.#hasAlpha) {
      this.#unfilter(filter);
      if (this.#transparency === undefined) this.#count(this.#here);
      else this.#count(this.#alphasOf(width, this.#transparency));
      [this.#above, this.#here] = [this.#here, this.#above];
    }
    this.#done += 1;
    if (this.#done < height) return;
    this.#pass += 1;
    this.#begin();
  }

  /** PNG §9.2, for the alpha bytes only. */
  #unfilter(filter: number): void {
    const [row, above, here, stride] = [this.#row, this.#above, this.#here, this.#stride];
    let [left, corner] = [0, 0];
    for (let at = 0, from = 1 + this.#lane; at < here.length; at += 1, from += stride) {
      const up = above[at] ?? 0;
      let value = row[from] ?? 0;
      if (filter === 1) value += left;
      else if (filter === 2) value += up;
      else if (filter === 3) value += (left + up) >> 1;
      else if (filter === 4) value += paeth(left, up, corner);
      left = value & 0xff;
      corner = up;
      here[at] = left;
    }
  }

  /** The alpha of each palette index of a row; entries without a value are opaque. */
  #alphasOf(width: number, transparency: Buffer): Uint8Array {
    const { depth } = this.#header;
    const mask = (1 << depth) - 1;
    return Uint8Array.from({ length: width }, (_unused, at) => {
      const bit = at * depth;
      const index = ((this.#here[bit >> 3] ?? 0) >> (8 - depth - (bit & 7))) & mask;
      return transparency[index] ?? 0xff;
    });
  }

  #count(values: Uint8Array): void {
    for (const value of values) {
      if (value >= VISIBLE_FROM) this.#visible += 1;
      if (value <= CLEAR_TO) this.#clear += 1;
    }
  }
}

function paeth(left: number, up: number, corner: number): number {
  const guess = left + up - corner;
  const byLeft = Math.abs(guess - left);
  const byUp = Math.abs(guess - up);
  const byCorner = Math.abs(guess - corner);
  if (byLeft <= byUp && byLeft <= byCorner) return left;
  return byUp <= byCorner ? up : corner;
}
