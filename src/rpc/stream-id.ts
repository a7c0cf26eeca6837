/**
 * Replaces the id of a streamed response that the node sends after the result, when the result has
 * already been forwarded. The last bytes are delayed until the end, and the sent id in them is
 * replaced by the caller's. A stream that ends without the sent id belongs to another call, and
 * fails.
 */
import { Readable } from 'node:stream';

/** Delayed bytes: the id member and what may follow it. */
const TAIL_BYTES = 512;
/** The sent id as a member, with the spacing and quoting of any node. */
const OWN_ID_MEMBER = /"id"\s{0,8}:\s{0,8}"?(\d{13})"?\s{0,8}[,}]/g;

/**
 * Returns the reply of `head` and `rest` with `callerId` in place of `ownId` after the result.
 * `head` must be longer than `TAIL_BYTES`.
 */
export function withIdAtEnd(
  head: Buffer,
  rest: Readable,
  ownId: number,
  callerId: Buffer,
): { readonly body: Buffer; readonly rest: Readable } {
  const tailStart = head.length - TAIL_BYTES;
  const chunks = replaceInTail(head.subarray(tailStart), rest, ownId, callerId);
  const changed = Readable.from(chunks, { objectMode: false });
  // An error reaches the reader; without this listener, one after the reader has left would end the process.
  changed.on('error', () => undefined);
  // A stream that is destroyed before it is read has not started its generator.
  changed.once('close', () => rest.destroy());
  return { body: head.subarray(0, tailStart), rest: changed };
}

/** Yields `tail` and the chunks of `rest`, with the id replaced in the last `TAIL_BYTES`. */
async function* replaceInTail(
  tail: Buffer,
  rest: Readable,
  ownId: number,
  callerId: Buffer,
): AsyncGenerator<Buffer> {
  const chunks: AsyncIterable<Buffer> = rest;
  for await (const chunk of chunks) {
    const both = chunk.length >= TAIL_BYTES ? chunk : Buffer.concat([tail, chunk]);
    if (both === chunk) yield tail;
    const tailStart = both === chunk ? 0 : Math.max(0, both.length - TAIL_BYTES);
    if (tailStart > 0) yield both.subarray(0, tailStart);
    tail = both.subarray(tailStart);
  }
  yield replaced(tail, ownId, callerId);
}

function replaced(tail: Buffer, ownId: number, callerId: Buffer): Buffer {
  const from = Math.max(0, tail.length - TAIL_BYTES);
  // Latin-1 has one character per byte, so positions are byte positions.
  const last = [...tail.toString('latin1', from).matchAll(OWN_ID_MEMBER)].at(-1);
  const [member = '', digits = ''] = last ?? [];
  if (last === undefined || Number(digits) !== ownId) {
    throw new Error('The reply of the node ends without the id of the call');
  }
  const start = from + last.index + member.indexOf(':') + 1;
  const end = from + last.index + member.length - 1;
  return Buffer.concat([tail.subarray(0, start), callerId, tail.subarray(end)]);
}
