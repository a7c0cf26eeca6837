/**
 * Finds `http://` and `https://` URLs in a message: in prose, in brackets, in Markdown, before
 * punctuation.
 */

const MAX_TEXT_CHARS = 200_000;

const MAX_URL_CHARS = 2_048;
const MAX_CANDIDATES = 100;

/** Punctuation that may follow a URL, in several scripts. */
const TRAILING = new Set(`.,;:!?'"*_~|。，、；：！？」』】》”’…`);

/** A closing bracket belongs to the URL only if it was opened there. */
const OPENING: Readonly<Record<string, string>> = { ')': '(', ']': '[', '}': '{', '）': '（' };

/** Up to `max` distinct URLs in order of appearance, without fragments. */
export function findUrls(text: string, max: number): string[] {
  const found = new Map<string, string>();
  let candidates = 0;
  for (const match of text.slice(0, MAX_TEXT_CHARS).matchAll(/https?:\/\/[^\s<>"`\\^]+/gi)) {
    // `[https://a](https://b)` contains two URLs.
    for (const piece of match[0].slice(0, MAX_URL_CHARS * 2).split('](', 2)) {
      if (found.size >= max || ++candidates > MAX_CANDIDATES) return [...found.values()];
      const candidate = trimUrl(piece.slice(0, MAX_URL_CHARS));
      const key = keyOf(candidate);
      if (key !== undefined && !found.has(key)) found.set(key, candidate.split('#')[0] ?? '');
    }
  }
  return [...found.values()];
}

function trimUrl(written: string): string {
  const unclosed = new Map<string, number>();
  for (const char of written) {
    const opening = OPENING[char] ?? char;
    unclosed.set(opening, (unclosed.get(opening) ?? 0) + (opening === char ? 1 : -1));
  }
  let end = written.length;
  for (; end > 0; end--) {
    const last = written[end - 1] ?? '';
    const opening = OPENING[last];
    const extra = opening === undefined ? 0 : (unclosed.get(opening) ?? 0);
    if (extra >= 0 && !TRAILING.has(last)) break;
    if (opening !== undefined) unclosed.set(opening, extra + 1);
  }
  return written.slice(0, end);
}

function keyOf(url: string): string | undefined {
  const parsed = /^https?:\/\/./i.test(url) ? URL.parse(url) : null;
  if (parsed === null) return undefined;
  parsed.hash = '';
  return parsed.href;
}
