/**
 * The fast path of a stream. Events of one kind differ only in one text, so the first of a kind is
 * parsed and becomes a template: the bytes before and after the text, and the same with our id
 * and model. A later event that has exactly these bytes around one JSON string needs no parsing.
 *
 * Invariant: a match proves that the chunk has the structure of the one that was parsed; it is
 * never a guess. A chunk that does not match takes the slow path.
 */
import type { ByteWriter } from '../../json/byte-writer.ts';
import { reasoningOf, toolCallsOf } from './chat-choice.ts';
import { childrenOf, type ChildSpan, isJsonObject, type JsonObject } from '../../json/json-scan.ts';
import { type TextKind, textBytes } from './output-tally.ts';
import { CHUNK_OBJECT } from './stream-frames.ts';
import type { SseData } from './sse-events.ts';

/** Counts a text that is to be shown; `false` when it must be cut, which takes parsing. */
export interface TextCounter {
  count(kind: TextKind, sizeBytes: number): boolean;
}

export interface ChunkTemplate {
  readonly kind: TextKind;
  /** Of the choice whose index stands in the bytes. */
  readonly counter: TextCounter;
  /**
   * The engine's event before the text and after it, quotes and blank line included, then the
   * caller's: one buffer, since a stream that waits long finds nothing of it in a cache.
   */
  readonly bytes: Buffer;
  readonly headEnd: number;
  readonly tailEnd: number;
  readonly shownHeadEnd: number;
}

/** What replaces the engine's id and model. */
export interface ShownFrame {
  readonly id: string;
  readonly model: string;
}

/** The newer name of the reasoning text, as it stands in the bytes. */
const OTHER_REASONING = '"reasoning"';

