/**
 * Splits the text of a model into thinking, content and tool calls while it is being generated. A
 * mark may arrive in several pieces, so text that could still become a mark is held back. A stop
 * text ends the content and is not part of it.
 */
import { THINK_CLOSE, THINK_OPEN, TOOL_CLOSE, TOOL_OPEN } from './chat-template.ts';

export type ResponsePiece =
  | { readonly type: 'reasoning'; readonly text: string }
  | { readonly type: 'content'; readonly text: string }
  | { readonly type: 'call-start'; readonly index: number; readonly name: string }
  | { readonly type: 'call-arguments'; readonly index: number; readonly text: string };

export interface SplitterOptions {
  readonly start: 'thought' | 'content' | 'call';
  readonly mayThink: boolean;
  readonly mayCall: boolean;
  readonly stops: readonly string[];
}

const ARGUMENTS_KEY = '"arguments":';

export class ResponseSplitter {
  readonly #options: SplitterOptions;
  #state: 'thought' | 'content' | 'call';
  #pending = '';
  #isStopped = false;
  #hasContent = false;
  #calls = 0;
  #call: ArgumentsScanner | undefined;

  constructor(options: SplitterOptions) {
    this.#options = options;
    this.#state = options.start;
  }

  get state(): 'thought' | 'content' | 'call' {
    return this.#state;
  }

  get isStopped(): boolean {
    return this.#isStopped;
  }

  get calls(): number {
    return this.#calls;
  }

  /** Adds text; returns the pieces that are final. */
  push(text: string): ResponsePiece[] {
    const pieces: ResponsePiece[] = [];
    this.#pending += text;
    while (!this.#isStopped && this.#step(pieces));
    return pieces;
  }

  /** Ends the text; returns the pending rest. */
  end(): ResponsePiece[] {
    const rest = this.#pending;
    this.#pending = '';
    if (this.#isStopped || this.#state === 'call') return [];
    const pieces: ResponsePiece[] = [];
    this.#emit(pieces, rest);
    return pieces;
  }

  /** Processes one step of the pending text; returns `false` if more text is needed. */
  #step(pieces: ResponsePiece[]): boolean {
    if (this.#state === 'call') return this.#stepCall(pieces);
    const marks = this.#marks();
    const found = firstOf(this.#pending, marks);
    if (found === undefined) {
      const kept = unfinishedMarkLength(this.#pending, marks);
      this.#emit(pieces, this.#pending.slice(0, this.#pending.length - kept));
      this.#pending = this.#pending.slice(this.#pending.length - kept);
      return false;
    }
    this.#emit(pieces, this.#pending.slice(0, found.at));
    this.#pending = this.#pending.slice(found.at + found.mark.length);
    if (found.mark === THINK_CLOSE && this.#state === 'thought') this.#state = 'content';
    else if (found.mark === THINK_OPEN && this.#options.mayThink) this.#state = 'thought';
    else if (found.mark === TOOL_OPEN && this.#options.mayCall) this.#state = 'call';
    else this.#isStopped = true;
    return true;
  }

  #marks(): readonly string[] {
    if (this.#state === 'thought') return [THINK_CLOSE];
    const opensThought = this.#options.mayThink && !this.#hasContent;
    return [
      ...this.#options.stops,
      ...(this.#options.mayCall ? [TOOL_OPEN] : []),
      ...(opensThought ? [THINK_OPEN] : []),
    ];
  }

  #emit(pieces: ResponsePiece[], text: string): void {
    if (this.#state === 'thought') {
      if (text !== '') pieces.push({ type: 'reasoning', text });
      return;
    }
    // Blank lines around thinking blocks and calls belong to the format, not to the content.
    const isFormat = this.#options.mayThink || this.#calls > 0;
    const shown = !this.#hasContent && isFormat ? text.trimStart() : text;
    if (shown === '') return;
    this.#hasContent = true;
    pieces.push({ type: 'content', text: shown });
  }

  #stepCall(pieces: ResponsePiece[]): boolean {
    if (this.#call === undefined) {
      const at = this.#pending.indexOf(ARGUMENTS_KEY);
      if (at < 0) return false;
      const name = nameOf(this.#pending.slice(0, at));
      this.#pending = this.#pending.slice(at + ARGUMENTS_KEY.length);
      this.#call = new ArgumentsScanner();
      pieces.push({ type: 'call-start', index: this.#calls, name });
      return true;
    }
    const args = this.#call.push(this.#pending);
    if (args !== '') pieces.push({ type: 'call-arguments', index: this.#calls, text: args });
    if (!this.#call.isComplete) {
      this.#pending = '';
      return false;
    }
    const end = this.#pending.indexOf(TOOL_CLOSE);
    if (end < 0) return false;
    this.#pending = this.#pending.slice(end + TOOL_CLOSE.length);
    this.#call = undefined;
    this.#calls += 1;
    this.#state = 'content';
    return true;
  }
}

class ArgumentsScanner {
  #depth = 0;
  #inText = false;
  #escaped = false;
  #isComplete = false;

  get isComplete(): boolean {
    return this.#isComplete;
  }

  /** Returns the part of `text` that belongs to the object, without leading spaces. */
  push(text: string): string {
    if (this.#isComplete) return '';
    const start = this.#depth === 0 ? text.length - text.trimStart().length : 0;
    for (let at = start; at < text.length; at += 1) {
      this.#read(text.charAt(at));
      if (this.#isComplete) return text.slice(start, at + 1);
    }
    return text.slice(start);
  }

  #read(character: string): void {
    if (this.#escaped) this.#escaped = false;
    else if (this.#inText) {
      if (character === '\\') this.#escaped = true;
      else if (character === '"') this.#inText = false;
    } else if (character === '"') this.#inText = true;
    else if (character === '{' || character === '[') this.#depth += 1;
    else if (character === '}' || character === ']') {
      this.#depth -= 1;
      this.#isComplete = this.#depth === 0;
    }
  }
}

function nameOf(head: string): string {
  const match = /"name":\s*("(?:[^"\\]|\\.)*")/.exec(head);
  // The grammar guarantees that this literal is a JSON string.
  return match?.[1] === undefined ? '' : (JSON.parse(match[1]) as string);
}

function firstOf(text: string, marks: readonly string[]): { at: number; mark: string } | undefined {
  let best: { at: number; mark: string } | undefined;
  for (const mark of marks) {
    const at = text.indexOf(mark);
    if (at >= 0 && (best === undefined || at < best.at)) best = { at, mark };
  }
  return best;
}

/** Number of characters at the end that could still become one of the marks. */
function unfinishedMarkLength(text: string, marks: readonly string[]): number {
  let most = 0;
  for (const mark of marks) {
    for (let length = Math.min(mark.length - 1, text.length); length > most; length -= 1) {
      if (text.endsWith(mark.slice(0, length))) {
        most = length;
        break;
      }
    }
  }
  return most;
}
