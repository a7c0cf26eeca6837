/**
 * What a node or a facilitator answers, which may be of any size: read piece by piece, after undoing
 * its compression, and given up beyond a bound. How long it may take is the signal of who asks.
 */

/** A page of a thousand transactions has half a megabyte; viem bounds its own answers by as much. */
export const MAX_ANSWER_BYTES = 10_000_000;

/** The body of an answer as text. Rejects beyond the bound; the rest is not read. */
export async function boundedText(
  response: Response,
  maxBytes = MAX_ANSWER_BYTES,
): Promise<string> {
  const pieces: Uint8Array[] = [];
  let bytes = 0;
  for await (const piece of response.body ?? []) {
    bytes += piece.byteLength;
    // Leaving the loop ends the connection.
    if (bytes > maxBytes) throw new Error(`The answer is larger than ${maxBytes} bytes`);
    pieces.push(piece);
  }
  return Buffer.concat(pieces).toString('utf8');
}