interface Patch {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

/**
 * Where the text of the event that begins at `start` ends, when the event is the template with
 * another text; -1 when it is not, or not all of it is there.
 */
export function textEnd(template: ChunkTemplate, event: Buffer, start: number): number {
  const { bytes, headEnd, tailEnd } = template;
  const tailBytes = tailEnd - headEnd;
  const textStart = start + headEnd;
  if (textStart + tailBytes > event.length) return -1;
  if (event.compare(bytes, 0, headEnd, start, textStart) !== 0) return -1;
  // The head ends with the opening quote and the tail begins with the closing one.
  const end = stringEnd(event, textStart);
  if (end === -1 || end + tailBytes > event.length) return -1;
  return event.compare(bytes, headEnd, tailEnd, end, end + tailBytes) === 0 ? end : -1;
}

/** How much longer the caller's bytes are than these, when all are events of the template. */
export function addedBytes(template: ChunkTemplate, events: Buffer): number {
  const { bytes, tailEnd } = template;
  return (bytes.length - 2 * tailEnd) * Math.floor(events.length / tailEnd);
}

/** Writes the event of the template whose text stands between `start` and `end`. */
export function writeShown(
  template: ChunkTemplate,
  text: { readonly bytes: Buffer; readonly start: number; readonly end: number },
  writer: ByteWriter,
): void {
  const { bytes, tailEnd, shownHeadEnd } = template;
  writer.writeSpan(bytes, tailEnd, shownHeadEnd);
  writer.writeSpan(text.bytes, text.start, text.end);
  writer.writeSpan(bytes, shownHeadEnd, bytes.length);
}

/** The first quote that closes the string whose text begins at `start`, if it is on this line. */
function stringEnd(bytes: Buffer, start: number): number {
  for (let at = start; at < bytes.length; at += 1) {
    if (bytes[at] === QUOTE) return at;
    if (bytes[at] === BACKSLASH) at += 1;
    if (bytes[at] === LINE_FEED) return -1;
  }
  return -1;
}

/** The UTF-8 length of the text whose JSON stands between two quotes. */
export function decodedBytes(bytes: Buffer, start: number, end: number): number {
  let escapes = 0;
  for (let at = start; at < end; at += 1) {
    if (bytes[at] !== BACKSLASH) continue;
    at += 1;
    // `\u` names one to three bytes, alone or in a pair: let the parser say.
    if (bytes[at] === LETTER_U) return parsedBytes(bytes, start, end);
    escapes += 1;
  }
  return end - start - escapes;
}

const LINE_FEED = 0x0a;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const LETTER_U = 0x75;

function parsedBytes(bytes: Buffer, start: number, end: number): number {
  try {
    const text: unknown = JSON.parse(bytes.toString('utf8', start - 1, end + 1));
    return typeof text === 'string' ? textBytes(text) : end - start;
  } catch {
    // A broken escape: the caller sees it too, and the raw length is bound enough.
    return end - start;
  }
}

/**
 * The template of a chunk whose one choice carries nothing but a text; `undefined` when its
 * bytes are laid out in another way. The caller has checked the parsed chunk.
 */
export function learnTemplate(
  data: SseData,
  text: Pick<ChunkTemplate, 'kind' | 'counter'>,
  frame: ShownFrame,
): ChunkTemplate | undefined {
  const { event } = data;
  if (event === undefined) return undefined;
  const bytes = Buffer.from(data.bytes.subarray(data.start, data.end));
  const members = childrenOf(bytes).spans;
  const id = find(members, 'id');
  const model = find(members, 'model');
  const delta = deltaMembers(bytes, members);
  const member = delta === undefined ? undefined : textMember(bytes, delta, text.kind);
  if (id === undefined || model === undefined || member === undefined) return undefined;
  if (bytes[member.valueStart] !== QUOTE) return undefined;
  const patches: Patch[] = [valuePatch(id, frame.id), valuePatch(model, frame.model)];
  if (member.key === 'reasoning') {
    const end = member.start + OTHER_REASONING.length;
    if (bytes.toString('utf8', member.start, end) !== OTHER_REASONING) return undefined;
    patches.push({ start: member.start, end, text: '"reasoning_content"' });
  }
  const headEnd = member.valueStart + 1;
  const tailStart = member.end - 1;
  return joined(text, [
    data.bytes.subarray(event.start, data.start + headEnd),
    data.bytes.subarray(data.start + tailStart, event.end),
    Buffer.from(`data: ${patched(bytes, 0, headEnd, patches)}`),
    Buffer.from(`${patched(bytes, tailStart, bytes.length, patches)}\n\n`),
  ]);
}

function joined(
  { kind, counter }: Pick<ChunkTemplate, 'kind' | 'counter'>,
  parts: readonly [Buffer, Buffer, Buffer, Buffer],
): ChunkTemplate {
  const [head, tail, shownHead] = parts;
  const tailEnd = head.length + tail.length;
  const shownHeadEnd = tailEnd + shownHead.length;
  return {
    kind,
    counter,
    bytes: Buffer.concat(parts),
    headEnd: head.length,
    tailEnd,
    shownHeadEnd,
  };
}

function valuePatch(member: ChildSpan, value: string): Patch {
  return { start: member.valueStart, end: member.end, text: JSON.stringify(value) };
}

function find(members: readonly ChildSpan[], key: string): ChildSpan | undefined {
  const found = members.filter((member) => member.key === key);
  return found.length === 1 ? found[0] : undefined;
}

function deltaMembers(
  bytes: Buffer,
  members: readonly ChildSpan[],
): readonly ChildSpan[] | undefined {
  const choices = find(members, 'choices');
  const [choice] = choices === undefined ? [] : childrenOf(bytes, choices.valueStart).spans;
  const delta =
    choice === undefined ? undefined : find(childrenOf(bytes, choice.start).spans, 'delta');
  return delta === undefined ? undefined : childrenOf(bytes, delta.valueStart).spans;
}

function textMember(
  bytes: Buffer,
  delta: readonly ChildSpan[],
  kind: TextKind,
): ChildSpan | undefined {
  if (kind === 'content') return find(delta, 'content');
  if (kind === 'reasoning') return find(delta, 'reasoning_content') ?? find(delta, 'reasoning');
  const calls = find(delta, 'tool_calls');
  const [call] = calls === undefined ? [] : childrenOf(bytes, calls.valueStart).spans;
  const made =
    call === undefined ? undefined : find(childrenOf(bytes, call.start).spans, 'function');
  return made === undefined
    ? undefined
    : find(childrenOf(bytes, made.valueStart).spans, 'arguments');
}

function patched(bytes: Buffer, from: number, to: number, patches: readonly Patch[]): string {
  const inside = patches.filter((patch) => patch.start >= from && patch.end <= to);
  let text = '';
  let at = from;
  for (const patch of inside.toSorted((a, b) => a.start - b.start)) {
    text += bytes.toString('utf8', at, patch.start) + patch.text;
    at = patch.end;
  }
  return text + bytes.toString('utf8', at, to);
}

const DELTA_TEXTS = new Set(['content', 'reasoning_content', 'reasoning', 'tool_calls']);

/** Which text of which choice a chunk carries, when it carries one text and nothing else. */
export function textOnlyKind(
  chunk: JsonObject,
  hasDocuments: boolean,
): { readonly kind: TextKind; readonly choice: number } | undefined {
  const { choices } = chunk;
  const choice: unknown = Array.isArray(choices) && choices.length === 1 ? choices[0] : undefined;
  if (!isJsonObject(choice) || !isJsonObject(choice['delta'])) return undefined;
  if ((chunk['usage'] ?? null) !== null || chunk['object'] !== CHUNK_OBJECT) return undefined;
  const { index } = choice;
  if (typeof index !== 'number' || !Number.isSafeInteger(index) || index < 0) return undefined;
  if (!Number.isSafeInteger(chunk['created'])) return undefined;
  if (choice['finish_reason'] !== null || (choice['logprobs'] ?? null) !== null) return undefined;
  const { delta } = choice;
  const carried = Object.keys(delta).filter(
    (key) => DELTA_TEXTS.has(key) && (delta[key] ?? null) !== null,
  );
  // An empty text is the role chunk's, and no later chunk looks like that one.
  if (carried.length !== 1 || delta['content'] === '') return undefined;
  if (typeof delta['content'] === 'string') return { kind: 'content', choice: index };
  if (reasoningOf(delta) !== undefined) return { kind: 'reasoning', choice: index };
  return !hasDocuments && continuesCall(delta) ? { kind: 'tool', choice: index } : undefined;
}

/** A piece of arguments for a call that has begun: it has an index and no id. */
function continuesCall(delta: JsonObject): boolean {
  const [call, ...others] = toolCallsOf(delta);
  if (call === undefined || others.length > 0 || !Number.isSafeInteger(call['index'])) return false;
  const made = call['function'];
  const isPiece = (call['id'] ?? null) === null && isJsonObject(made);
  return isPiece && (made['name'] ?? null) === null && typeof made['arguments'] === 'string';
}
