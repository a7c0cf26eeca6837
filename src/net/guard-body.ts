/**
 * Decompresses the body of a guarded fetch, and limits it before and after decompression, so that
 * neither an endless stream nor a decompression bomb exceeds `maxBytes`.
 */
import type { Readable, Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import {
  createBrotliDecompress,
  createGunzip,
  createInflate,
  createZstdDecompress,
} from 'node:zlib';
import { Fault } from '../core/faults.ts';

/** Output comes in pieces of this size, so the limit is exceeded by one piece at most. */
const CHUNK_BYTES = 64 * 1024;

export type Sink = (chunk: Buffer) => void | Promise<void>;

export interface BodyOptions {
  readonly maxBytes: number;
  readonly signal: AbortSignal;
}

/** Writes the decoded body to `sink` and returns its size; throws `PAYLOAD_TOO_LARGE`. */
export async function drainBody(
  body: Readable,
  encoding: string | undefined,
  sink: Sink,
  { maxBytes, signal }: BodyOptions,
): Promise<number> {
  let sizeBytes = 0;
  async function feed(source: AsyncIterable<Buffer>): Promise<void> {
    for await (const chunk of source) {
      sizeBytes += chunk.length;
      if (sizeBytes > maxBytes) throw tooLarge(maxBytes);
      await sink(chunk);
    }
  }
  async function* cap(source: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
    let receivedBytes = 0;
    for await (const chunk of source) {
      receivedBytes += chunk.length;
      if (receivedBytes > maxBytes) throw tooLarge(maxBytes);
      yield chunk;
    }
  }
  const decoder = decoderFor(encoding);
  if (decoder === undefined) await pipeline(body, feed, { signal });
  else await pipeline(body, cap, decoder, feed, { signal });
  return sizeBytes;
}

export const ACCEPTED_ENCODINGS = 'gzip, deflate, br, zstd';

function decoderFor(encoding: string | undefined): Transform | undefined {
  const options = { chunkSize: CHUNK_BYTES };
  switch (encoding?.trim().toLowerCase() ?? '') {
    case '':
    case 'identity':
      return undefined;
    case 'gzip':
    case 'x-gzip':
      return createGunzip(options);
    case 'deflate':
      return createInflate(options);
    case 'br':
      return createBrotliDecompress(options);
    case 'zstd':
      return createZstdDecompress(options);
    default:
      // Rejects stacked and unknown codings: they are rare, and each layer multiplies a bomb.
      throw new Fault('FETCH_FAILED', {
        message: 'The URL responded with an unknown content encoding',
      });
  }
}

export function tooLarge(maxBytes: number): Fault {
  const limit =
    maxBytes >= 1_000_000 ? `${Math.floor(maxBytes / 1_000_000)} MB` : `${maxBytes} bytes`;
  return new Fault('PAYLOAD_TOO_LARGE', {
    message: `The content of the URL is larger than ${limit}`,
  });
}
