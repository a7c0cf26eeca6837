/**
 * The fast path of a stream. Events of one kind differ only in one text, so the first of a kind is
 * parsed and becomes a template: the bytes before and after the text, and the same with our id,
 * model and time. A later event that has exactly these bytes around one JSON string needs no parsing.
 * Between the streams of a model the engine's id and time differ besides: with gaps for them the same
 * bytes are a layout, so that of all streams one has to parse such an event. What begins a choice
 * and what ends it have layouts without a text.
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
import {
  finishReason,
  madeBy,
  reasoningOf,
  textBytes,
  type TextKind,
  toolCallsOf,
} from './chat-choice.ts';
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

/** What a chunk does to its one choice, and nothing else. */
type ChunkStep = TextStep | BoundaryStep;

interface StepOfChoice {
  readonly choice: number;
  readonly saysRole: boolean;
}

interface TextStep extends StepOfChoice {
  readonly kind: TextKind;
  readonly call: number;
}

interface BoundaryStep extends StepOfChoice {
  readonly kind: 'boundary';
  readonly isEnd: boolean;
}

/** What differs between two events of a layout. */
type GapName = 'text' | 'id' | 'created';

interface LaidOut {
  readonly gaps: readonly GapName[];
  /** The engine's event before each gap and after the last, blank line included. */
  readonly given: readonly Buffer[];
  readonly shown: readonly string[];
}

/** How the events of a step look, whatever stream of a model they are of. */
export type TextLayout = TextStep & LaidOut;
export type BoundaryLayout = BoundaryStep & LaidOut;
export type ChunkLayout = TextLayout | BoundaryLayout;

/** Layouts of one model that are worth comparing with, and models; the oldest model gives way. */
const MAX_LAYOUTS = 16;
const MAX_MODELS = 1_000;

/** What the streams of a server have learned from each other. Shows nothing of one to another. */
export class ChunkLayouts {
  readonly #ofModel = new Map<string, ChunkLayout[]>();

  of(model: string): ChunkLayout[] {
    let known = this.#ofModel.get(model);
    if (known !== undefined) return known;
    for (const oldest of this.#ofModel.keys()) {
      if (this.#ofModel.size < MAX_MODELS) break;
      this.#ofModel.delete(oldest);
    }
    known = [];
    this.#ofModel.set(model, known);
    return known;
  }
}

/** Adds a layout, in the place of the one that was of least use where there are many. */
export function addLayout(known: ChunkLayout[], layout: ChunkLayout): void {
  if (known.length >= MAX_LAYOUTS) known.pop();
  known.push(layout);
}

const SPACE = 0x20;
const QUOTE = 0x22;
const ZERO = 0x30;
const NINE = 0x39;
const BACKSLASH = 0x5c;
const LETTER_U = 0x75;
/** The most of an engine's id. */
const MAX_ID_BYTES = 256;

/** Compares events with layouts; knows of the one that matched last where its text and its end are. */
export class LayoutMatch {
  textStart = 0;
  textEnd = 0;
  end = 0;

  /** The layout of the event that begins at `start`, when it is there whole and has one. */
  find(known: ChunkLayout[], bytes: Buffer, start: number): ChunkLayout | undefined {
    for (let at = 0; at < known.length; at += 1) {
      const layout = known[at];
      if (layout === undefined || !this.#isOf(layout, bytes, start)) continue;
      const before = known[at - 1];
      if (before === undefined) return layout;
      // What is of use comes forward, so what nobody needs is given up first.
      known[at - 1] = layout;
      known[at] = before;
      return layout;
    }
    return undefined;
  }

  #isOf({ gaps, given }: ChunkLayout, bytes: Buffer, start: number): boolean {
    let at = start;
    for (let index = 0; index < given.length; index += 1) {
      const piece = given[index];
      if (piece === undefined) return false;
      for (let from = 0; from < piece.length; from += 1, at += 1) {
        if (bytes[at] !== piece[from]) return false;
      }
      const gap = gaps[index];
      if (gap === undefined) continue;
      const gapStart = at;
      at = gapEnd(gap, bytes, gapStart);
      if (at === -1) return false;
      if (gap !== 'text') continue;
      this.textStart = gapStart;
      this.textEnd = at;
    }
    this.end = at;
    return true;
  }
}

/** Where a plain value of that name ends that begins at `start`; -1 for any other. */
function gapEnd(name: GapName, bytes: Buffer, start: number): number {
  let at = start;
  if (name === 'created') {
    // A whole number in its one spelling.
    for (let byte = bytes[at] ?? 0; byte >= ZERO && byte <= NINE; byte = bytes[at] ?? 0) at += 1;
    return at === start || (at > start + 1 && bytes[start] === ZERO) ? -1 : at;
  }
  // A text may have escapes; an id has none, and a bound.
  const isText = name === 'text';
  const last = isText ? bytes.length : start + MAX_ID_BYTES;
  for (; at <= last; at += 1) {
    const byte = bytes[at] ?? 0;
    if (byte === QUOTE) return at;
    if (byte < SPACE || (byte === BACKSLASH && !isText)) return -1;
    if (byte !== BACKSLASH) continue;
    at += 1;
    if ((bytes[at] ?? 0) < SPACE) return -1;
  }
  return -1;
}

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
  readonly addedBytes: number;
  readonly #headEnd: number;
  readonly #tailEnd: number;
  readonly #shownHeadEnd: number;

