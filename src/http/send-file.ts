/**
 * Sends a file or one range of it (RFC 9110 §14), so that players can seek and downloads resume;
 * Safari requires ranges. A request for several ranges gets the whole file, as the RFC allows.
 */
import { createReadStream } from 'node:fs';
import { pipeline } from 'node:stream/promises';
import { Fault } from '../core/faults.ts';
import type { RequestContext } from './request-context.ts';

export interface SentFile {
  readonly path: string;
  readonly sizeBytes: number;
  readonly mimeType: string;
  /** Identifies the bytes, which never change. */
  readonly tag: string;
}

interface ByteRange {
  /** Inclusive, like `end`. */
  readonly start: number;
  readonly end: number;
}

const RANGE = /^bytes=(\d*)-(\d*)$/i;

/** Streams a file; the caller may disconnect. Throws 416 for a range after the end of the file. */
export async function sendFile(context: RequestContext, file: SentFile): Promise<void> {
  const { sizeBytes, mimeType } = file;
  const { method } = context.request;
  const tag = `"${file.tag}"`;
  const range = method === 'POST' ? undefined : rangeOf(context, sizeBytes, tag);
  context.set('cache-control', 'private, no-store');
  context.set('etag', tag);
  if (method !== 'POST') context.set('accept-ranges', 'bytes');
  context.set('content-length', range === undefined ? sizeBytes : range.end - range.start + 1);
  if (range !== undefined) {
    context.set('content-range', `bytes ${range.start}-${range.end}/${sizeBytes}`);
  }
  const writable = context.pipe(range === undefined ? 200 : 206, mimeType);
  if (method === 'HEAD' || sizeBytes === 0) return void writable.end();
  try {
    await pipeline(createReadStream(file.path, range), writable);
  } catch (error) {
    if (!context.signal.aborted) throw error;
  }
}

/** Returns `undefined` for the whole file. */
function rangeOf(context: RequestContext, sizeBytes: number, tag: string): ByteRange | undefined {
  const found = RANGE.exec(context.header('range')?.replaceAll(' ', '') ?? '');
  const condition = context.header('if-range');
  // The RFC says to ignore unknown units and forms.
  if (found === null || (condition !== undefined && condition !== tag)) return undefined;
  const [, first = '', last = ''] = found;
  if (first === '' && last === '') return undefined;
  const start = first === '' ? Math.max(0, sizeBytes - Number(last)) : Number(first);
  const end = first === '' || last === '' ? sizeBytes - 1 : Math.min(Number(last), sizeBytes - 1);
  // A range whose last byte precedes its first one is invalid and ignored.
  if (first !== '' && last !== '' && Number(last) < start) return undefined;
  if (start <= end) return { start, end };
  throw new Fault('RANGE_NOT_SATISFIABLE', {
    message: `The range begins behind the end: the file has ${sizeBytes} bytes`,
    headers: { 'content-range': `bytes */${sizeBytes}` },
  });
}
