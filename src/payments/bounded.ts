/** Bounded maps, waits and response bodies. */
import { BodyPieces } from '../core/body-pieces.ts';
import type { Clock } from '../core/clock.ts';

/** Sets an entry of a map of at most `most` entries; evicts the entry that was set first. */
export function remember<K, V>(map: Map<K, V>, key: K, value: V, most: number): void {
  map.delete(key);
  map.set(key, value);
  const oldest = map.keys().next();
  if (map.size > most && oldest.done !== true) map.delete(oldest.value);
}

/** Whether `work` settles within `ms`. Does not cancel it; the timer does not keep the process alive. */
export async function endsWithin(
  clock: Clock,
  ms: number,
  work: Promise<unknown>,
): Promise<boolean> {
  return await new Promise((resolve) => {
    const cancel = clock.after(ms, () => resolve(false));
    const ended = (): void => {
      cancel();
      resolve(true);
    };
    work.then(ended, ended);
  });
}

/** A page of 1,000 transactions is 0.5 MB; viem has the same limit. */
export const MAX_RESPONSE_BYTES = 10_000_000;

/** The body of a response as text. Rejects if it has more than `maxBytes` after decompression. */
export async function boundedText(
  response: Response,
  maxBytes = MAX_RESPONSE_BYTES,
): Promise<string> {
  const body = new BodyPieces();
  for await (const piece of response.body ?? []) {
    body.add(Buffer.from(piece.buffer, piece.byteOffset, piece.byteLength));
    if (body.sizeBytes > maxBytes) {
      throw new Error(`The response must have at most ${maxBytes} bytes`);
    }
  }
  return body.joinedAtOnce().toString('utf8');
}
