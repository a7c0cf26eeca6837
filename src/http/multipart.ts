/** Reads multipart forms: from memory, or one file as a stream while the body arrives. */
import { once } from 'node:events';
import type { Readable } from 'node:stream';
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
/** First buffer of each of several files, whose sizes are unknown. */
const FIRST_FILE_BYTES = 64 * 1024;
/** Maximum size of the other fields and of the part heads of a form. */
const FORM_FRAME_BYTES = 1024 * 1024;

export function isMultipart(context: RequestContext): boolean {
  return /^multipart\/form-data\b/i.test(context.header('content-type') ?? '');
}

export interface FormFile {
  readonly field: string;
  readonly bytes: Buffer;
}

export interface Form {
  /** In the order of the body. */
  readonly files: readonly FormFile[];
  readonly fields: URLSearchParams;
}

export interface FormLimits {
  /** Fields whose files are read; others are ignored. */
  readonly names: readonly string[];
  readonly maxFiles: number;
  /** Limit of one file. */
  readonly maxBytes: number;
  /** Limit of a field that is no file. */
  readonly maxFieldBytes: number;
}

/** Returns the file of the field `name`. Throws 400 unless there is exactly one, 413 above `maxBytes`. */
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
  // The bytes of a part may arrive after the next part has begun.
  const take = (stream: Readable, field: string): void => {
    const content = new GrowingBuffer(firstBytes);
    files.push({ field, content });
    stream.on('data', (chunk: Buffer) => content.add(chunk));
  };
  const { fields } = await parse(context, piecesOf(context.body), { ...limits, take });
  return { files: files.map(({ field, content }) => ({ field, bytes: content.bytes })), fields };
}

/** The parser emits line ends byte by byte, so that a list of chunks would be too large. */
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

export interface StreamedFile {
  /** As sent by the caller; empty if missing. */
  readonly fileName: string;
  readonly fields: URLSearchParams;
}

/**
 * Passes the file of the field `name` to `write` piece by piece, with backpressure. Other fields
 * may follow the file. Throws as `readFile`, 415 for a body with a content coding, and errors of
 * `write` after the body was read to its end.
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
    // Awaited below, after the body was read.
    writing.catch(() => undefined);
  };
  const { request } = context;
  // For a request as its source, `pipeline` would take the connection of a form that it rejects.
  const body = request.iterator({ destroyOnReturn: false });
  let streamed: StreamedFile;
  try {
    streamed = await parse(context, body, { ...oneFile(name, maxBytes), take });
  } catch (error) {
    // The rest is discarded; `limitUnreadBody` bounds it.
    request.resume();
    // The parser does not end the file stream of a form that breaks off.
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
    // The parser waits until the stream is read.
    stream.resume();
    throw error;
  }
}

interface WantedFiles extends FormLimits {
  /** Receives each file when its part begins. */
  readonly take: (stream: Readable, field: string) => void;
}

async function parse(
  context: RequestContext,
  body: AsyncIterable<Buffer>,
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
    // A body that ends inside a part fails the part and the parser. The error of the parser is
    // reported; without this listener that of the part would end the process.
    stream.on('error', () => undefined);
    if (!names.includes(field)) return void stream.resume();
    files += 1;
    if (files > maxFiles) return void stream.resume();
    fileName = given ?? '';
    take(stream, field);
  });
  try {
    // After bytes behind the last boundary the parser can finish before the body, and the pipeline never.
    await Promise.race([pipeline(body, parser), once(parser, 'finish')]);
  } catch (error) {
    if (error instanceof Fault) throw error;
    // The messages of Busboy would not help the caller.
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

/** Such as `less than 25 MB` for 24,999,999 bytes, or `at most 3000 bytes`. */
export function sizeBound(maxBytes: number): string {
  const tooMuch = maxBytes + 1;
  if (tooMuch % BYTES_PER_MB !== 0) return `at most ${maxBytes} bytes`;
  return `less than ${tooMuch / BYTES_PER_MB} MB`;
}

/** Pauses between pieces, so that parsing does not block other requests. */
async function* piecesOf(body: Buffer): AsyncGenerator<Buffer> {
  for (let at = 0; at < body.length; at += PARSED_AT_ONCE_BYTES) {
    if (at > 0) await nextTurn();
    yield body.subarray(at, at + PARSED_AT_ONCE_BYTES);
  }
}

/** Number of ignored files. */
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
