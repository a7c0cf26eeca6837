/**
 * Reads one file out of a multipart body: one that is in memory already, or one that comes in, which
 * is handed on piece by piece. Everything else is refused.
 */
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { Busboy, type BusboyInstance } from '@fastify/busboy';
import { Fault, invalidField } from '../core/faults.ts';
import { refuseCoding } from './content-coding.ts';
import { nextTurn } from '../core/event-loop.ts';
import type { RequestContext } from './request-context.ts';

export interface MultipartFile {
  readonly bytes: Buffer;
  /** A repeated field has several values. */
  readonly fields: URLSearchParams;
}

const MAX_FIELDS = 16;
const MAX_FIELD_BYTES = 4_096;
const MAX_HEADER_PAIRS = 32;
const PARSED_AT_ONCE_BYTES = 256 * 1024;
/** What a form has around its file, at most: the other fields and the heads of the parts. */
const FORM_FRAME_BYTES = 1024 * 1024;

export function isMultipart(context: RequestContext): boolean {
  return /^multipart\/form-data\b/i.test(context.header('content-type') ?? '');
}

/** The file of the field `name`. Faults: 400 without it or with a second one, 413 above `maxBytes`. */
export async function readFile(
  context: RequestContext,
  name: string,
  maxBytes: number,
): Promise<MultipartFile> {
  // Line ends make the parser give bytes one by one: they are not worth an object each.
  const file = Buffer.allocUnsafe(context.body.length);
  let sizeBytes = 0;
  const take = (stream: Readable): void => {
    stream.on('data', (chunk: Buffer) => {
      sizeBytes += chunk.copy(file, sizeBytes);
    });
  };
  const body = Readable.from(piecesOf(context.body));
  const { fields } = await parse(context, body, { name, maxBytes, take });
  return { bytes: file.subarray(0, sizeBytes), fields };
}

/** What a form that was streamed has beside the bytes of its file. */
export interface StreamedFile {
  /** As the caller named it; empty when it did not. */
  readonly fileName: string;
  readonly fields: URLSearchParams;
}

/**
 * Hands the file of the field `name` to `write`, piece by piece, no faster than that takes them. The
 * other fields may follow the file. Faults: as `readFile`, and what `write` throws, once the rest of
 * the body was read and forgotten; 415 for a body in a content coding.
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
    streamed = await parse(context, context.request, { name, maxBytes, take });
  } catch (error) {
    // The stream of a file whose form broke off hears nothing by itself.
    file?.destroy();
    await writing?.catch(() => undefined);
    throw error;
  }
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

interface WantedFile {
  readonly name: string;
  readonly maxBytes: number;
  /** Given the file when its part begins; its end is the end of the part. */
  readonly take: (stream: Readable) => void;
}

async function parse(
  context: RequestContext,
  body: Readable,
  { name, maxBytes, take }: WantedFile,
): Promise<StreamedFile> {
  const fields = new URLSearchParams();
  let files = 0;
  let fileName = '';
  let longField: string | undefined;
  let isCut = false;
  const parser = createParser(context, maxBytes);
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
    if (field !== name) return void stream.resume();
    files += 1;
    if (files > 1) return void stream.resume();
    fileName = given ?? '';
    take(stream);
  });
  try {
    await pipeline(body, parser);
  } catch (error) {
    // Busboy's sentences are about its own parser; the caller needs to know that the body ends early.
    throw malformed(error);
  }
  if (isCut) throw tooLarge(maxBytes);
  if (longField !== undefined) {
    const message = `The field must have at most ${MAX_FIELD_BYTES} bytes`;
    throw invalidField([longField], message);
  }
  if (files !== 1) {
    const message =
      files === 0
        ? `The multipart body has no file field "${name}"`
        : `The multipart body has more than one file "${name}"`;
    throw invalidField([name], message);
  }
  return { fileName, fields };
}

function tooLarge(maxBytes: number): Fault {
  const message = `The file must have at most ${maxBytes} bytes`;
  return new Fault('PAYLOAD_TOO_LARGE', { message });
}

/** A body full of line ends costs the parser milliseconds a piece: others are served between two. */
async function* piecesOf(body: Buffer): AsyncGenerator<Buffer> {
  for (let at = 0; at < body.length; at += PARSED_AT_ONCE_BYTES) {
    if (at > 0) await nextTurn();
    yield body.subarray(at, at + PARSED_AT_ONCE_BYTES);
  }
}

function createParser(context: RequestContext, maxBytes: number): BusboyInstance {
  try {
    return new Busboy({
      headers: { 'content-type': context.header('content-type') ?? '' },
      limits: {
        fileSize: maxBytes,
        files: 4,
        fields: MAX_FIELDS,
        fieldSize: MAX_FIELD_BYTES,
        headerPairs: MAX_HEADER_PAIRS,
      },
    });
  } catch (error) {
    // A header without a boundary.
    throw malformed(error);
  }
}

function malformed(cause: unknown): Fault {
  return new Fault('INVALID_REQUEST', {
    message: 'The multipart body is not well formed',
    details: { _errors: ['The multipart body is not well formed'] },
    cause,
  });
}
