/**
 * The fast path of a stream. Events of one kind differ only in their text, id and time, so the
 * first one is parsed and becomes a layout: its bytes with gaps for these values. A later event
 * with exactly these bytes around a JSON string needs no parsing, in any stream of the model. The
 * role and the end of a choice have layouts without text.
 *
 * Invariant: a match proves that the event has the structure of the parsed one. Other events are
 * parsed.
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
  functionOf,
  reasoningOf,
  textBytes,
  type TextKind,
  toolCallsOf,
} from './chat-choice.ts';
import { BACKSLASH, QUOTE } from '../../json/json-skip.ts';
import { parsedJson } from '../../json/json-text.ts';
import type { SseData } from '../../http/sse-events.ts';

export const CHUNK_OBJECT = 'chat.completion.chunk';

interface ShownFrame {
  readonly id: string;
  readonly model: string;
  readonly createdS: number;
}

/** Effect of a chunk that changes one choice and contains nothing else. */
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

type GapName = 'text' | 'id' | 'created';

interface LaidOut {
  readonly gaps: readonly GapName[];
  /**
   * The engine's event without its gaps, blank line included; `ends` are the positions of the gaps.
   */
  readonly given: Buffer;
  readonly ends: readonly number[];
  readonly shown: readonly string[];
}

export type TextLayout = TextStep & LaidOut;
export type BoundaryLayout = BoundaryStep & LaidOut;
export type ChunkLayout = TextLayout | BoundaryLayout;

/** Maximum number of layouts of one model. */
const MAX_LAYOUTS = 16;
/** Maximum number of models; the oldest is dropped first. */
const MAX_MODELS = 1_000;

/** The layouts of all models, shared by their streams. They contain no text of any stream. */
export class ChunkLayouts {
  readonly #ofModel = new Map<string, ChunkLayout[]>();

  of(model: string): ChunkLayout[] {
    let known = this.#ofModel.get(model);
    if (known !== undefined) return known;
    const [oldest = ''] = this.#ofModel.keys();
    if (this.#ofModel.size >= MAX_MODELS) this.#ofModel.delete(oldest);
    known = [];
    this.#ofModel.set(model, known);
    return known;
  }
}

export function addLayout(known: ChunkLayout[], layout: ChunkLayout): void {
  if (known.length >= MAX_LAYOUTS) known.pop();
  known.push(layout);
}

const SPACE = 0x20;
const ZERO = 0x30;
const NINE = 0x39;
const LETTER_U = 0x75;
const MAX_ID_BYTES = 256;

/** Compares events with layouts; its fields describe the event that matched last. */
export class LayoutMatch {
  /** Position of the text in the bytes, and its length in UTF-8 once parsed. */
  textStart = 0;
  textEnd = 0;
  textBytes = 0;
  end = 0;

  /** Returns the layout of the complete event that begins at `start`, if any matches. */
  find(known: ChunkLayout[], bytes: Buffer, start: number): ChunkLayout | undefined {
    for (let at = 0; at < known.length; at += 1) {
      const layout = known[at];
      if (layout === undefined || !this.#isOf(layout, bytes, start)) continue;
      const before = known[at - 1];
      if (before === undefined) return layout;
      // Frequent layouts move to the front, so that the last one is the least useful.
      known[at - 1] = layout;
      known[at] = before;
      return layout;
    }
    return undefined;
  }

  #isOf(layout: ChunkLayout, bytes: Buffer, start: number): boolean {
    const { gaps, given, ends } = layout;
    if (start + given.length > bytes.length) return false;
    let at = start;
    let from = 0;
    for (let index = 0; ; index += 1) {
      const end = ends[index] ?? 0;
      // A loop, because `compare` of buffers creates more objects than it saves time.
      for (; from < end; from += 1, at += 1) if (bytes[at] !== given[from]) return false;
      const gap = gaps[index];
      if (gap === undefined) break;
      at = gap === 'text' ? this.#endOfText(bytes, at) : gapEnd(gap, bytes, at);
      if (at === -1) return false;
    }
    this.end = at;
    return true;
  }

  /** Returns the end of the text that begins at `start`, up to its quote; -1 if there is none. */
  #endOfText(bytes: Buffer, start: number): number {
    let at = start;
    let escapes = 0;
    let isExact = true;
    for (; bytes[at] !== QUOTE; at += 1) {
      let byte = bytes[at] ?? 0;
      if (byte < SPACE) return -1;
      if (byte !== BACKSLASH) continue;
      at += 1;
      byte = bytes[at] ?? 0;
      if (byte < SPACE) return -1;
      // `\u` encodes one to three bytes, alone or in a pair: the parser counts them.
      if (byte === LETTER_U) isExact = false;
      escapes += 1;
    }
    this.textStart = start;
    this.textEnd = at;
    this.textBytes = isExact ? at - start - escapes : parsedBytes(bytes, start, at);
    return at;
  }
}

