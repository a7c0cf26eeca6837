/**
 * A `multipart/form-data` body that is read while it is sent: what lies in files is never in memory
 * as a whole, and its length is known before the first byte leaves.
 */
import { createReadStream } from 'node:fs';
import type { StreamedBody } from './upstream-pool.ts';

export interface FormPart {
  readonly name: string;
  /** Makes the part a file. */
  readonly file?: { readonly filename: string; readonly contentType: string } | undefined;
  readonly data: string | Buffer | FileSlice;
}

export interface FileSlice {
  readonly path: string;
  /** From the beginning when absent. */
  readonly startByte?: number;
  readonly sizeBytes: number;
  /** Stands before it. */
  readonly head?: Buffer;
}

const READ_BYTES = 256 * 1024;

interface Piece {
  readonly sizeBytes: number;
  open(): AsyncIterable<Buffer> | Iterable<Buffer>;
}

/** The body of `parts`; `boundary` must be nothing that a part can hold. */
export function multipartBody(boundary: string, parts: readonly FormPart[]): StreamedBody {
  const pieces = parts.flatMap((part) => [
    bytesPiece(`--${boundary}\r\n${headOf(part)}\r\n\r\n`),
    ...dataPieces(part.data),
    bytesPiece('\r\n'),
  ]);
  pieces.push(bytesPiece(`--${boundary}--\r\n`));
  return {
    sizeBytes: pieces.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0),
    open: () => readAll(pieces),
  };
}

async function* readAll(pieces: readonly Piece[]): AsyncGenerator<Buffer> {
  for (const piece of pieces) yield* piece.open();
}

function headOf({ name, file }: FormPart): string {
  const head = `Content-Disposition: form-data; name="${quoted(name)}"`;
  if (file === undefined) return head;
  return `${head}; filename="${quoted(file.filename)}"\r\nContent-Type: ${quoted(file.contentType)}`;
}

function quoted(text: string): string {
  return text.replaceAll(/["\r\n]/g, '_');
}

function bytesPiece(data: string | Buffer): Piece {
  const bytes = typeof data === 'string' ? Buffer.from(data) : data;
  return { sizeBytes: bytes.length, open: () => [bytes] };
}

function dataPieces(data: FormPart['data']): Piece[] {
  if (typeof data === 'string' || Buffer.isBuffer(data)) return [bytesPiece(data)];
  const { path, startByte: start = 0, sizeBytes, head } = data;
  const end = start + sizeBytes - 1;
  const file = {
    sizeBytes,
    open: () =>
      sizeBytes === 0 ? [] : createReadStream(path, { start, end, highWaterMark: READ_BYTES }),
  };
  return head === undefined ? [file] : [bytesPiece(head), file];
}
