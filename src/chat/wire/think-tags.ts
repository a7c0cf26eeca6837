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
      const found = this.#isInside ? this.#leave() : this.#enter();
      visible += found.visible;
      if (!found.more) return visible;
    }
  }

  /** What was held back as the possible beginning of a tag; call it once, at the end. */
  finish(): string {
    const rest = this.#isInside ? '' : this.#show(this.#held);
    this.#held = '';
    return rest;
  }

  #enter(): { visible: string; more: boolean } {
    const at = this.#held.indexOf('<');
    if (at === -1) return { visible: this.#take(this.#held.length), more: false };
    if (this.#held.startsWith(OPEN, at)) return this.#cross(at, OPEN, true);
    if (this.#held.startsWith(CLOSE, at)) return this.#cross(at, CLOSE, false);
    const tail = this.#held.slice(at);
    const mayBecomeTag = OPEN.startsWith(tail) || CLOSE.startsWith(tail);
    if (mayBecomeTag) return { visible: this.#take(at), more: false };
    return { visible: this.#take(at + 1), more: true };
  }

  #leave(): { visible: string; more: boolean } {
    const at = this.#held.indexOf(CLOSE);
    if (at !== -1) {
      this.#held = this.#held.slice(at);
      return this.#cross(0, CLOSE, false);
    }
    // Only the last few characters can still begin the closing tag.
    this.#held = this.#held.slice(-(CLOSE.length - 1));
    return { visible: '', more: false };
  }

  #cross(at: number, tag: string, isInside: boolean): { visible: string; more: boolean } {
    const visible = this.#take(at);
    this.#held = this.#held.slice(tag.length);
    this.#isInside = isInside;
    this.#isAfterBlock = true;
    return { visible, more: true };
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
