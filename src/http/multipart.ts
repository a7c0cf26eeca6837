/** Reads multipart forms: from memory, or one file as a stream while the body arrives. */
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { Busboy, type BusboyInstance } from '@fastify/busboy';
import { Fault, invalidField } from '../core/faults.ts';
import { refuseCoding } from './body-bytes.ts';
import { nextTurn } from '../core/event-loop.ts';
import { MAX_PARTS } from './multipart-boundary.ts';
import type { RequestContext } from './request-context.ts';

export interface MultipartFile {
  readonly bytes: Buffer;
  /** A repeated field has several values. */
  readonly fields: URLSearchParams;
}

const MAX_FIELDS = 16;
const MAX_FIELD_BYTES = 4_096;
const MAX_HEADER_PAIRS = 32;
const BYTES_PER_MB = 1_000_000;
/** About 15 ms of work for a body that consists of nothing but empty parts. */
const PARSED_AT_ONCE_BYTES = 32 * 1024;
/** Room for each of several files before it is known how large it is. */
const FIRST_FILE_BYTES = 64 * 1024;
/** What a form has around its file, at most: the other fields and the heads of the parts. */
const FORM_FRAME_BYTES = 1024 * 1024;

export function isMultipart(context: RequestContext): boolean {
  return /^multipart\/form-data\b/i.test(context.header('content-type') ?? '');
}

/** A file of a form, with the field that it came in. */
export interface FormFile {
  readonly field: string;
  readonly bytes: Buffer;
}

export interface Form {
  /** In the order in which they came. */
  readonly files: readonly FormFile[];
  readonly fields: URLSearchParams;
}

export interface FormLimits {
  /** The fields whose files are read; others are passed over. */
  readonly names: readonly string[];
  readonly maxFiles: number;
  /** Of one file. */
  readonly maxBytes: number;
  /** Of a field that is no file. */
  readonly maxFieldBytes: number;
}

/**
 * The file of the field `name`. Faults: 400 without it or with a second one, 413 above `maxBytes`.
 */
export async function readFile(
  context: RequestContext,
  name: string,
  maxBytes: number,
): Promise<MultipartFile> {
  const { files, fields } = await readForm(context, oneFile(name, maxBytes));
  const [file] = files;
  if (file === undefined) throw noFile(name);
  return { bytes: file.bytes, fields };
}

/** Reads files and fields. Throws 400 for too many files or a long field, 413 above `maxBytes`. */
export async function readForm(context: RequestContext, limits: FormLimits): Promise<Form> {
  const files: { readonly field: string; readonly content: GrowingBuffer }[] = [];
  const mostBytes = context.body.length;
  const firstBytes = limits.maxFiles === 1 ? mostBytes : Math.min(mostBytes, FIRST_FILE_BYTES);
  // The bytes of one part may come when the next has begun already.
  const take = (stream: Readable, field: string): void => {
    const content = new GrowingBuffer(firstBytes);
    files.push({ field, content });
    stream.on('data', (chunk: Buffer) => content.add(chunk));
  };
  const body = Readable.from(piecesOf(context.body));
  const { fields } = await parse(context, body, { ...limits, take });
  return { files: files.map(({ field, content }) => ({ field, bytes: content.bytes })), fields };
}

/** Line ends make the parser give bytes one by one: they are not worth an object each. */
class GrowingBuffer {
  #content: Buffer;
  #sizeBytes = 0;

  constructor(firstBytes: number) {
    this.#content = Buffer.allocUnsafe(firstBytes);
  }

  get bytes(): Buffer {
    return this.#content.subarray(0, this.#sizeBytes);
  }

  add(chunk: Buffer): void {
    const neededBytes = this.#sizeBytes + chunk.length;
    if (neededBytes > this.#content.length) {
      const larger = Buffer.allocUnsafe(neededBytes * 2);
      this.#content.copy(larger, 0, 0, this.#sizeBytes);
      this.#content = larger;
    }
    this.#sizeBytes += chunk.copy(this.#content, this.#sizeBytes);
  }
}

function oneFile(name: string, maxBytes: number): FormLimits {
  return { names: [name], maxFiles: 1, maxBytes, maxFieldBytes: MAX_FIELD_BYTES };
}

function noFile(name: string): Fault {
  return invalidField([name], `The multipart body has no file field "${name}"`);
}

/** What a form that was streamed has beside the bytes of its file. */
export interface StreamedFile {
  /** As the caller named it; empty when it did not. */
  readonly fileName: string;
  readonly fields: URLSearchParams;
}

/**
 * Passes the file of the field `name` to `write` piece by piece, with backpressure. Other fields
 * may follow the file. Throws as `readFile`, what `write` throws once the body has been read to its
 * end, and 415 for a body in a content coding.
 */