/** Returns the end of an unescaped id or an integer; -1 for any other value. */
function gapEnd(name: 'id' | 'created', bytes: Buffer, start: number): number {
  let at = start;
  if (name === 'created') {
    // An integer without leading zero.
    for (let byte = bytes[at] ?? 0; byte >= ZERO && byte <= NINE; byte = bytes[at] ?? 0) at += 1;
    return at === start || (at > start + 1 && bytes[start] === ZERO) ? -1 : at;
  }
  for (; at <= start + MAX_ID_BYTES; at += 1) {
    const byte = bytes[at] ?? 0;
    if (byte === QUOTE) return at;
    if (byte < SPACE || byte === BACKSLASH) return -1;
  }
  return -1;
}

function parsedBytes(bytes: Buffer, start: number, end: number): number {
  const text = parsedJson(bytes.toString('utf8', start - 1, end + 1));
  return typeof text === 'string' ? textBytes(text) : end - start;
}

const MAX_LAYOUT_BYTES = 4_096;
const OTHER_REASONING = '"reasoning"';

/**
 * Returns the layout of a parsed chunk; `undefined` if its bytes are arranged differently. If `id`
 * or `created` are not plain values, they get no gap, and the layout is only valid in this stream.
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
  // All three members must exist once; with duplicate keys a reader could take either.
  for (const key in named) if (find(members, key) === undefined) return undefined;
  if (new Set(members.map(({ key }) => key)).size < members.length) return undefined;
  const given: Buffer[] = [];
  const shown: string[] = [];
  let at = 0;
  for (const gap of gaps) {
    given.push(source.subarray(at === 0 ? event.start : dataStart + at, dataStart + gap.start));
    shown.push((at === 0 ? 'data: ' : '') + patched(bytes, at, gap.start, patches));
    at = gap.end;
  }
  given.push(source.subarray(at === 0 ? event.start : dataStart + at, event.end));
  shown.push(`${at === 0 ? 'data: ' : ''}${patched(bytes, at, bytes.length, patches)}\n\n`);
  const all = Buffer.concat(given);
  if (all.length > MAX_LAYOUT_BYTES) return undefined;
  let end = 0;
  const ends = given.map((piece) => (end += piece.length));
  return { ...step, gaps: gaps.map(({ name }) => name), given: all, ends, shown };
}

interface Gap extends Span {
  readonly name: GapName;
}

function gapOf(key: string, bytes: Buffer, start: number, end: number): Gap | undefined {
  if (key === 'created') {
    return gapEnd(key, bytes, start) === end ? { name: key, start, end } : undefined;
  }
  const isPlain =
    key === 'id' && bytes[start] === QUOTE && gapEnd(key, bytes, start + 1) === end - 1;
  return isPlain ? { name: key, start: start + 1, end: end - 1 } : undefined;
}

/** The caller's bytes before and after the text; without a text all are before. */
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

/** The members of that member, or of its first element if it is a list. */
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

/**
 * Returns `undefined` if the chunk does anything else. `canPassCalls`: the indexes of tool calls
 * stay as they are.
 */
export function stepOf(chunk: JsonObject, canPassCalls: boolean): ChunkStep | undefined {
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
  // `reasoning` is renamed even if it is empty.
  if ((reasoning ?? null) !== null) carried += 1;
  if ((calls ?? null) !== null && !(Array.isArray(calls) && calls.length === 0)) carried += 1;
  if (carried === 0) return reasoning === undefined ? boundaryOf(reason, ofChoice) : undefined;
  if (carried !== 1 || reason !== null) return undefined;
  const text = { ...ofChoice, call: 0 };
  if (typeof delta['content'] === 'string' && delta['content'] !== '') {
    return { ...text, kind: 'content' };
  }
  if ((reasoningOf(delta) ?? '') !== '') return { ...text, kind: 'reasoning' };
  const call = canPassCalls && Array.isArray(calls) ? continuedCall(delta) : undefined;
  return call === undefined ? undefined : { ...text, kind: 'tool', call };
}

/** A chunk that only contains the role, or a finish reason that stays unchanged. */
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
  const { name, arguments: text } = functionOf(call);
  const isPiece = (call['id'] ?? name ?? null) === null && typeof text === 'string';
  return isPiece ? index : undefined;
}
