/**
 * The fast path of a stream. Events of one kind differ only in one text, so the first of a kind is
 * parsed and becomes a template: the bytes before and after the text, and the same with our id,
 * model and time. A later event that has exactly these bytes around one JSON string needs no parsing.
 * Between the streams of a model the engine's id and time differ besides: with gaps for them the same
 * bytes are a layout, so that of all streams one has to parse such an event.
 *
 * Invariant: a match proves that the chunk has the structure of the one that was parsed; it is
 * never a guess. A chunk that does not match takes the slow path.
 */
import {
  childrenOf,
  type ChildSpan,
  isJsonObject,
  type JsonObject,
  type Span,
} from '../../json/json-scan.ts';
import { madeBy, reasoningOf, textBytes, type TextKind, toolCallsOf } from './chat-choice.ts';
import type { SseData } from '../../http/sse-events.ts';

export const CHUNK_OBJECT = 'chat.completion.chunk';

/** Counts a text that is to be shown; `false` when it must be cut, which takes parsing. */
export interface TextCounter {
  count(kind: TextKind, sizeBytes: number): boolean;
}

/** What replaces the engine's id, model and time. */
export interface ShownFrame {
  readonly id: string;
  readonly model: string;
  readonly createdS: number;
}

/** The text that a chunk carries, and the choice that it belongs to. */
interface ChunkText {
  readonly kind: TextKind;
  /** Index of the choice. */
  readonly choice: number;
  /** Index of the call whose arguments it is. */
  readonly call: number;
}

/** What differs between two events of a layout. */
type GapName = 'text' | 'id' | 'created';

/** How the events that carry a text of a choice look, whatever stream of a model they are of. */
export interface ChunkLayout extends ChunkText {
  /** In the order of the bytes. */
  readonly gaps: readonly GapName[];
  /** The engine's event before each gap and after the last, blank line included. */
  readonly given: readonly Buffer[];
  /** The same of the caller's event. */
  readonly shown: readonly string[];
}

/** Layouts of one model that are worth comparing with, and models; the oldest gives way. */
export const MAX_LAYOUTS = 8;
const MAX_MODELS = 1_000;
const NO_LAYOUTS: readonly ChunkLayout[] = [];

/** What the streams of a server have learned from each other. Shows nothing of one to another. */
export class ChunkLayouts {
  readonly #ofModel = new Map<string, ChunkLayout[]>();

  of(model: string): readonly ChunkLayout[] {
    return this.#ofModel.get(model) ?? NO_LAYOUTS;
  }

  add(model: string, layout: ChunkLayout): void {
    const known = this.#ofModel.get(model) ?? [];
    if (known.length === 0) {
      for (const oldest of this.#ofModel.keys()) {
        if (this.#ofModel.size < MAX_MODELS) break;
        this.#ofModel.delete(oldest);
      }
      this.#ofModel.set(model, known);
    }
    if (known.length >= MAX_LAYOUTS) known.pop();
    known.unshift(layout);
  }
}

const LINE_FEED = 0x0a;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const LETTER_U = 0x75;

export class ChunkTemplate {
  readonly kind: TextKind;
  readonly call: number;
  /** Of the choice whose index stands in the bytes. */
  readonly counter: TextCounter;
  /** Of the event that matched last: its text in the bytes, the text's UTF-8 length, its end. */
  textStart = 0;
  textEnd = 0;
  textBytes = 0;
  end = 0;
  /**
   * The engine's event before the text and after it, quotes and blank line included, then the
   * caller's: one buffer, since a stream that waits long finds nothing of it in a cache.
   */
  readonly #bytes: Buffer;
  /** How much longer the caller's event is. */
  readonly addedBytes: number;
  readonly #headEnd: number;
  readonly #tailEnd: number;
  readonly #shownHeadEnd: number;

  constructor(
    { kind, call }: ChunkText,
    counter: TextCounter,
    parts: readonly [Buffer, Buffer, Buffer, Buffer],
  ) {
    this.kind = kind;
    this.call = call;
    this.counter = counter;
    this.#bytes = Buffer.concat(parts);
    this.#headEnd = parts[0].length;
    this.#tailEnd = this.#headEnd + parts[1].length;
    this.#shownHeadEnd = this.#tailEnd + parts[2].length;
    this.addedBytes = this.#bytes.length - 2 * this.#tailEnd;
  }