export async function streamFile(
  context: RequestContext,
  name: string,
  maxBytes: number,
  write: (piece: Buffer) => Promise<void>,
): Promise<StreamedFile> {
  refuseCoding(context.headers['content-encoding']);
  const announced = Number(context.headers['content-length']);
  if (announced > maxBytes + FORM_FRAME_BYTES) throw tooLarge(maxBytes);
  let writing: Promise<void> | undefined;
  let file: Readable | undefined;
  const take = (stream: Readable): void => {
    file = stream;
    writing = writeAll(stream, write);
    // Looked at below, when the body has been read.
    writing.catch(() => undefined);
  };
  let streamed: StreamedFile;
  try {
    streamed = await parse(context, context.request, { ...oneFile(name, maxBytes), take });
  } catch (error) {
    // The stream of a file whose form broke off hears nothing by itself.
    file?.destroy();
    await writing?.catch(() => undefined);
    throw error;
  }
  if (writing === undefined) throw noFile(name);
  await writing;
  return streamed;
}

async function writeAll(stream: Readable, write: (piece: Buffer) => Promise<void>): Promise<void> {
  try {
    for await (const piece of stream.iterator({ destroyOnReturn: false })) {
      await write(piece as Buffer); // a stream of bytes
    }
  } catch (error) {
    // The parser goes on only when somebody reads.
    stream.resume();
    throw error;
  }
}

interface WantedFiles extends FormLimits {
  /** Given each file when its part begins; its end is the end of the part. */
  readonly take: (stream: Readable, field: string) => void;
}

async function parse(
  context: RequestContext,
  body: Readable,
  { take, ...limits }: WantedFiles,
): Promise<StreamedFile> {
  const { names, maxFiles, maxBytes, maxFieldBytes } = limits;
  const fields = new URLSearchParams();
  let files = 0;
  let fileName = '';
  let longField: string | undefined;
  let isCut = false;
  const parser = createParser(context, limits);
  // The rest of the body is not parsed: each part costs the parser several objects.
  parser.on('partsLimit', () => parser.destroy(tooManyParts()));
  parser.on('field', (field: string, value: string, _isNameCut: boolean, isValueCut: boolean) => {
    if (isValueCut) longField = field;
    fields.append(field, value);
  });
  parser.on('file', (field: string, stream: Readable, given: string | undefined) => {
    stream.on('limit', () => {
      isCut = true;
    });
    // A body that ends inside a part fails the part and the parser. The parser's is the one that is
    // told; without a listener the other would end the process.
    stream.on('error', () => undefined);
    if (!names.includes(field)) return void stream.resume();
    files += 1;
    if (files > maxFiles) return void stream.resume();
    fileName = given ?? '';
    take(stream, field);
  });
  try {
    await pipeline(body, parser);
  } catch (error) {
    if (error instanceof Fault) throw error;
    // Busboy's sentences are about its own parser; the caller needs to know that the body ends early.
    throw malformed(error);
  }
  if (isCut) throw tooLarge(maxBytes);
  if (longField !== undefined) {
    throw invalidField([longField], `The field must have at most ${maxFieldBytes} bytes`);
  }
  if (files > maxFiles) {
    const [name = ''] = names;
    const most = maxFiles === 1 ? 'one file' : `${maxFiles} files`;
    throw invalidField([name], `The multipart body has more than ${most} "${name}"`);
  }
  return { fileName, fields };
}

function tooLarge(maxBytes: number): Fault {
  return new Fault('PAYLOAD_TOO_LARGE', { message: `The file must have ${sizeBound(maxBytes)}` });
}

/** `less than 25 MB` where the next byte is a whole one, `at most 3000 bytes` elsewhere. */
export function sizeBound(maxBytes: number): string {
  const tooMuch = maxBytes + 1;
  if (tooMuch % BYTES_PER_MB !== 0) return `at most ${maxBytes} bytes`;
  return `less than ${tooMuch / BYTES_PER_MB} MB`;
}

/**
 * Pauses between two pieces, so that a body that is slow to parse does not block other requests.
 */
async function* piecesOf(body: Buffer): AsyncGenerator<Buffer> {
  for (let at = 0; at < body.length; at += PARSED_AT_ONCE_BYTES) {
    if (at > 0) await nextTurn();
    yield body.subarray(at, at + PARSED_AT_ONCE_BYTES);
  }
}

/** Files beside those that count: they are passed over. */
const FURTHER_FILES = 3;

function createParser(
  context: RequestContext,
  { maxBytes, maxFiles, maxFieldBytes }: FormLimits,
): BusboyInstance {
  try {
    return new Busboy({
      headers: { 'content-type': context.header('content-type') ?? '' },
      limits: {
        fileSize: maxBytes,
        files: maxFiles + FURTHER_FILES,
        fields: MAX_FIELDS,
        fieldSize: maxFieldBytes,
        headerPairs: MAX_HEADER_PAIRS,
        parts: MAX_PARTS,
      },
    });
  } catch (error) {
    // A header without a boundary.
    throw malformed(error);
  }
}

function malformed(cause: unknown): Fault {
  return badForm('The multipart body is not well formed', cause);
}

function tooManyParts(): Fault {
  return badForm(`The multipart body must have at most ${MAX_PARTS} parts`);
}

function badForm(message: string, cause?: unknown): Fault {
  return new Fault('INVALID_REQUEST', { message, details: { _errors: [message] }, cause });
}
