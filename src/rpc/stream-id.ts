/**
 * The id of a long answer that the node puts behind the result: the result has left by the time it
 * comes. The last bytes are held back until the end, and ours is replaced by the caller's there. A
 * stream that ends without our id is not the answer to this call, and fails.
 */
import { Readable } from 'node:stream';

/** Bytes held back: the id with its name, and what may follow it. */
const TAIL_BYTES = 512;
/** An id of ours as a member, whichever way a node spaces and quotes it. */
const OWN_ID_MEMBER = /"id"\s{0,8}:\s{0,8}"?(\d{13})"?\s{0,8}[,}]/g;

/**
 * A reply of `head` and `rest` in which `callerId` takes the place of `ownId` behind the result.
 * `head` is longer than what is held back.
 */
export function withIdAtEnd(
  head: Buffer,
  rest: Readable,
  ownId: number,
  callerId: Buffer,
): { readonly body: Buffer; readonly rest: Readable } {
  const heldFrom = head.length - TAIL_BYTES;
  const chunks = heldBack(head.subarray(heldFrom), rest, (tail) => replaced(tail, ownId, callerId));
  const changed = Readable.from(chunks, { objectMode: false });
  // A stream that is destroyed before it is read has not started its generator.
  changed.once('close', () => rest.destroy());
  return { body: head.subarray(0, heldFrom), rest: changed };
}

/** `held` and the chunks of `rest`; of the last `TAIL_BYTES` what `end` makes of them. */
async function* heldBack(
  held: Buffer,
  rest: Readable,
  end: (tail: Buffer) => Buffer,
): AsyncGenerator<Buffer> {
  const chunks: AsyncIterable<Buffer> = rest;
  for await (const chunk of chunks) {
    if (chunk.length >= TAIL_BYTES) {
      yield held;
      held = chunk;
      continue;
    }
    const both = Buffer.concat([held, chunk]);
    const heldFrom = Math.max(0, both.length - TAIL_BYTES);
    if (heldFrom > 0) yield both.subarray(0, heldFrom);
    held = both.subarray(heldFrom);
  }
  yield end(held);
}

/** The last bytes of a reply with the id that stands in them replaced. */
function replaced(tail: Buffer, ownId: number, callerId: Buffer): Buffer {
  const from = Math.max(0, tail.length - TAIL_BYTES);
  // One character for each byte, so that positions in it are those of the bytes.
  const last = [...tail.toString('latin1', from).matchAll(OWN_ID_MEMBER)].at(-1);
  const [member = '', digits = ''] = last ?? [];
  if (last === undefined || Number(digits) !== ownId) {
    throw new Error('The reply of the node ends without the id of the call');
  }
  const start = from + last.index + member.indexOf(':') + 1;
  const end = from + last.index + member.length - 1;
  return Buffer.concat([tail.subarray(0, start), callerId, tail.subarray(end)]);
}
