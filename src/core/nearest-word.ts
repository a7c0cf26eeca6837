/** Suggests the known word nearest to a misspelt one, from a short list. */

/** Longer text is not compared, since it is no typing mistake. */
const COMPARED_CHARACTERS = 120;

export function editDistance(a: string, b: string): number {
  let beforeLast: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i += 1) {
    const row = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const cost = a[i - 1] === b[j - 1] ? 0 : 1;
      let best = Math.min((last[j] ?? 0) + 1, (row[j - 1] ?? 0) + 1, (last[j - 1] ?? 0) + cost);
      const swapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      if (swapped) best = Math.min(best, (beforeLast[j - 2] ?? 0) + 1);
      row.push(best);
    }
    beforeLast = last;
    last = row;
  }
  return last[b.length] ?? 0;
}

export function nearestOf(word: string, candidates: Iterable<string>): string | undefined {
  if (word.length > COMPARED_CHARACTERS) return undefined;
  const wanted = word.toLowerCase();
  const allowed = Math.max(1, Math.floor(wanted.length / 3));
  let best: string | undefined;
  let bestDistance = allowed + 1;
  for (const candidate of candidates) {
    if (Math.abs(candidate.length - wanted.length) >= bestDistance) continue;
    const distance = editDistance(wanted, candidate.toLowerCase());
    if (distance < bestDistance) [best, bestDistance] = [candidate, distance];
  }
  return best;
}

/** Returns `; did you mean "…"?`, or an empty string if no candidate is close. */
export function didYouMean(word: string, candidates: Iterable<string>): string {
  const nearest = nearestOf(word, candidates);
  return nearest === undefined ? '' : `; did you mean "${nearest}"?`;
}
