/** The body of a request as it arrives: whether the route reads its type, and its bytes, bounded. */
import type { IncomingMessage } from 'node:http';
import { Fault } from '../core/faults.ts';
import type { BodyRoom } from './body-room.ts';
import { decoded } from './content-coding.ts';
import type { RequestContext } from './request-context.ts';
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

/**
 * The body of a request as it was sent. Faults: 413 above `limitBytes`, 429 and 503 without room for
 * it; fails when the caller leaves.
 */
export function readBytes(
  context: RequestContext,
  limitBytes: number,
  room: BodyRoom,
): Promise<Buffer> {
  const { request, headers } = context;
  if (Number(headers['content-length']) > limitBytes) throw new Fault('PAYLOAD_TOO_LARGE');
  return new Promise((resolve, reject) => {
    let pieces: Buffer[] = [];
    let sizeBytes = 0;
    const take = (piece: Buffer): void => {
      sizeBytes += piece.length;
      // Most bodies are one piece, and a list that grows begins with room for many.
      if (pieces.length === 0) {
        pieces = [piece];
        if (sizeBytes <= limitBytes) return;
      } else pieces.push(piece);
      const refusal =
        sizeBytes > limitBytes
          ? new Fault('PAYLOAD_TOO_LARGE')
          : room.hold(context, sizeBytes - context.heldBodyBytes);
      if (refusal === undefined) return;
      // The rest is read and forgotten, so that the answer is not lost with the connection.
      request.off('data', take);
      pieces = [];
      reject(refusal);
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

/** The same of a body that was sent in a content coding. Faults besides: what `decoded` throws. */
export async function readDecoded(
  context: RequestContext,
  limitBytes: number,
  room: BodyRoom,
): Promise<Buffer> {
  const sent = await readBytes(context, limitBytes, room);
  const bytes = await decoded(context.headers['content-encoding'] ?? '', sent, limitBytes);
  const refusal = room.hold(context, Math.max(0, bytes.length - sent.length));
  if (refusal !== undefined) throw refusal;
  return bytes;
}
