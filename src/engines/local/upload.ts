/**
 * Reads the body of a request to an embedded engine: raw bytes, or multipart with files. Every part
 * is bounded; large files go to disk when the engine names a folder.
 */
import { createWriteStream } from 'node:fs';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { Readable } from 'node:stream';
import type { IncomingMessage } from 'node:http';
import { Busboy, type BusboyInstance } from '@fastify/busboy';
import { Fault } from '../../core/faults.ts';

export interface UploadLimits {
  readonly maxFileBytes: number;
  /** Files are written into this folder instead of memory. */
  readonly directory?: string;
}

export interface UploadedFile {
  readonly filename: string;
  readonly mimeType: string;
  /** Empty when the file went to `path`. */
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

/** The whole body. Faults: PAYLOAD_TOO_LARGE above `maxBytes`. */
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
  return new Fault('PAYLOAD_TOO_LARGE', {
    message: `The body is larger than ${maxBytes} bytes`,
  });
}

/** Whether the request says that its body is multipart. */
export function isMultipart(request: IncomingMessage): boolean {
  return /^multipart\/form-data\b/i.test(request.headers['content-type'] ?? '');
}

/** A multipart body. Faults: PAYLOAD_TOO_LARGE, INVALID_REQUEST when it is not well formed. */
export async function readUpload(request: IncomingMessage, limits: UploadLimits): Promise<Upload> {
  const fields = new Map<string, string>();
  const files = new Map<string, UploadedFile>();
  const writes: Promise<void>[] = [];
  const parser = createParser(request, limits);
  let count = 0;
  parser.on('field', (name: string, value: string) => void fields.set(name, value));
  parser.on(
    'file',
    (name: string, stream: Readable, filename: string, _encoding: string, mimeType: string) => {
      count += 1;
      const write = takeFile(stream, limits, count).then((taken) => {
        files.set(name, { filename, mimeType, ...taken });
      });
      // When the body itself is broken, that is the fault to tell, and nobody awaits the write.
      write.catch(() => undefined);
      writes.push(write);
    },
  );
  await pipeline(request, parser).catch((error: unknown) => {
    throw new Fault('INVALID_REQUEST', {
      message: 'The multipart body is not valid',
      cause: error,
    });
  });
  await Promise.all(writes);
  return { fields, files };
}

function createParser(request: IncomingMessage, limits: UploadLimits): BusboyInstance {
  try {
    return new Busboy({
      // The multipart check of the caller made sure that the header is there.
      headers: { ...request.headers, 'content-type': request.headers['content-type'] ?? '' },
      limits: {
        fileSize: limits.maxFileBytes,
        files: MAX_FILES,
        fields: MAX_FIELDS,
        fieldSize: MAX_FIELD_BYTES,
      },
    });
  } catch (error) {
    // Busboy throws for a header without a boundary.
    throw new Fault('INVALID_REQUEST', {
      message: 'The multipart header is not valid',
      cause: error,
    });
  }
}

async function takeFile(
  stream: Readable,
  limits: UploadLimits,
  index: number,
): Promise<{ data: Buffer; path: string | undefined }> {
  const isCut = (): boolean => 'truncated' in stream && stream.truncated === true;
  if (limits.directory !== undefined) {
    const path = join(limits.directory, `upload-${index}`);
    await pipeline(stream, createWriteStream(path));
    if (isCut()) throw tooLarge(limits.maxFileBytes);
    return { data: Buffer.alloc(0), path };
  }
  const chunks: Buffer[] = [];
  for await (const chunk of stream as AsyncIterable<Buffer>) chunks.push(chunk);
  if (isCut()) throw tooLarge(limits.maxFileBytes);
  return { data: Buffer.concat(chunks), path: undefined };
}
