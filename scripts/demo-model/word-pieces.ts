/**
 * Learns a small vocabulary of word pieces from a text and cuts text into them, in the way of a
 * SentencePiece vocabulary: of all neighbours that join to a known piece, the best score joins
 * first. Pieces never cross a word border. Spaces are written as U+2581.
 */

export interface Piece {
  readonly text: string;
  readonly score: number;
  readonly kind: 'normal' | 'unknown' | 'control' | 'byte';
}

export interface Vocabulary {
  readonly pieces: readonly Piece[];
  /** The ids of a text without control pieces. */
  cut(text: string): number[];
  idOf(piece: string): number;
}

export const UNKNOWN = '<unk>';
export const BEGIN = '<s>';
export const TURN_START = '<|im_start|>';
export const TURN_END = '<|im_end|>';

const SPACE = '\u2581';
/** Characters that a caller's text may bring along, beyond those of the training text. */
const PRINTABLE = Array.from({ length: 95 }, (_, index) => String.fromCharCode(32 + index));

/** Learns at most `size` pieces; fewer when the text has no more pairs to join. */
export function learnVocabulary(text: string, size: number): Vocabulary {
  const characters = [...new Set([...PRINTABLE, '\n', ...Array.from(text)])]
    .map(escapeSpaces)
    .sort();
  const fixed: Piece[] = [
    { text: UNKNOWN, score: 0, kind: 'unknown' },
    { text: BEGIN, score: 0, kind: 'control' },
    { text: TURN_END, score: 0, kind: 'control' },
    { text: TURN_START, score: 0, kind: 'control' },
    ...Array.from({ length: 256 }, (_, byte): Piece => byteName(byte)),
  ];
  const joined = learnJoins(text, size - fixed.length - characters.length);
  const normal = [...joined, ...characters].map((piece, rank): Piece => ({
    text: piece,
    score: -rank,
    kind: 'normal',
  }));
  return vocabularyOf([...fixed, ...normal]);
}

function byteName(byte: number): Piece {
  const hex = byte.toString(16).toUpperCase().padStart(2, '0');
  return { text: `<0x${hex}>`, score: 0, kind: 'byte' };
}

function escapeSpaces(text: string): string {
  return text.replaceAll(' ', SPACE);
}

/** The most frequent pair joins first; ties go to the pair that sorts first. */
function learnJoins(text: string, count: number): string[] {
  const words = new Map<string, number>();
  for (const match of text.matchAll(/ ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s/g)) {
    const word = escapeSpaces(match[0]);
    words.set(word, (words.get(word) ?? 0) + 1);
  }
  let cuts = [...words].map(([word, times]) => ({ parts: Array.from(word), times }));
  const joins: string[] = [];
  while (joins.length < count) {
    const best = mostFrequentPair(cuts);
    if (best === undefined) break;
    joins.push(best.left + best.right);
    cuts = cuts.map((cut) => ({ ...cut, parts: joinPair(cut.parts, best.left, best.right) }));
  }
  return joins;
}

interface Cut {
  readonly parts: readonly string[];
  readonly times: number;
}

function mostFrequentPair(cuts: readonly Cut[]): { left: string; right: string } | undefined {
  const counts = new Map<string, number>();
  for (const { parts, times } of cuts) {
    for (let index = 1; index < parts.length; index += 1) {
      const pair = `${parts[index - 1]}\0${parts[index]}`;
      counts.set(pair, (counts.get(pair) ?? 0) + times);
    }
  }
  let best: string | undefined;
  let bestCount = 1;
  for (const [pair, count] of counts) {
    if (count > bestCount || (count === bestCount && best !== undefined && pair < best)) {
      best = pair;
      bestCount = count;
    }
  }
  const [left, right] = best?.split('\0') ?? [];
  return left === undefined || right === undefined ? undefined : { left, right };
}

function joinPair(parts: readonly string[], left: string, right: string): string[] {
  const joined: string[] = [];
  for (const part of parts) {
    if (part === right && joined.at(-1) === left) joined[joined.length - 1] = left + right;
    else joined.push(part);
  }
  return joined;
}

function vocabularyOf(pieces: readonly Piece[]): Vocabulary {
  const ids = new Map(pieces.map((piece, id) => [piece.text, id]));
  function idOf(piece: string): number {
    return ids.get(piece) ?? 0;
  }
  function scoreOf(piece: string): number {
    const id = ids.get(piece);
    const known = id === undefined ? undefined : pieces[id];
    return known?.kind === 'normal' ? known.score : -Infinity;
  }
  function cut(text: string): number[] {
    const parts = Array.from(escapeSpaces(text));
    for (;;) {
      let best = -1;
      let bestScore = -Infinity;
      for (let index = 0; index + 1 < parts.length; index += 1) {
        const score = scoreOf(`${parts[index]}${parts[index + 1]}`);
        if (score > bestScore) [best, bestScore] = [index, score];
      }
      if (best < 0) return parts.map(idOf);
      parts.splice(best, 2, `${parts[best]}${parts[best + 1]}`);
    }
  }
  return { pieces, cut, idOf };
}
