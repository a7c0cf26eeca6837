/**
 * Reads a PNG to its end without keeping a pixel: every chunk with its checksum, all rows of all
 * passes, and how much of the picture its alpha shows and clears. What it accepts, a viewer shows.
 *
 * Rows are unfiltered in one lane only: a PNG filter never mixes a byte with one of another channel
 * (PNG §9), so the alpha is had for a fraction of the work, in the memory of two rows.
 */
import { crc32, createInflate } from 'node:zlib';
import { ReaderError } from './reader-error.ts';

export interface PngFacts {
  readonly width: number;
  readonly height: number;
  /** Shares of all pixels, from 0 to 1; `undefined` for a picture that has no alpha. */
  readonly alpha: AlphaShares | undefined;
}

export interface AlphaShares {
  /** Pixels that can be seen at all. */
  readonly seen: number;
  /** Pixels through which something else can be seen. */
  readonly clear: number;
}

/** A quarter of full opacity: below it a pixel is as good as gone, and above its mirror as there. */
const SEEN_FROM = 64;
const CLEAR_TO = 255 - SEEN_FROM;

const SIGNATURE = Buffer.from('\x89PNG\r\n\x1a\n', 'latin1');
/** Length, type and checksum. */
const CHUNK_FRAME_BYTES = 12;
const HEADER_BYTES = 13;
const INFLATE_CHUNK_BYTES = 256 * 1024;

interface Chunk {
  readonly type: string;
  readonly data: Buffer;
}

function damaged(what: string): ReaderError {
  return new ReaderError(`is no whole PNG: ${what}`);
}

/** The facts of a PNG; throws `ReaderError` for anything that is not a whole one. */
export async function readPng(bytes: Buffer): Promise<PngFacts> {
  const [first, ...chunks] = chunksOf(bytes);
  if (first?.type !== 'IHDR') throw damaged('it does not begin with its header');
  const header = readHeader(first.data);
  const palette = chunks.find(({ type }) => type === 'PLTE');
  if (header.colour === PALETTE && palette === undefined) throw damaged('it has no palette');
  const transparency = chunks.find(({ type }) => type === 'tRNS')?.data;
  const alphas = new AlphaCounter(header, transparency);
  const rows = new Rows(header, alphas);
  const pixels = chunks.flatMap(({ type, data }) => (type === 'IDAT' ? [data] : []));
  const inflate = createInflate({ chunkSize: INFLATE_CHUNK_BYTES });
  for (const data of pixels) inflate.write(data);
  inflate.end();
  try {
    for await (const chunk of inflate as AsyncIterable<Buffer>) rows.push(chunk); // no encoding was set
  } catch (error) {
    throw error instanceof ReaderError ? error : damaged('its pixels cannot be unpacked');
  }
  if (!rows.isComplete) throw damaged('it lacks pixels');
  const { width, height } = header;
  return { width, height, alpha: alphas.shares(width * height) };
}

/** All chunks up to the end; throws when one is cut, wrong, or something follows the last. */
function chunksOf(bytes: Buffer): Chunk[] {
  if (!bytes.subarray(0, SIGNATURE.length).equals(SIGNATURE)) throw damaged('it has no signature');
  const chunks: Chunk[] = [];
  for (let at = SIGNATURE.length; at + CHUNK_FRAME_BYTES <= bytes.length;) {
    const end = at + CHUNK_FRAME_BYTES + bytes.readUInt32BE(at);
    if (end > bytes.length) break;
    const body = bytes.subarray(at + 4, end - 4);
    const type = body.toString('latin1', 0, 4);
    if (crc32(body) !== bytes.readUInt32BE(end - 4)) throw damaged('a checksum is wrong');
    chunks.push({ type, data: body.subarray(4) });
    if (type === 'IEND') {
      if (end !== bytes.length) throw damaged('something follows its end');
      return chunks;
    }
    at = end;
  }
  throw damaged('it is cut off');
}

const [GREY, COLOUR, PALETTE, GREY_ALPHA, COLOUR_ALPHA] = [0, 2, 3, 4, 6] as const;
/** PNG §11.2.2: the channels of each colour type, and the depths that it may have. */
const CHANNELS: Readonly<Record<number, number>> = {
  [GREY]: 1,
  [COLOUR]: 3,
  [PALETTE]: 1,
  [GREY_ALPHA]: 2,
  [COLOUR_ALPHA]: 4,
};
const DEPTHS: Readonly<Record<number, readonly number[]>> = {
  [GREY]: [1, 2, 4, 8, 16],
  [COLOUR]: [8, 16],
  [PALETTE]: [1, 2, 4, 8],
  [GREY_ALPHA]: [8, 16],
  [COLOUR_ALPHA]: [8, 16],
};
/** x and y of the first pixel of a pass, and the steps to the next ones (PNG §8.2). */
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
  /** Those that have pixels. */
  readonly passes: readonly Pass[];
}

