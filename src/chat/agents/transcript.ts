/**
 * Builds chat messages from the history of an agent's conversation, in a form that every chat
 * template accepts.
 *
 * - System text before the first assistant message becomes one leading system message; later system
 *   text becomes user text in `<system-reminder>`. The prompt prefix stays the same from turn to
 *   turn.
 * - Adjacent messages of one role are merged, within the limits of a message.
 * - Tool results follow their calls in the order of the calls: a missing result is `(no output)`, a
 *   result without a call is dropped, and images of results follow in a user message.
 * - Only reasoning since the last user message is sent back, as templates expect; signed reasoning of
 *   all messages with the marked messages.
 */
import { parsedJson, stringOrEmpty } from '../../json/json-text.ts';
import { DETAIL_MARK, SIGNATURE_MARK } from './sealed-text.ts';
import { isReasoningDetail, type ReasoningDetail } from '../wire/chat-choice.ts';
import { type ChatMessage, type ContentPart, MAX_PARTS_PER_MESSAGE } from '../wire/chat-schema.ts';

type TextPart = Extract<ContentPart, { type: 'text' }>;
type CacheMark = TextPart['cache_control'];

interface TranscriptCall {
  readonly id: string;
  readonly name: string;
  readonly arguments: string;
  readonly mark?: CacheMark;
}

interface CallWithResult extends TranscriptCall {
  readonly signature: string | undefined;
  result: readonly ContentPart[] | undefined;
}

interface UserTurn {
  readonly role: 'user';
  readonly parts: ContentPart[];
  isUsers: boolean;
}

interface AssistantTurn {
  readonly role: 'assistant';
  readonly texts: TextPart[];
  readonly reasoning: string[];
  readonly details: ReasoningDetail[];
  readonly calls: CallWithResult[];
}

const NO_OUTPUT = '(no output)';
const PART_BREAK = '\n\n';

export class Transcript {
  readonly #system: TextPart[] = [];
  readonly #turns: (UserTurn | AssistantTurn)[] = [];
  #hasAssistant = false;
  /** Whether the next assistant item belongs to the last assistant message. */
  #isResponding = false;
  #signature: string | undefined;
  /** Whether any part has a mark for a prompt cache, or reasoning a signature. */
  hasMarks = false;
  readonly callIds = new Set<string>();
  readonly #openCalls = new Map<string, CallWithResult[]>();

