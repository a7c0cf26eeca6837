/**
 * Reads members of a ZIP archive within limits. Sizes stated by the archive are not trusted: only
 * requested members are decompressed, and each of them and their total stop at a limit. Nested
 * archives are not opened.
 */
import { type Entry, type ZipFile, fromBufferPromise } from 'yauzl';
import { ReaderError } from './reader-error.ts';

const MAX_ENTRIES = 10_000;
const MAX_ENTRY_BYTES = 64_000_000;
const MAX_TOTAL_BYTES = 128_000_000;

const END_BYTES = 22;
/** The record before the end record of a zip64 archive. */
const ZIP64_LOCATOR = { signature: 0x07064b50, sizeBytes: 20 };
const [STORED, DEFLATED] = [0, 8];

export class ZipArchive {
  readonly #file: ZipFile;
  readonly #entries: ReadonlyMap<string, Entry>;
  #totalBytes = 0;

  private constructor(file: ZipFile, entries: ReadonlyMap<string, Entry>) {
    this.#file = file;
    this.#entries = entries;
  }

  static async open(bytes: Buffer): Promise<ZipArchive> {
    const entries = new Map<string, Entry>();
    // Names are kept as bytes, so that an invalid name does not make the archive unreadable.
    const options = { lazyEntries: true, decodeStrings: false, validateEntrySizes: false };
    const file = await orDamaged(fromBufferPromise(bytes, options));
    const locatorAt = bytes.length - END_BYTES - file.comment.length - ZIP64_LOCATOR.sizeBytes;
    const isZip64 = locatorAt >= 0 && bytes.readUInt32LE(locatorAt) === ZIP64_LOCATOR.signature;
    if (isZip64 || file.entryCount > MAX_ENTRIES) throw tooLarge();
    const readAll = async (): Promise<void> => {
      for await (const entry of file.eachEntry()) {
        const name = entry.fileNameRaw.toString().replaceAll('\\', '/').replace(/^\/+/, '');
        entries.set(name, entry);
      }
    };
    await orDamaged(readAll());
    return new ZipArchive(file, entries);
  }

  get names(): readonly string[] {
    return [...this.#entries.keys()];
  }

  has(name: string): boolean {
    return this.#entries.has(name);
  }

  /** The bytes of a member, or `undefined` without one; throws `ReaderError` above the limits. */
  async read(name: string): Promise<Buffer | undefined> {
    const entry = this.#entries.get(name);
    if (entry === undefined) return undefined;
    if (entry.isEncrypted()) throw new ReaderError('is protected by a password');
    if (entry.compressionMethod !== STORED && entry.compressionMethod !== DEFLATED) {
      throw new ReaderError('uses a compression that is not supported');
    }
    const content = await orDamaged(this.#inflate(entry));
    this.#totalBytes += content.length;
    return content;
  }

  async readText(name: string): Promise<string | undefined> {
    const content = await this.read(name);
    if (content === undefined) return undefined;
    if (content[0] === 0xff && content[1] === 0xfe) return content.toString('utf16le', 2);
    return content.toString('utf8').replace(/^\uFEFF/, '');
  }

  async #inflate(entry: Entry): Promise<Buffer> {
    const maxBytes = Math.min(MAX_ENTRY_BYTES, MAX_TOTAL_BYTES - this.#totalBytes);
    const pieces: Buffer[] = [];
    let sizeBytes = 0;
    const stream = await this.#file.openReadStreamPromise(entry);
    for await (const piece of stream as AsyncIterable<Buffer>) {
      sizeBytes += piece.length;
      if (sizeBytes > maxBytes) throw tooLarge();
      pieces.push(piece);
    }
    return Buffer.concat(pieces);
  }
}

/** Reports every error of the library as a damaged archive. */
async function orDamaged<T>(reading: Promise<T>): Promise<T> {
  try {
    return await reading;
  } catch (error) {
    throw error instanceof ReaderError ? error : new ReaderError('is damaged');
  }
}

function tooLarge(): ReaderError {
  return new ReaderError('decompresses to more than the limit');
}
