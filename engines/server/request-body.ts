/**
 * Reads the body of a request to an embedded engine: raw bytes, or multipart with files. Every part
 * has a size limit; large files are written to disk if the engine names a folder.
 */
import { createWriteStream } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { pipeline } from 'node:stream/promises';
import { Busboy, type BusboyFileStream, type BusboyInstance } from '@fastify/busboy';
import type { z } from 'zod';
import { Fault } from '../../src/core/faults.ts';

export interface UploadLimits {
  readonly maxFileBytes: number;
  /** Files are written into this folder instead of memory. */
  readonly directory?: string;
}

export interface UploadedFile {
  /** Empty if the file was written to `path`. */
  readonly data: Buffer;
  readonly path: string | undefined;
}

export interface Upload {
  readonly fields: ReadonlyMap<string, string>;
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

export function isMultipart(request: IncomingMessage): boolean {
  return /^multipart\/form-data\b/i.test(request.headers['content-type'] ?? '');
}

/** Reads a multipart body. Faults: PAYLOAD_TOO_LARGE, INVALID_REQUEST if it is malformed. */
export async function readUpload(request: IncomingMessage, limits: UploadLimits): Promise<Upload> {
  const fields = new Map<string, string>();
  const files = new Map<string, UploadedFile>();
  const writes: Promise<void>[] = [];
  const parser = createParser(request, limits);
  parser.on('field', (name: string, value: string) => void fields.set(name, value));
  parser.on('file', (name: string, stream: BusboyFileStream) => {
    const write = takeFile(stream, limits, writes.length + 1).then((taken) => {
      files.set(name, taken);
    });
    // If the body is malformed, report that fault instead of the failed write.
    write.catch(() => undefined);
    writes.push(write);
  });
  await pipeline(request, parser).catch((cause: unknown) => {
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
  const [issue] = parsed.error.issues;
  const message = `Field "${issue?.path.join('.')}": ${issue?.message}`;
  throw new Fault('INVALID_REQUEST', { message });
}

function createParser(
  { headers }: IncomingMessage,
  { maxFileBytes }: UploadLimits,
): BusboyInstance {
  try {
    return new Busboy({
      // The caller has already checked that the header exists.
      headers: { ...headers, 'content-type': headers['content-type'] ?? '' },
      limits: {
        fileSize: maxFileBytes,
        files: MAX_FILES,
        fields: MAX_FIELDS,
        fieldSize: MAX_FIELD_BYTES,
      },
    });
  } catch (cause) {
    // Busboy throws if the header has no boundary.
    throw new Fault('INVALID_REQUEST', { message: 'The multipart header is not valid', cause });
  }
}

async function takeFile(
  stream: BusboyFileStream,
  { maxFileBytes, directory }: UploadLimits,
  index: number,
): Promise<UploadedFile> {
  const path = directory === undefined ? undefined : join(directory, `upload-${index}`);
  let data = Buffer.alloc(0);
  if (path === undefined) data = await buffer(stream);
  else await pipeline(stream, createWriteStream(path));
  if (stream.truncated) throw tooLarge(maxFileBytes);
  return { data, path };
}