  /** Whether the event that begins at `start` is there whole, and this one with another text. */
  matches(event: Buffer, start: number): boolean {
    const bytes = this.#bytes;
    const headEnd = this.#headEnd;
    const tailBytes = this.#tailEnd - headEnd;
    const textStart = start + headEnd;
    if (textStart + tailBytes > event.length) return false;
    // Loops, because `compare` of buffers makes more objects than it saves time.
    for (let at = 0; at < headEnd; at += 1) if (event[start + at] !== bytes[at]) return false;
    // The head ends with the opening quote and the tail begins with the closing one.
    let at = textStart;
    let escapes = 0;
    let isExact = true;
    for (; event[at] !== QUOTE; at += 1) {
      const byte = event[at];
      if (byte === undefined || byte === LINE_FEED) return false;
      if (byte !== BACKSLASH) continue;
      at += 1;
      if (event[at] === LINE_FEED) return false;
      // `\u` names one to three bytes, alone or in a pair: let the parser say.
      if (event[at] === LETTER_U) isExact = false;
      escapes += 1;
    }
    const end = at + tailBytes;
    if (end > event.length) return false;
    for (let tail = 0; tail < tailBytes; tail += 1) {
      if (event[at + tail] !== bytes[headEnd + tail]) return false;
    }
    this.textStart = textStart;
    this.textEnd = at;
    this.textBytes = isExact ? at - textStart - escapes : parsedBytes(event, textStart, at);
    this.end = end;
    return true;
  }

