/** A streamed `multipart/form-data` body with known length; files are not read into memory. */
import { createReadStream } from 'node:fs';
import type { StreamedBody } from './exchange.ts';

export interface FormPart {
  readonly name: string;
  readonly file?: { readonly filename: string; readonly contentType: string } | undefined;
  readonly data: string | Buffer | FileSlice;
}

export interface FileSlice {
  readonly path: string;
  /** Default: the beginning of the file. */
  readonly startByte?: number;
  readonly sizeBytes: number;
  readonly head?: Buffer;
}

const READ_BYTES = 256 * 1024;

/** Returns the body of `parts`; no part may contain `boundary`. */
export function multipartBody(boundary: string, parts: readonly FormPart[]): StreamedBody {
  const pieces: (Buffer | FileSlice)[] = [];
  for (const { data, ...part } of parts) {
    pieces.push(Buffer.from(`--${boundary}\r\n${headOf(part)}\r\n\r\n`));
    if (typeof data === 'string') pieces.push(Buffer.from(data));
    else {
      if (!Buffer.isBuffer(data) && data.head !== undefined) pieces.push(data.head);
      pieces.push(data);
    }
    pieces.push(Buffer.from('\r\n'));
  }
  pieces.push(Buffer.from(`--${boundary}--\r\n`));
  let sizeBytes = 0;
  for (const piece of pieces) sizeBytes += Buffer.isBuffer(piece) ? piece.length : piece.sizeBytes;
  return { sizeBytes, open: () => readAll(pieces) };
}

async function* readAll(pieces: readonly (Buffer | FileSlice)[]): AsyncGenerator<Buffer> {
  for (const piece of pieces) {
    if (Buffer.isBuffer(piece)) yield piece;
    else if (piece.sizeBytes > 0) {
      const { path, startByte: start = 0, sizeBytes } = piece;
      const end = start + sizeBytes - 1;
      yield* createReadStream(path, { start, end, highWaterMark: READ_BYTES });
    }
  }
}

function headOf({ name, file }: Pick<FormPart, 'file' | 'name'>): string {
  const head = `Content-Disposition: form-data; name="${quoted(name)}"`;
  if (file === undefined) return head;
  return `${head}; filename="${quoted(file.filename)}"\r\nContent-Type: ${quoted(file.contentType)}`;
}

function quoted(text: string): string {
  return text.replaceAll(/["\r\n]/g, '_');
}
