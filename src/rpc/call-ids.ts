/**
 * The ids that calls carry on the way to a node. Each exchange takes numbers that no other exchange
 * of this process has, so that a late reply on a reused connection matches no other caller's call.
 * The ids of callers never reach a node.
 */
import { spanString } from '../json/json-spans.ts';
import { plainId } from './splice.ts';

/** Limit of the specification: items per batch. An exchange takes an id for each of them. */
export const MAX_BATCH_ITEMS = 100;
/** Every id has this many digits: few enough for a node that keeps ids as doubles. */
export const OWN_ID_DIGITS = 13;
/** Blocks of one id for each item of a batch are numbered from here to ten times that. */
const FIRST_BLOCK = 10 ** (OWN_ID_DIGITS - 1) / MAX_BATCH_ITEMS;
const DIGIT_0 = 0x30;
const LETTER_N = 0x6e;

export class CallIds {
  #block: number;

  /** `fraction` (0 to 1) chooses where the ids start, so that they differ after a restart. */
  constructor(fraction: number) {
    this.#block = FIRST_BLOCK + Math.floor(fraction * 8 * FIRST_BLOCK);
  }

  take(): number {
    this.#block = this.#block + 1 < 10 * FIRST_BLOCK ? this.#block + 1 : FIRST_BLOCK;
    return this.#block * MAX_BATCH_ITEMS;
  }
}

/** Writes the id that is `offset` behind `firstId`, and returns where it ends. */
export function writeOwnId(target: Buffer, at: number, firstId: string, offset: number): number {
  // A block of ids differs in the last two digits.
  target.write(firstId, at, 'latin1');
  target[at + OWN_ID_DIGITS - 2] = DIGIT_0 + Math.floor(offset / 10);
  target[at + OWN_ID_DIGITS - 1] = DIGIT_0 + (offset % 10);
  return at + OWN_ID_DIGITS;
}

/** Whether the id of a reply is ours (in any spelling), missing or null, or that of another call. */
export function whoseId(
  bytes: Buffer,
  { idStart, idEnd }: { readonly idStart: number; readonly idEnd: number },
  ownId: number,
): 'own' | 'none' | 'other' {
  if (idStart < 0 || bytes[idStart] === LETTER_N) return 'none';
  if (plainId(bytes, idStart, idEnd) === ownId) return 'own';
  // A node may echo it as a string, or as a double.
  const text = spanString(bytes, idStart, idEnd) ?? bytes.toString('latin1', idStart, idEnd);
  return Number(text) === ownId ? 'own' : 'other';
}