function readHeader(data: Buffer): Header {
  if (data.length !== HEADER_BYTES) throw damaged('its header is wrong');
  const [width, height] = [data.readUInt32BE(0), data.readUInt32BE(4)];
  const [depth = 0, colour = 0, compression, filter, interlace = 0] = data.subarray(8);
  const channels = CHANNELS[colour];
  const isKnown = channels !== undefined && DEPTHS[colour]?.includes(depth) === true;
  if (!isKnown || compression !== 0 || filter !== 0 || interlace > 1 || width * height === 0) {
    throw damaged('its header is wrong');
  }
  const passes =
    interlace === 0
      ? [{ width, height }]
      : ADAM7.map(([x, y, across, down]) => ({
          width: Math.ceil((width - x) / across),
          height: Math.ceil((height - y) / down),
        })).filter((pass) => pass.width > 0 && pass.height > 0);
  return { width, height, depth, colour, bitsPerPixel: depth * channels, passes };
}

/** Puts the unpacked bytes together to rows. */
class Rows {
  readonly #header: Header;
  readonly #alphas: AlphaCounter;
  #pass = 0;
  /** Rows of this pass that are done. */
  #done = 0;
  #row: Buffer = Buffer.alloc(0);
  #filled = 0;

  constructor(header: Header, alphas: AlphaCounter) {
    this.#header = header;
    this.#alphas = alphas;
    this.#begin();
  }

  get isComplete(): boolean {
    return this.#pass === this.#header.passes.length;
  }

  push(chunk: Buffer): void {
    let at = 0;
    while (at < chunk.length) {
      if (this.isComplete) throw damaged('it has more pixels than its header says');
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
    // A filter byte stands before each row.
    this.#row = Buffer.alloc(1 + Math.ceil((pass.width * this.#header.bitsPerPixel) / 8));
    this.#done = 0;
    this.#alphas.beginPass(pass.width);
  }

  #end(): void {
    this.#filled = 0;
    this.#alphas.row(this.#row);
    this.#done += 1;
    if (this.#done < (this.#header.passes[this.#pass]?.height ?? 0)) return;
    this.#pass += 1;
    this.#begin();
  }
}

/** Counts the alpha of the rows that it is given, in their order. */
class AlphaCounter {
  readonly #header: Header;
  /** Of each palette entry. */
  readonly #transparency: Buffer | undefined;
  /** Where in a pixel the high byte of its alpha is, and how far the next pixel. */
  readonly #lane: number;
  readonly #stride: number;
  #width = 0;
  #above: Uint8Array = new Uint8Array();
  #here: Uint8Array = new Uint8Array();
  #seen = 0;
  #clear = 0;

  constructor(header: Header, transparency: Buffer | undefined) {
    const { colour, depth, bitsPerPixel } = header;
    this.#header = header;
    this.#transparency = colour === PALETTE ? transparency : undefined;
    this.#stride = Math.max(1, bitsPerPixel / 8);
    this.#lane = colour === PALETTE ? 0 : this.#stride - depth / 8;
  }

  get #hasAlpha(): boolean {
    const { colour } = this.#header;
    return colour === GREY_ALPHA || colour === COLOUR_ALPHA || this.#transparency !== undefined;
  }

  beginPass(width: number): void {
    const { bitsPerPixel, colour } = this.#header;
    const values = colour === PALETTE ? Math.ceil((width * bitsPerPixel) / 8) : width;
    this.#width = width;
    this.#above = new Uint8Array(values);
    this.#here = new Uint8Array(values);
  }

  row(row: Buffer): void {
    const filter = row[0] ?? 0;
    if (filter > 4) throw damaged('a row has an unknown filter');
    if (!this.#hasAlpha) return;
    this.#unfilter(filter, row);
    if (this.#transparency === undefined) this.#countValues(this.#here);
    else this.#countIndexes(this.#transparency);
    [this.#above, this.#here] = [this.#here, this.#above];
  }

  shares(pixels: number): AlphaShares | undefined {
    if (!this.#hasAlpha) return undefined;
    return { seen: this.#seen / pixels, clear: this.#clear / pixels };
  }

  /** PNG §9.2, of the lane alone. */
  #unfilter(filter: number, row: Buffer): void {
    const [above, here, stride] = [this.#above, this.#here, this.#stride];
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

  #countValues(values: Uint8Array): void {
    for (const value of values) {
      if (value >= SEEN_FROM) this.#seen += 1;
      if (value <= CLEAR_TO) this.#clear += 1;
    }
  }

  /** Entries without a value of their own are opaque. */
  #countIndexes(transparency: Buffer): void {
    const { depth } = this.#header;
    const values = new Uint8Array(this.#width);
    const mask = (1 << depth) - 1;
    for (let at = 0; at < values.length; at += 1) {
      const bit = at * depth;
      const byte = this.#here[bit >> 3] ?? 0;
      const index = (byte >> (8 - depth - (bit & 7))) & mask;
      values[at] = transparency[index] ?? 0xff;
    }
    this.#countValues(values);
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
