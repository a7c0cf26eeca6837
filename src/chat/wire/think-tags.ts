/**
 * Removes `<think>…</think>` blocks from text that arrives in pieces cut anywhere.
 *
 * Invariant: the joined output does not depend on where the input was cut. A block that never
 * closes is removed to the end. White space after a block is removed with it while nothing
 * visible has come before. A closing tag without an opening one is removed alone: templates that
 * open the block inside the prompt leave it so, and a stream cannot take back what it has sent.
 */

const OPEN = '<think>';
const CLOSE = '</think>';

export class ThinkStripper {
  #held = '';
  #isInside = false;
  #isAfterBlock = false;
  #hasVisible = false;

  /** The visible text that is certain after this piece. */
  push(piece: string): string {
    this.#held += piece;
    let visible = '';
    for (;;) {
      const at = this.#held.indexOf(this.#isInside ? CLOSE : '<');
      if (at === -1) {
        if (!this.#isInside) return visible + this.#take(this.#held.length);
        // Only the last few characters can still begin the closing tag.
        this.#held = this.#held.slice(-(CLOSE.length - 1));
        return visible;
      }
      if (this.#isInside) this.#held = this.#held.slice(at);
      else visible += this.#take(at);
      const tag = [OPEN, CLOSE].find((one) => this.#held.startsWith(one));
      if (tag !== undefined) {
        this.#held = this.#held.slice(tag.length);
        this.#isInside = tag === OPEN;
        this.#isAfterBlock = true;
      } else if (OPEN.startsWith(this.#held) || CLOSE.startsWith(this.#held)) {
        return visible;
      } else {
        visible += this.#take(1);
      }
    }
  }

  /** What was held back as the possible beginning of a tag; call it once, at the end. */
  finish(): string {
    const rest = this.#isInside ? '' : this.#show(this.#held);
    this.#held = '';
    return rest;
  }

  #take(length: number): string {
    const text = this.#held.slice(0, length);
    this.#held = this.#held.slice(length);
    return this.#show(text);
  }

  #show(text: string): string {
    const shown = this.#isAfterBlock && !this.#hasVisible ? text.trimStart() : text;
    if (shown.trim() !== '') this.#hasVisible = true;
    return shown;
  }
}

/**
 * The text of a whole answer without its blocks. Here a closing tag without an opening one takes
 * everything before it along: the block was opened inside the prompt.
 */
export function stripThinkTags(text: string): string {
  const firstOpen = text.indexOf(OPEN);
  const firstClose = text.indexOf(CLOSE);
  const startsInside = firstClose !== -1 && (firstOpen === -1 || firstClose < firstOpen);
  const stripper = new ThinkStripper();
  const head = startsInside ? stripper.push(OPEN) : '';
  return head + stripper.push(text) + stripper.finish();
}