  /** The most that the caller's bytes are when all of these are events of the template. */
  mostBytes(sizeBytes: number): number {
    return sizeBytes + Math.max(0, this.addedBytes * Math.floor(sizeBytes / this.#tailEnd));
  }

  /** Writes the event that matched last as the caller gets it; gives where it ends. */
  write(event: Buffer, into: Buffer, at: number): number {
    const bytes = this.#bytes;
    let end = at + bytes.copy(into, at, this.#tailEnd, this.#shownHeadEnd);
    end += event.copy(into, end, this.textStart, this.textEnd);
    return end + bytes.copy(into, end, this.#shownHeadEnd);
  }
}

function parsedBytes(bytes: Buffer, start: number, end: number): number {
  try {
    const text: unknown = JSON.parse(bytes.toString('utf8', start - 1, end + 1));
    return typeof text === 'string' ? textBytes(text) : end - start;
  } catch {
    // A broken escape: the caller sees it too, and the raw length is bound enough.
    return end - start;
  }
}

/** The newer name of the reasoning text, as it stands in the bytes. */
const OTHER_REASONING = '"reasoning"';

/**
 * The layout of a chunk whose one choice carries nothing but a text; `undefined` when its bytes are
 * laid out in another way. The caller has checked the parsed chunk. It is of this stream alone where
 * `id` and `created` have no gap: then they are no plain text and no plain number.
 */
export function learnLayout(
  { bytes: source, start: dataStart, end: dataEnd, event }: SseData,
  text: ChunkText,
  frame: ShownFrame,
): ChunkLayout | undefined {
  if (event === undefined) return undefined;
  const bytes = source.subarray(dataStart, dataEnd);
  const members = childrenOf(bytes).spans;
  const member = textMember(bytes, members, text.kind);
  if (member === undefined || bytes[member.valueStart] !== QUOTE) return undefined;
  const named: Readonly<Record<string, string>> = {
    id: JSON.stringify(frame.id),
    model: JSON.stringify(frame.model),
    created: String(frame.createdS),
  };
  // Both in the order of the bytes.
  const patches: Patch[] = [];
  const gaps: Gap[] = [];
  for (const { key, start, valueStart, end } of members) {
    if (member.start >= start && member.end <= end) {
      gaps.push({ name: 'text', start: member.valueStart + 1, end: member.end - 1 });
    }
    const shown = Object.hasOwn(named, key) ? named[key] : undefined;
    if (shown !== undefined) {
      const gap = gapOf(key, bytes, valueStart, end);
      if (gap === undefined) patches.push({ start: valueStart, end, text: shown });
      else gaps.push(gap);
    } else if (start < member.start && member.end < end && member.key === 'reasoning') {
      const nameEnd = member.start + OTHER_REASONING.length;
      if (bytes.toString('utf8', member.start, nameEnd) !== OTHER_REASONING) return undefined;
      patches.push({ start: member.start, end: nameEnd, text: '"reasoning_content"' });
    }
  }
  // Each of the three is there, and once.
  for (const key in named) if (find(members, key) === undefined) return undefined;
  const given: Buffer[] = [];
  const shown: string[] = [];
  let at = 0;
  for (const gap of gaps) {
    given.push(
      Buffer.from(source.subarray(at === 0 ? event.start : dataStart + at, dataStart + gap.start)),
    );
    shown.push((at === 0 ? 'data: ' : '') + patched(bytes, at, gap.start, patches));
    at = gap.end;
  }
  given.push(Buffer.from(source.subarray(dataStart + at, event.end)));
  shown.push(`${patched(bytes, at, bytes.length, patches)}\n\n`);
  return { ...text, gaps: gaps.map(({ name }) => name), given, shown };
}

interface Gap extends Span {
  readonly name: GapName;
}

/** The most of an id. */
const MAX_ID_BYTES = 256;
const ZERO = 0x30;
const NINE = 0x39;
const SPACE = 0x20;

/** Where the value of a member stands, without quotes, when it is a plain one. */
function gapOf(key: string, bytes: Buffer, start: number, end: number): Gap | undefined {
  if (key === 'created') {
    return createdEnd(bytes, start) === end ? { name: 'created', start, end } : undefined;
  }
  const isPlain = key === 'id' && bytes[start] === QUOTE && idEnd(bytes, start + 1) === end - 1;
  return isPlain ? { name: 'id', start: start + 1, end: end - 1 } : undefined;
}

/** The quote after a plain text; -1 for any other. */
function idEnd(bytes: Buffer, start: number): number {
  for (let at = start; at - start <= MAX_ID_BYTES; at += 1) {
    const byte = bytes[at] ?? 0;
    if (byte === QUOTE) return at;
    if (byte < SPACE || byte === BACKSLASH) return -1;
  }
  return -1;
}

/** The end of a whole number in its one spelling; -1 for any other. */
function createdEnd(bytes: Buffer, start: number): number {
  let at = start;
  for (let byte = bytes[at] ?? 0; byte >= ZERO && byte <= NINE; byte = bytes[at] ?? 0) at += 1;
  return at === start || (at > start + 1 && bytes[start] === ZERO) ? -1 : at;
}

/** The quote after a text with any escapes; -1 when the line ends before. */
function textEnd(bytes: Buffer, start: number): number {
  for (let at = start; at < bytes.length; at += 1) {
    const byte = bytes[at];
    if (byte === QUOTE) return at;
    if (byte === BACKSLASH) at += 1;
    if (bytes[at] === LINE_FEED) return -1;
  }
  return -1;
}

/** The template of the event that begins at `start`, when it has the layout. */
export function templateOf(
  layout: ChunkLayout,
  counter: TextCounter,
  frame: ShownFrame,
  bytes: Buffer,
  start: number,
): ChunkTemplate | undefined {
  const { gaps, given, shown } = layout;
  let at = start;
  let textStart = -1;
  let textStop = -1;
  let shownHead = '';
  let shownTail = '';
  for (let index = 0; index < given.length; index += 1) {
    const piece = given[index];
    if (piece === undefined) return undefined;
    for (let from = 0; from < piece.length; from += 1, at += 1) {
      if (bytes[at] !== piece[from]) return undefined;
    }
    shownTail += shown[index] ?? '';
    const gap = gaps[index];
    if (gap === undefined) continue;
    const from = at;
    if (gap === 'text') at = textEnd(bytes, from);
    else at = gap === 'id' ? idEnd(bytes, from) : createdEnd(bytes, from);
    if (at === -1) return undefined;
    if (gap === 'id') shownTail += JSON.stringify(frame.id).slice(1, -1);
    else if (gap === 'created') shownTail += String(frame.createdS);
    else {
      textStart = from;
      textStop = at;
      shownHead = shownTail;
      shownTail = '';
    }
  }
  return new ChunkTemplate(layout, counter, [
    bytes.subarray(start, textStart),
    bytes.subarray(textStop, at),
    Buffer.from(shownHead),
    Buffer.from(shownTail),
  ]);
}

/** The member that is there under this name once. */
function find(members: readonly ChildSpan[], key: string): ChildSpan | undefined {
  let found: ChildSpan | undefined;
  for (const member of members) {
    if (member.key !== key) continue;
    if (found !== undefined) return undefined;
    found = member;
  }
  return found;
}

/** The member of that name, of the first element where its value is a list. */
function inside(bytes: Buffer, members: readonly ChildSpan[], key: string): readonly ChildSpan[] {
  const member = find(members, key);
  if (member === undefined) return [];
  const children = childrenOf(bytes, member.valueStart).spans;
  const [first] = children;
  if (first === undefined || first.start !== first.valueStart) return children;
  return childrenOf(bytes, first.start).spans;
}

function textMember(
  bytes: Buffer,
  members: readonly ChildSpan[],
  kind: TextKind,
): ChildSpan | undefined {
  const delta = inside(bytes, inside(bytes, members, 'choices'), 'delta');
  if (kind === 'content') return find(delta, 'content');
  if (kind === 'reasoning') return find(delta, 'reasoning_content') ?? find(delta, 'reasoning');
  return find(inside(bytes, inside(bytes, delta, 'tool_calls'), 'function'), 'arguments');
}

interface Patch extends Span {
  readonly text: string;
}

function patched(bytes: Buffer, from: number, to: number, patches: readonly Patch[]): string {
  let text = '';
  let at = from;
  for (const patch of patches) {
    if (patch.start < from || patch.end > to) continue;
    text += bytes.toString('utf8', at, patch.start) + patch.text;
    at = patch.end;
  }
  return text + bytes.toString('utf8', at, to);
}

const DELTA_TEXTS = ['content', 'reasoning_content', 'reasoning', 'tool_calls'];

/** Which text of which choice a chunk carries, when it carries one text and nothing else. */
export function textOnlyKind(chunk: JsonObject, hasDocuments: boolean): ChunkText | undefined {
  const { choices } = chunk;
  const choice: unknown = Array.isArray(choices) && choices.length === 1 ? choices[0] : undefined;
  if (!isJsonObject(choice) || !isJsonObject(choice['delta'])) return undefined;
  if ((chunk['usage'] ?? null) !== null || chunk['object'] !== CHUNK_OBJECT) return undefined;
  const { index, delta } = choice;
  if (typeof index !== 'number' || !Number.isSafeInteger(index) || index < 0) return undefined;
  if (choice['finish_reason'] !== null || (choice['logprobs'] ?? null) !== null) return undefined;
  let carried = 0;
  for (const key of DELTA_TEXTS) if ((delta[key] ?? null) !== null) carried += 1;
  // An empty text is the role chunk's, and no later chunk looks like that one.
  if (carried !== 1 || delta['content'] === '') return undefined;
  if (typeof delta['content'] === 'string') return { kind: 'content', choice: index, call: 0 };
  if (reasoningOf(delta) !== undefined) return { kind: 'reasoning', choice: index, call: 0 };
  const call = hasDocuments ? undefined : continuedCall(delta);
  return call === undefined ? undefined : { kind: 'tool', choice: index, call };
}

/** The index of the call that has begun and gets a piece of arguments: it has no id. */
function continuedCall(delta: JsonObject): number | undefined {
  const [call, ...others] = toolCallsOf(delta);
  if (call === undefined || others.length > 0) return undefined;
  const { index } = call;
  if (typeof index !== 'number' || !Number.isSafeInteger(index)) return undefined;
  const { name, arguments: text } = madeBy(call);
  const isPiece = (call['id'] ?? name ?? null) === null && typeof text === 'string';
  return isPiece ? index : undefined;
}
