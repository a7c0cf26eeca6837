/**
 * Reads the body of a request to an embedded engine: raw bytes, JSON, or multipart with files. Every
 * part has a size limit; large files are written to disk if the engine names a folder.
 */
import { createWriteStream } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { finished, pipeline } from 'node:stream/promises';
import { Busboy, type BusboyFileStream, type BusboyInstance } from '@fastify/busboy';
import type * as z from 'zod';
import { Fault } from '../../src/core/faults.ts';
import { parsedJson } from '../../src/json/json-text.ts';

export interface UploadLimits {
  readonly maxFileBytes: number;
  /** Files are written into this folder instead of memory. */
  readonly directory?: string;
  /** Default: 4. */
  readonly maxFiles?: number;
}

export interface UploadedFile {
  /** Empty if the file was written to `path`. */
  readonly data: Buffer;
  readonly path: string | undefined;
}

export interface Upload {
  readonly fields: ReadonlyMap<string, string>;
  /** By the name of the field; further files of a field have a number after it. */
  readonly files: ReadonlyMap<string, UploadedFile>;
}

const MAX_FIELDS = 64;
const MAX_FIELD_BYTES = 64 * 1024;
const MAX_FILES = 4;

/** Reads the whole body. Faults: PAYLOAD_TOO_LARGE above `maxBytes`. */
export async function readBody(request: IncomingMessage, maxBytes: number): Promise<Buffer> {
  if (Number(request.headers['content-length'] ?? 0) > maxBytes) throw tooLarge(maxBytes);
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > maxBytes) throw tooLarge(maxBytes);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

function tooLarge(maxBytes: number): Fault {
  return new Fault('PAYLOAD_TOO_LARGE', { message: `The body is larger than ${maxBytes} bytes` });
}

/** Reads a JSON body. Faults: PAYLOAD_TOO_LARGE; INVALID_REQUEST if `schema` does not accept it. */
export async function readJson<Schema extends z.ZodType>(
  request: IncomingMessage,
  maxBytes: number,
  schema: Schema,
): Promise<z.infer<Schema>> {
  const text = (await readBody(request, maxBytes)).toString('utf8');
  const parsed = schema.safeParse(parsedJson(text));
  if (parsed.success) return parsed.data;
  throw invalid('The body', parsed.error);
}

function invalid(what: string, { issues: [issue] }: z.ZodError): Fault {
  const path = issue?.path.join('.') ?? '';
  const place = path === '' ? what : `Field "${path}"`;
  return new Fault('INVALID_REQUEST', { message: `${place}: ${issue?.message}` });
}

export function isMultipart(request: IncomingMessage): boolean {
  return /^multipart\/form-data\b/i.test(request.headers['content-type'] ?? '');
}

/**
 * Reads a multipart body. Faults: INVALID_CONTENT_TYPE for any other body, PAYLOAD_TOO_LARGE,
 * INVALID_REQUEST if it is malformed.
 */
export async function readUpload(request: IncomingMessage, limits: UploadLimits): Promise<Upload> {
  if (!isMultipart(request)) {
    const message = 'Send multipart/form-data with the media';
    throw new Fault('INVALID_CONTENT_TYPE', { message });
  }
  const fields = new Map<string, string>();
  const files = new Map<string, UploadedFile>();
  const names = new Set<string>();
  const streams: BusboyFileStream[] = [];
  const writes: Promise<void>[] = [];
  const parser = createParser(request, limits);
  parser.on('field', (name: string, value: string) => void fields.set(name, value));
  parser.on('file', (field: string, stream: BusboyFileStream) => {
    const name = names.has(field) ? `${field}${names.size}` : field;
    names.add(name);
    streams.push(stream);
    const write = receiveFile(stream, limits, writes.length + 1).then((file) => {
      files.set(name, file);
    });
    // If the body is malformed, report that fault instead of the failed write.
    write.catch(() => undefined);
    writes.push(write);
  });
  await pipeline(request, parser).catch((cause: unknown) => {
    // The parser leaves them open if the client has disconnected, and with them the files.
    for (const stream of streams) stream.destroy();
    throw new Fault('INVALID_REQUEST', { message: 'The multipart body is not valid', cause });
  });
  await Promise.all(writes);
  return { fields, files };
}

/** Validates the fields. Faults: INVALID_REQUEST, with the field. */
export function fieldsIn<Schema extends z.ZodType>(
  { fields }: Upload,
  schema: Schema,
): z.infer<Schema> {
  const parsed = schema.safeParse(Object.fromEntries(fields));
  if (parsed.success) return parsed.data;
  throw invalid('The form', parsed.error);
}

/** The path of a file on disk. Faults: INVALID_REQUEST if the field is missing. */
export function filePathOf({ files }: Upload, field: string): string {
  const path = files.get(field)?.path;
  if (path !== undefined) return path;
  throw missingFile(field);
}

export function missingFile(field: string): Fault {
  const message = `The field "${field}" with the media is missing`;
  return new Fault('INVALID_REQUEST', { message });
}

function createParser(
  { headers }: IncomingMessage,
  { maxFileBytes, maxFiles = MAX_FILES }: UploadLimits,
): BusboyInstance {
  try {
    return new Busboy({
      headers: { ...headers, 'content-type': headers['content-type'] ?? '' },
      limits: {
        fileSize: maxFileBytes,
        files: maxFiles,
        fields: MAX_FIELDS,
        fieldSize: MAX_FIELD_BYTES,
      },
    });
  } catch (cause) {
    // Busboy throws if the header has no boundary.
    throw new Fault('INVALID_REQUEST', { message: 'The multipart header is not valid', cause });
  }
}

async function receiveFile(
  stream: BusboyFileStream,
  { maxFileBytes, directory }: UploadLimits,
  index: number,
): Promise<UploadedFile> {
  const path = directory === undefined ? undefined : join(directory, `upload-${index}`);
  let data = Buffer.alloc(0);
  if (path === undefined) data = await buffer(stream);
  else await writeTo(path, stream);
  if (stream.truncated) throw tooLarge(maxFileBytes);
  return { data, path };
}

/** Not a pipeline: after a failed write the parser would wait without end for the destroyed stream. */
async function writeTo(path: string, stream: BusboyFileStream): Promise<void> {
  const file = createWriteStream(path);
  stream.once('error', (error) => file.destroy(error));
  stream.once('close', () => {
    if (!stream.readableEnded) file.destroy();
  });
  stream.pipe(file);
  try {
    await finished(file);
  } catch (error) {
    stream.resume();
    throw error;
  }
}
