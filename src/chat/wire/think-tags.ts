/**
 * Removes `<think>…</think>` blocks from text in pieces. The result does not depend on where the
 * text was cut. An unclosed block is removed to the end; leading white space after a block is
 * removed too.
 *
 * A template that opens the block in the prompt leaves only a closing tag. Text that may belong to
 * such a block is buffered until the tag, or until the engine shows that there is none.
 */

const OPEN = '<think>';
const CLOSE = '</think>';

export class ThinkStripper {
  #buffer = '';
  #tail = '';
  #isInside = false;
  #isAfterBlock = false;
  #hasVisible = false;
  /** Whether all text so far may belong to a block opened by the prompt. */
  #mayBeInside: boolean;
  wasOpened = false;

  constructor(mayBeInside: boolean) {
    this.#mayBeInside = mayBeInside;
  }

  push(piece: string): string {
    this.#buffer += piece;
    if (this.#mayBeInside) {
      // The buffer may be long, so only its end is searched.
      const recent = this.#tail + piece;
      this.#tail = recent.slice(1 - CLOSE.length);
      if (!recent.includes(OPEN) && !recent.includes(CLOSE)) return '';
      const open = this.#buffer.indexOf(OPEN);
      const close = this.#buffer.indexOf(CLOSE);
      this.#mayBeInside = false;
      this.#isInside = close !== -1 && (open === -1 || close < open);
      this.wasOpened = this.#isInside;
    }
    return this.#visible();
  }

  release(): string {
    if (!this.#mayBeInside) return '';
    this.#mayBeInside = false;
    return this.#visible();
  }

  #visible(): string {
    let visible = '';
    for (;;) {
      const at = this.#buffer.indexOf(this.#isInside ? CLOSE : '<');
      if (at === -1) {
        if (!this.#isInside) return visible + this.#take(this.#buffer.length);
        // Only the last characters can begin the closing tag.
        this.#buffer = this.#buffer.slice(-(CLOSE.length - 1));
        return visible;
      }
      if (this.#isInside) this.#buffer = this.#buffer.slice(at);
      else visible += this.#take(at);
      const tag = [OPEN, CLOSE].find((one) => this.#buffer.startsWith(one));
      if (tag !== undefined) {
        this.#buffer = this.#buffer.slice(tag.length);
        if (tag === CLOSE && !this.#isInside) this.wasOpened = true;
        this.#isInside = tag === OPEN;
        this.#isAfterBlock = true;
      } else if (OPEN.startsWith(this.#buffer) || CLOSE.startsWith(this.#buffer)) {
        return visible;
      } else {
        visible += this.#take(1);
      }
    }
  }

  finish(): string {
    const released = this.release();
    const rest = this.#isInside ? '' : this.#show(this.#buffer);
    this.#buffer = '';
    return released + rest;
  }

  #take(length: number): string {
    const text = this.#buffer.slice(0, length);
    this.#buffer = this.#buffer.slice(length);
    return this.#show(text);
  }

  #show(text: string): string {
    const shown = this.#isAfterBlock && !this.#hasVisible ? text.trimStart() : text;
    if (shown.trim() !== '') this.#hasVisible = true;
    return shown;
  }
}

/**
 * Strips a complete text; a closing tag without an opening one also removes everything before it.
 */
export function stripThinkTags(text: string): string {
  const stripper = new ThinkStripper(true);
  return stripper.push(text) + stripper.finish();
}
