/**
 * Ids of calls on the way to a node. Each exchange uses numbers that no other exchange of this
 * process uses, so that a late reply on a reused connection cannot match the call of another
 * caller. The ids of callers are never sent to a node.
 */
import { spanString } from '../json/json-spans.ts';
import { plainId } from './splice.ts';

/** Items per batch, from the specification. An exchange reserves an id for each item. */
export const MAX_BATCH_ITEMS = 100;
/** Number of digits of every id; exact in a node that stores ids as doubles. */
export const OWN_ID_DIGITS = 13;
/** Lowest block number; each block contains one id per item of a batch. */
const FIRST_BLOCK = 10 ** (OWN_ID_DIGITS - 1) / MAX_BATCH_ITEMS;
const DIGIT_0 = 0x30;
const LETTER_N = 0x6e;

export class CallIds {
  #block: number;

  /** `fraction` (0 to 1) selects the first id, so that ids differ after a restart. */
  constructor(fraction: number) {
    this.#block = FIRST_BLOCK + Math.floor(fraction * 8 * FIRST_BLOCK);
  }

  take(): number {
    this.#block = this.#block + 1 < 10 * FIRST_BLOCK ? this.#block + 1 : FIRST_BLOCK;
    return this.#block * MAX_BATCH_ITEMS;
  }
}

/** Writes the id `firstId + offset` to `target` at `at`; returns the end position. */
export function writeOwnId(target: Buffer, at: number, firstId: string, offset: number): number {
  // The ids of a block differ in the last two digits.
  target.write(firstId, at, 'latin1');
  target[at + OWN_ID_DIGITS - 2] = DIGIT_0 + Math.floor(offset / 10);
  target[at + OWN_ID_DIGITS - 1] = DIGIT_0 + (offset % 10);
  return at + OWN_ID_DIGITS;
}

/** Whether the id of a reply is the sent one (in any format), missing or null, or another call's. */
export function whoseId(
  bytes: Buffer,
  { idStart, idEnd }: { readonly idStart: number; readonly idEnd: number },
  ownId: number,
): 'own' | 'none' | 'other' {
  if (idStart < 0 || bytes[idStart] === LETTER_N) return 'none';
  if (plainId(bytes, idStart, idEnd) === ownId) return 'own';
  // A node may return it as a string or as a double.
  const text = spanString(bytes, idStart, idEnd) ?? bytes.toString('latin1', idStart, idEnd);
  return Number(text) === ownId ? 'own' : 'other';
}
