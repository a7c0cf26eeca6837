/** The body of a request as it arrives: whether the route reads its type, and its bytes, bounded. */
import type { IncomingMessage } from 'node:http';
import { Fault } from '../core/faults.ts';
import type { Route } from './route.ts';

/** RFC 9110 §8.3.1: a type, a subtype, and what follows a semicolon. */
const MEDIA_TYPE = /^[\w!#$%&'*+.^`|~-]+\/[\w!#$%&'*+.^`|~-]+\s*(?:;|$)/;

/** Throws `INVALID_CONTENT_TYPE` (415) for a body that the route does not read. */
export function requireMediaType({ headers }: IncomingMessage, { body }: Route): void {
  const given = headers['content-type'];
  const type = given?.toLowerCase() ?? '';
  if (body !== undefined && !body.types.some((known) => type.startsWith(known))) {
    const wanted = body.types.join(' or ');
    throw new Fault('INVALID_CONTENT_TYPE', {
      message:
        type === ''
          ? `The request has no Content-Type; send ${wanted}`
          : `The Content-Type ${type.slice(0, 100)} is not supported here; send ${wanted}`,
    });
  }
  if (given !== undefined && !MEDIA_TYPE.test(given)) throw new Fault('INVALID_CONTENT_TYPE');
}

/** The body of a request. Throws `PAYLOAD_TOO_LARGE` (413), and anything when the caller leaves. */
export function readBytes(request: IncomingMessage, limitBytes: number): Promise<Buffer> {
  if (Number(request.headers['content-length']) > limitBytes) throw new Fault('PAYLOAD_TOO_LARGE');
  return new Promise((resolve, reject) => {
    let pieces: Buffer[] = [];
    let sizeBytes = 0;
    const take = (piece: Buffer): void => {
      // Most bodies are one piece, and a list that grows begins with room for many.
      if (pieces.length === 0) pieces = [piece];
      else pieces.push(piece);
      sizeBytes += piece.length;
      if (sizeBytes <= limitBytes) return;
      // The rest is read and forgotten, so that the answer is not lost with the connection.
      request.off('data', take);
      pieces = [];
      reject(new Fault('PAYLOAD_TOO_LARGE'));
    };
    // Of a caller that left while it was identified no event comes any more.
    if (request.destroyed) return reject(new Error('The caller left'));
    request.on('data', take);
    request.on('end', () => {
      const [only] = pieces;
      resolve(only !== undefined && pieces.length === 1 ? only : Buffer.concat(pieces, sizeBytes));
      // The request outlives its body, which is let go once an engine has it.
      pieces = [];
    });
    request.on('error', reject);
  });
}
