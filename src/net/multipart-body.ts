/**
 * A `multipart/form-data` body that is read while it is sent: what lies in files is never in memory
 * as a whole, and its length is known before the first byte leaves.
 */
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import type { StreamedBody } from './exchange.ts';

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
  /** To the end when absent. */
  readonly sizeBytes?: number;
  /** Stands before it. */
  readonly head?: Buffer;
}

const READ_BYTES = 256 * 1024;

interface Piece {
  readonly sizeBytes: number;
  open(): AsyncIterable<Buffer> | Iterable<Buffer>;
}

/** The body of `parts`; `boundary` must be nothing that a part can hold. Rejects without a file. */
export async function multipartBody(
  boundary: string,
  parts: readonly FormPart[],
): Promise<StreamedBody> {
  const pieces: Piece[] = [];
  for (const part of parts) {
    pieces.push(bytesPiece(`--${boundary}\r\n${headOf(part)}\r\n\r\n`));
    const { data } = part;
    if (typeof data === 'string' || Buffer.isBuffer(data)) pieces.push(bytesPiece(data));
    else pieces.push(...(await filePieces(data)));
    pieces.push(bytesPiece('\r\n'));
  }
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

async function filePieces({ path, startByte = 0, sizeBytes, head }: FileSlice): Promise<Piece[]> {
  const size = sizeBytes ?? (await stat(path)).size - startByte;
  const end = startByte + size - 1;
  return [
    ...(head === undefined ? [] : [bytesPiece(head)]),
    {
      sizeBytes: size,
      open: () =>
        size === 0
          ? []
          : createReadStream(path, { start: startByte, end, highWaterMark: READ_BYTES }),
    },
  ];
}
