/**
 * Removes `<think>…</think>` blocks from text that arrives in pieces cut anywhere.
 *
 * Invariant: the joined output does not depend on where the input was cut. A block that never
 * closes is removed to the end. White space after a block is removed with it while nothing
 * visible has come before.
 *
 * Templates that open the block inside the prompt leave a closing tag without an opening one. A
 * stream cannot take back what it has sent, so text that may belong to such a block is held until
 * the closing tag, or until something says that there is none.
 */

const OPEN = '<think>';
const CLOSE = '</think>';

export class ThinkStripper {
  #held = '';
  /** The end of what is held, where a tag may have begun. */
  #tail = '';
  #isInside = false;
  #isAfterBlock = false;
  #hasVisible = false;
  /** All text until now may belong to a block that the prompt has opened. */
  #mayBeInside: boolean;
  wasOpened = false;

  constructor(mayBeInside: boolean) {
    this.#mayBeInside = mayBeInside;
  }

  push(piece: string): string {
    this.#held += piece;
    if (this.#mayBeInside) {
      // What is held may be long: it is looked through when it has a tag.
      const recent = this.#tail + piece;
      this.#tail = recent.slice(1 - CLOSE.length);
      if (!recent.includes(OPEN) && !recent.includes(CLOSE)) return '';
      const open = this.#held.indexOf(OPEN);
      const close = this.#held.indexOf(CLOSE);
      this.#mayBeInside = false;
      this.#isInside = close !== -1 && (open === -1 || close < open);
      this.wasOpened = this.#isInside;
    }
    return this.#visible();
  }

  /** There is no block that the prompt has opened: gives what was held for it. */
  release(): string {
    if (!this.#mayBeInside) return '';
    this.#mayBeInside = false;
    return this.#visible();
  }

  #visible(): string {
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
        if (tag === CLOSE && !this.#isInside) this.wasOpened = true;
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
    const released = this.release();
    const rest = this.#isInside ? '' : this.#show(this.#held);
    this.#held = '';
    return released + rest;
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
  const stripper = new ThinkStripper(true);
  return stripper.push(text) + stripper.finish();
}