  system(text: string, mark?: CacheMark): void {
    if (text === '') return;
    this.hasMarks ||= mark !== undefined;
    if (!this.#hasAssistant) this.#system.push(markedPart(text, mark));
    else this.#addUser([textPart(`<system-reminder>\n${text}\n</system-reminder>`)], false);
  }

  user(parts: readonly ContentPart[]): void {
    this.#addUser(parts, true);
  }

  text(text: string, mark?: CacheMark): void {
    if (text === '') return;
    this.hasMarks ||= mark !== undefined;
    this.#assistant().texts.push(markedPart(text, mark));
  }

  /** Adds reasoning, an entry of `reasoning_details`, or the signature that the next call repeats. */
  reasoning(text: string): void {
    if (text.startsWith(SIGNATURE_MARK)) this.#signature = text.slice(SIGNATURE_MARK.length);
    else if (text.startsWith(DETAIL_MARK)) {
      const detail = parsedJson(text.slice(DETAIL_MARK.length));
      if (!isReasoningDetail(detail)) return;
      this.detail(detail);
      this.reasoning(stringOrEmpty(detail['text']));
    } else if (text !== '') this.#assistant().reasoning.push(text);
  }

  /** Adds an entry of `reasoning_details`, which only marked messages contain. */
  detail(detail: ReasoningDetail): void {
    this.#assistant().details.push(detail);
    this.hasMarks = true;
  }

  call(call: TranscriptCall): void {
    const open = { ...call, signature: this.#signature, result: undefined };
    this.#signature = undefined;
    this.hasMarks ||= call.mark !== undefined;
    this.#assistant().calls.push(open);
    this.callIds.add(call.id);
    const others = this.#openCalls.get(call.id);
    if (others === undefined) this.#openCalls.set(call.id, [open]);
    else others.push(open);
  }

  /** Adds the result of the last call with that id that has none. */
  result(callId: string, parts: readonly ContentPart[]): void {
    this.#isResponding = false;
    this.#signature = undefined;
    this.#hasAssistant = true;
    const call = this.#openCalls.get(callId)?.pop();
    if (call !== undefined) call.result = parts;
    this.#noteMarks(parts);
  }

  /**
   * With `isMarked`, texts stay separate parts with their marks for a prompt cache, as only some
   * engines accept them.
   */
  messages(isMarked = false): ChatMessage[] {
    const messages: ChatMessage[] = [];
    if (this.#system.length > 0) {
      const joined = this.#system.map(({ text }) => text).join(PART_BREAK);
      messages.push({ role: 'system', content: isMarked ? this.#system : joined });
    }
    const lastUser = this.#turns.findLastIndex((turn) => turn.role === 'user' && turn.isUsers);
    let parts: ContentPart[] = [];
    for (const [at, turn] of this.#turns.entries()) {
      if (turn.role === 'user') {
        parts = joinedParts(messages, parts, turn.parts, isMarked);
        continue;
      }
      pushUser(messages, parts, isMarked);
      const message = assistantMessage(turn, at > lastUser, isMarked);
      if (message !== undefined) messages.push(message);
      parts = pushResults(messages, turn.calls, isMarked);
    }
    pushUser(messages, parts, isMarked);
    return messages;
  }

  #addUser(parts: readonly ContentPart[], isUsers: boolean): void {
    this.#isResponding = false;
    this.#signature = undefined;
    this.#noteMarks(parts);
    const last = this.#turns.at(-1);
    if (last?.role !== 'user') this.#turns.push({ role: 'user', parts: [...parts], isUsers });
    else {
      for (const part of parts) last.parts.push(part);
      last.isUsers ||= isUsers;
    }
  }

  #noteMarks(parts: readonly ContentPart[]): void {
    this.hasMarks ||= parts.some((part) => part.cache_control !== undefined);
  }

  #assistant(): AssistantTurn {
    const last = this.#turns.at(-1);
    if (this.#isResponding && last?.role === 'assistant') return last;
    const turn: AssistantTurn = {
      role: 'assistant',
      texts: [],
      reasoning: [],
      details: [],
      calls: [],
    };
    this.#turns.push(turn);
    this.#isResponding = true;
    this.#hasAssistant = true;
    return turn;
  }
}

function unmarked(part: ContentPart): ContentPart {
  if (part.cache_control === undefined) return part;
  const { cache_control: _mark, ...rest } = part;
  return rest;
}

export function textPart(text: string): TextPart {
  return { type: 'text', text };
}

function markedPart(text: string, mark: CacheMark): TextPart {
  return mark === undefined ? textPart(text) : { ...textPart(text), cache_control: mark };
}

/** Returns `undefined` for a message of reasoning alone. */
function assistantMessage(
  { texts, reasoning, details, calls }: AssistantTurn,
  hasReasoning: boolean,
  isMarked: boolean,
): ChatMessage | undefined {
  if (texts.length + calls.length === 0) return undefined;
  const thought = hasReasoning ? reasoning.join(PART_BREAK) : '';
  const hasMark = isMarked && texts.some(({ cache_control: mark }) => mark !== undefined);
  const joined = texts.length === 0 ? null : texts.map(({ text }) => text).join(PART_BREAK);
  return {
    role: 'assistant',
    content: hasMark ? texts : joined,
    ...(thought === '' ? {} : { reasoning_content: thought }),
    ...(isMarked && details.length > 0 ? { reasoning_details: details } : {}),
    ...(calls.length === 0 ? {} : { tool_calls: calls.map((call) => toolCall(call, isMarked)) }),
  };
}

function toolCall(
  { id, name, arguments: text, signature, mark }: CallWithResult,
  isMarked: boolean,
) {
  const extra =
    signature === undefined ? {} : { extra_content: { google: { thought_signature: signature } } };
  const marked = isMarked && mark !== undefined ? { cache_control: mark } : {};
  return {
    id,
    type: 'function' as const,
    function: { name, arguments: text },
    ...extra,
    ...marked,
  };
}

/** Adds the tool messages of the calls; returns the media of their results. */
function pushResults(
  messages: ChatMessage[],
  calls: readonly CallWithResult[],
  isMarked: boolean,
): ContentPart[] {
  const media: ContentPart[] = [];
  for (const { id, result } of calls) {
    const texts = result?.filter((part) => part.type === 'text') ?? [];
    const others = result?.filter((part) => part.type !== 'text') ?? [];
    for (const other of others) media.push(other);
    const none = others.length > 0 ? '(see the next message)' : NO_OUTPUT;
    const joined = texts.map(({ text }) => text).join('\n') || none;
    const content = isMarked && texts.length > 0 ? texts : joined;
    messages.push({ role: 'tool', tool_call_id: id, content });
  }
  return media;
}

/** Joins the parts of a user message; parts beyond its limits start another message. */
function joinedParts(
  messages: ChatMessage[],
  before: readonly ContentPart[],
  more: readonly ContentPart[],
  isMarked: boolean,
): ContentPart[] {
  let parts: ContentPart[] = [];
  let counts = new Map<string, number>();
  for (const list of [before, more]) {
    for (const part of list) {
      if (part.type !== 'text') {
        let count = (counts.get(part.type) ?? 0) + 1;
        if (count > MAX_PARTS_PER_MESSAGE[part.type]) {
          pushUser(messages, parts, isMarked);
          parts = [];
          counts = new Map();
          count = 1;
        }
        counts.set(part.type, count);
      }
      parts.push(part);
    }
  }
  return parts;
}

/** Parts of text alone are sent as a string, which every template accepts. */
function pushUser(messages: ChatMessage[], parts: readonly ContentPart[], isMarked: boolean): void {
  if (parts.length === 0) return;
  if (isMarked) {
    messages.push({ role: 'user', content: [...parts] });
    return;
  }
  const texts = parts.filter((part) => part.type === 'text');
  const isText = texts.length === parts.length;
  const joined = (): string => texts.map(({ text }) => text).join(PART_BREAK);
  messages.push({ role: 'user', content: isText ? joined() : parts.map(unmarked) });
}
