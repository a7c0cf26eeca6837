/**
 * Finds the model id closest to a mistyped one among thousands without comparing all: trigrams
 * select a few candidates, edit distance chooses between them.
 */
import { editDistance } from '../core/nearest-word.ts';

const CANDIDATES = 8;
const COMPARED_CHARACTERS = 128;

export class NearestId {
  readonly #ids: readonly string[];
  readonly #pieces = new Map<string, number[]>();

  constructor(ids: Iterable<string>) {
    this.#ids = [...ids];
    for (const [index, id] of this.#ids.entries()) {
      for (const piece of piecesOf(id)) {
        const list = this.#pieces.get(piece);
        if (list === undefined) this.#pieces.set(piece, [index]);
        else list.push(index);
      }
    }
  }

  /** The nearest id, or `undefined` if none is similar. */
  find(name: string): string | undefined {
    if (name.length > COMPARED_CHARACTERS) return undefined;
    const wanted = name.toLowerCase();
    const shared = new Uint16Array(this.#ids.length);
    for (const piece of piecesOf(wanted)) {
      for (const index of this.#pieces.get(piece) ?? []) shared[index] = (shared[index] ?? 0) + 1;
    }
    let best: string | undefined;
    let bestDistance = Math.max(2, Math.ceil(wanted.length / 2)) + 1;
    for (const index of topOf(shared)) {
      const id = this.#ids[index] ?? '';
      const distance = editDistance(wanted, id.toLowerCase());
      if (distance < bestDistance) [best, bestDistance] = [id, distance];
    }
    return best;
  }
}

function piecesOf(text: string): ReadonlySet<string> {
  const padded = ` ${text.toLowerCase()} `;
  const pieces = new Set<string>();
  for (let start = 0; start + 3 <= padded.length; start += 1) {
    pieces.add(padded.slice(start, start + 3));
  }
  return pieces;
}

/** Indexes of the largest counts, largest first, without zeros. */
function topOf(counts: Uint16Array): readonly number[] {
  const top: number[] = [];
  let least = 0;
  for (let index = 0; index < counts.length; index += 1) {
    const count = counts[index] ?? 0;
    if (count === 0 || (top.length === CANDIDATES && count <= least)) continue;
    top.push(index);
    top.sort((a, b) => (counts[b] ?? 0) - (counts[a] ?? 0));
    if (top.length > CANDIDATES) top.pop();
    least = counts[top.at(-1) ?? 0] ?? 0;
  }
  return top;
}
