/**
 * Reads members of a ZIP archive with hard bounds: what the archive says about its sizes is never
 * believed. Only what a reader asks for is inflated, each member and all of them together stop at
 * a limit, and archives inside archives stay closed.
 */
import { inflateRawSync } from 'node:zlib';
import { ReaderError } from './reader-error.ts';

const MAX_ENTRIES = 10_000;
const MAX_ENTRY_BYTES = 64_000_000;
const MAX_TOTAL_BYTES = 128_000_000;

const END_SIGNATURE = 0x06054b50;
const ENTRY_SIGNATURE = 0x02014b50;
const LOCAL_SIGNATURE = 0x04034b50;
const END_BYTES = 22;
const ENTRY_BYTES = 46;
const LOCAL_BYTES = 30;
const MAX_COMMENT_BYTES = 65_535;
const STORED = 0;
const DEFLATED = 8;

interface Entry {
  readonly method: number;
  readonly packedBytes: number;
  readonly offset: number;
  readonly isEncrypted: boolean;
}

export class ZipArchive {
  readonly #bytes: Buffer;
  readonly #entries: ReadonlyMap<string, Entry>;
  #totalBytes = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#entries = readDirectory(this.#bytes);
  }

  get names(): readonly string[] {
    return [...this.#entries.keys()];
  }

  has(name: string): boolean {
    return this.#entries.has(name);
  }

  /** The bytes of a member, or `undefined` when there is none; throws when it is over the bounds. */
  read(name: string): Buffer | undefined {
    const entry = this.#entries.get(name);
    if (entry === undefined) return undefined;
    if (entry.isEncrypted) throw new ReaderError('is protected by a password');
    const packed = this.#packed(entry);
    const room = Math.min(MAX_ENTRY_BYTES, MAX_TOTAL_BYTES - this.#totalBytes);
    const content = entry.method === STORED ? packed : inflate(packed, entry.method, room);
    if (content.length > room) throw tooMuch();
    this.#totalBytes += content.length;
    return content;
  }

  readText(name: string): string | undefined {
    const content = this.read(name);
    if (content === undefined) return undefined;
    if (content[0] === 0xff && content[1] === 0xfe) return content.toString('utf16le', 2);
    return content.toString('utf8').replace(/^\uFEFF/, '');
  }

  #packed(entry: Entry): Buffer {
    const { offset, packedBytes } = entry;
    if (offset + LOCAL_BYTES > this.#bytes.length) throw damaged();
    if (this.#bytes.readUInt32LE(offset) !== LOCAL_SIGNATURE) throw damaged();
    const start =
      offset +
      LOCAL_BYTES +
      this.#bytes.readUInt16LE(offset + 26) +
      this.#bytes.readUInt16LE(offset + 28);
    if (start + packedBytes > this.#bytes.length) throw damaged();
    return this.#bytes.subarray(start, start + packedBytes);
  }
}

function inflate(packed: Buffer, method: number, room: number): Buffer {
  if (method !== DEFLATED) throw new ReaderError('uses a compression that is not supported');
  if (room <= 0) throw tooMuch();
  try {
    return inflateRawSync(packed, { maxOutputLength: room });
  } catch (error) {
    // zlib says in its code whether the output limit or the data was at fault.
    const isOver =
      error instanceof Error && 'code' in error && error.code === 'ERR_BUFFER_TOO_LARGE';
    throw isOver ? tooMuch() : damaged();
  }
}

function readDirectory(bytes: Buffer): ReadonlyMap<string, Entry> {
  const end = findEnd(bytes);
  const count = bytes.readUInt16LE(end + 10);
  let at = bytes.readUInt32LE(end + 16);
  if (count > MAX_ENTRIES || at === 0xffffffff) throw tooMuch();
  const entries = new Map<string, Entry>();
  for (let index = 0; index < count; index++) {
    if (at + ENTRY_BYTES > bytes.length || bytes.readUInt32LE(at) !== ENTRY_SIGNATURE) {
      throw damaged();
    }
    const nameBytes = bytes.readUInt16LE(at + 28);
    const name = bytes.toString('utf8', at + ENTRY_BYTES, at + ENTRY_BYTES + nameBytes);
    entries.set(name.replaceAll('\\', '/').replace(/^\/+/, ''), {
      method: bytes.readUInt16LE(at + 10),
      packedBytes: bytes.readUInt32LE(at + 20),
      offset: bytes.readUInt32LE(at + 42),
      isEncrypted: (bytes.readUInt16LE(at + 8) & 1) === 1,
    });
    at += ENTRY_BYTES + nameBytes + bytes.readUInt16LE(at + 30) + bytes.readUInt16LE(at + 32);
  }
  return entries;
}

function findEnd(bytes: Buffer): number {
  const last = bytes.length - END_BYTES;
  for (let at = last; at >= Math.max(0, last - MAX_COMMENT_BYTES); at--) {
    if (bytes.readUInt32LE(at) === END_SIGNATURE) return at;
  }
  throw damaged();
}

function damaged(): ReaderError {
  return new ReaderError('is damaged');
}

function tooMuch(): ReaderError {
  return new ReaderError('unpacks to more than the limit');
}