  /** `event`: the one of this layout that begins at `start` in `bytes`. */
  constructor(
    layout: TextLayout,
    counter: TextCounter,
    frame: ShownFrame,
    event: LayoutMatch,
    bytes: Buffer,
    start: number,
  ) {
    this.kind = layout.kind;
    this.call = layout.call;
    this.counter = counter;
    const { before, after } = shownAround(layout, frame);
    const shownHeadBytes = Buffer.byteLength(before);
    this.#headEnd = event.textStart - start;
    this.#tailEnd = this.#headEnd + event.end - event.textEnd;
    this.#shownHeadEnd = this.#tailEnd + shownHeadBytes;
    const own = Buffer.allocUnsafe(this.#shownHeadEnd + Buffer.byteLength(after));
    bytes.copy(own, 0, start, event.textStart);
    bytes.copy(own, this.#headEnd, event.textEnd, event.end);
    own.write(before, this.#tailEnd);
    own.write(after, this.#shownHeadEnd);
    this.#bytes = own;
    this.addedBytes = own.length - 2 * this.#tailEnd;
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
      let byte = event[at] ?? 0;
      if (byte < SPACE) return false;
      if (byte !== BACKSLASH) continue;
      at += 1;
      byte = event[at] ?? 0;
      if (byte < SPACE) return false;
      // `\u` names one to three bytes, alone or in a pair: let the parser say.
      if (byte === LETTER_U) isExact = false;
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

const MAX_LAYOUT_BYTES = 4_096;
/** The newer name of the reasoning text, as it stands in the bytes. */
const OTHER_REASONING = '"reasoning"';

/**
 * The layout of a chunk that is such a step; `undefined` when its bytes are laid out in another way.
 * The caller has checked the parsed chunk. It is of this stream alone where `id` and `created` have
 * no gap: then they are no plain text and no plain number.
 */
export function learnLayout(
  { bytes: source, start: dataStart, end: dataEnd, event }: SseData,
  step: ChunkStep,
  frame: ShownFrame,
): ChunkLayout | undefined {
  if (event === undefined) return undefined;
  const bytes = source.subarray(dataStart, dataEnd);
  const members = childrenOf(bytes).spans;
  const delta = inside(bytes, inside(bytes, members, 'choices'), 'delta');
  if (delta === undefined) return undefined;
  const member = step.kind === 'boundary' ? undefined : textMember(bytes, delta, step.kind);
  if (step.kind !== 'boundary' && (member === undefined || bytes[member.valueStart] !== QUOTE)) {
    return undefined;
  }
  const named: Readonly<Record<string, string>> = {
    id: JSON.stringify(frame.id),
    model: JSON.stringify(frame.model),
    created: String(frame.createdS),
  };
  // Both in the order of the bytes.
  const patches: Patch[] = [];
  const gaps: Gap[] = [];
  for (const { key, start, valueStart, end } of members) {
    if (member !== undefined && member.start >= start && member.end <= end) {
      gaps.push({ name: 'text', start: member.valueStart + 1, end: member.end - 1 });
    }
    const shown = Object.hasOwn(named, key) ? named[key] : undefined;
    if (shown !== undefined) {
      const gap = gapOf(key, bytes, valueStart, end);
      if (gap === undefined) patches.push({ start: valueStart, end, text: shown });
      else gaps.push(gap);
    } else if (member?.key === 'reasoning' && start < member.start && member.end < end) {
      const nameEnd = member.start + OTHER_REASONING.length;
      if (bytes.toString('utf8', member.start, nameEnd) !== OTHER_REASONING) return undefined;
      patches.push({ start: member.start, end: nameEnd, text: '"reasoning_content"' });
    }
  }
  // Each of the three is there, and nothing twice: the bytes pass, and who reads them may take either.
  for (const key in named) if (find(members, key) === undefined) return undefined;
  if (new Set(members.map(({ key }) => key)).size < members.length) return undefined;
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
  given.push(Buffer.from(source.subarray(at === 0 ? event.start : dataStart + at, event.end)));
  shown.push(`${at === 0 ? 'data: ' : ''}${patched(bytes, at, bytes.length, patches)}\n\n`);
  const keptBytes = given.reduce((sum, piece) => sum + piece.length, 0);
  if (keptBytes > MAX_LAYOUT_BYTES) return undefined;
  return { ...step, gaps: gaps.map(({ name }) => name), given, shown };
}

interface Gap extends Span {
  readonly name: GapName;
}

/** Where the value of a member stands, without quotes, when it is a plain one. */
function gapOf(key: string, bytes: Buffer, start: number, end: number): Gap | undefined {
  if (key === 'created') {
    return gapEnd(key, bytes, start) === end ? { name: key, start, end } : undefined;
  }
  const isPlain =
    key === 'id' && bytes[start] === QUOTE && gapEnd(key, bytes, start + 1) === end - 1;
  return isPlain ? { name: key, start: start + 1, end: end - 1 } : undefined;
}

/** What the caller gets around the text of an event; all of it before, where there is none. */
export function shownAround(
  { gaps, shown }: ChunkLayout,
  { id, createdS }: ShownFrame,
): { readonly before: string; readonly after: string } {
  let before = '';
  let after = '';
  for (let index = 0; index < shown.length; index += 1) {
    after += shown[index] ?? '';
    const gap = gaps[index];
    if (gap === 'id') after += JSON.stringify(id).slice(1, -1);
    else if (gap === 'created') after += String(createdS);
    else if (gap === 'text') {
      before = after;
      after = '';
    }
  }
  return before === '' ? { before: after, after: '' } : { before, after };
}

function find(members: readonly ChildSpan[], key: string): ChildSpan | undefined {
  let found: ChildSpan | undefined;
  for (const member of members) {
    if (member.key !== key) continue;
    if (found !== undefined) return undefined;
    found = member;
  }
  return found;
}

/** The members of the member of that name, of its first element where it is a list. */
function inside(
  bytes: Buffer,
  members: readonly ChildSpan[] | undefined,
  key: string,
): readonly ChildSpan[] | undefined {
  const member = members && find(members, key);
  if (member === undefined) return undefined;
  const children = childrenOf(bytes, member.valueStart).spans;
  const [first] = children;
  if (first === undefined || first.start !== first.valueStart) return children;
  return childrenOf(bytes, first.start).spans;
}

function textMember(
  bytes: Buffer,
  delta: readonly ChildSpan[],
  kind: TextKind,
): ChildSpan | undefined {
  if (kind === 'content') return find(delta, 'content');
  if (kind === 'reasoning') return find(delta, 'reasoning_content') ?? find(delta, 'reasoning');
  const made = inside(bytes, inside(bytes, delta, 'tool_calls'), 'function');
  return made && find(made, 'arguments');
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

const DELTA_TEXTS = ['content', 'reasoning_content', 'refusal'];

/** What a chunk does, when it is one step of one choice and carries nothing else. */
export function stepOf(chunk: JsonObject, hasDocuments: boolean): ChunkStep | undefined {
  const { choices } = chunk;
  const choice: unknown = Array.isArray(choices) && choices.length === 1 ? choices[0] : undefined;
  if (!isJsonObject(choice) || !isJsonObject(choice['delta'])) return undefined;
  if ((chunk['usage'] ?? null) !== null || chunk['object'] !== CHUNK_OBJECT) return undefined;
  const { index, delta, finish_reason: reason } = choice;
  if (typeof index !== 'number' || !Number.isSafeInteger(index) || index < 0) return undefined;
  if ((choice['logprobs'] ?? null) !== null || Object.hasOwn(choice, 'usage')) return undefined;
  const ofChoice = { choice: index, saysRole: typeof delta['role'] === 'string' };
  const { reasoning, tool_calls: calls } = delta;
  let carried = 0;
  for (const key of DELTA_TEXTS) if ((delta[key] ?? '') !== '') carried += 1;
  // It gets another name, even where it is empty.
  if ((reasoning ?? null) !== null) carried += 1;
  if ((calls ?? null) !== null && !(Array.isArray(calls) && calls.length === 0)) carried += 1;
  if (carried === 0) return reasoning === undefined ? boundaryOf(reason, ofChoice) : undefined;
  if (carried !== 1 || reason !== null) return undefined;
  const text = { ...ofChoice, call: 0 };
  if (typeof delta['content'] === 'string' && delta['content'] !== '') {
    return { ...text, kind: 'content' };
  }
  if ((reasoningOf(delta) ?? '') !== '') return { ...text, kind: 'reasoning' };
  const call = hasDocuments ? undefined : continuedCall(delta);
  return call === undefined ? undefined : { ...text, kind: 'tool', call };
}

/** A chunk that carries nothing: it says the role, or why the choice ends, in a word that stays. */
function boundaryOf(reason: unknown, ofChoice: StepOfChoice): BoundaryStep | undefined {
  const isEnd = reason !== null;
  const isPlain = isEnd ? finishReason(reason, false) === reason : ofChoice.saysRole;
  return isPlain ? { ...ofChoice, kind: 'boundary', isEnd } : undefined;
}

function continuedCall(delta: JsonObject): number | undefined {
  const [call, ...others] = toolCallsOf(delta);
  if (call === undefined || others.length > 0) return undefined;
  const { index } = call;
  if (typeof index !== 'number' || !Number.isSafeInteger(index)) return undefined;
  const { name, arguments: text } = madeBy(call);
  const isPiece = (call['id'] ?? name ?? null) === null && typeof text === 'string';
  return isPiece ? index : undefined;
}
