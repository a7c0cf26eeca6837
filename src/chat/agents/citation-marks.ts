/**
 * Finds citation marks `[REF]N[/REF]` in text that arrives in pieces cut anywhere. Works on the
 * content of JSON strings without decoding them.
 */

const MARK = /\[REF\](\d{1,4})\[\\?\/REF\]/;
/** Matches the longest suffix that may be the beginning of a mark. */
const OPEN_MARK =
  /\[(?:R(?:E(?:F(?:\](?:\d{1,4}(?:\[(?:\\?(?:\/(?:R(?:E(?:F)?)?)?)?)?)?)?)?)?)?)?$/;

type MarkedPiece = { readonly json: string } | { readonly source: number };

export class CitationMarks {
  #pending = '';

  push(json: string): MarkedPiece[] {
    const pieces: MarkedPiece[] = [];
    let rest = this.#pending + json;
    for (let found = MARK.exec(rest); found !== null; found = MARK.exec(rest)) {
      if (found.index > 0) pieces.push({ json: rest.slice(0, found.index) });
      pieces.push({ source: Number(found[1]) });
      rest = rest.slice(found.index + found[0].length);
    }
    const at = rest.search(OPEN_MARK);
    const certain = at === -1 ? rest : rest.slice(0, at);
    this.#pending = at === -1 ? '' : rest.slice(at);
    if (certain !== '') pieces.push({ json: certain });
    return pieces;
  }

  finish(): string {
    const pending = this.#pending;
    this.#pending = '';
    return pending;
  }
}
