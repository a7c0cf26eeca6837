/**
 * The history of an agent's conversation as chat messages that every engine's template takes.
 *
 * - System text before the first answer is one leading system message; later system text is user
 *   text in place, in `<system-reminder>`. So the beginning of a prompt is the same from turn to
 *   turn, and no template meets a late system message.
 * - Neighbours of one role are one message, as far as the bounds of a message allow.
 * - The results of an answer's calls follow it, each as a tool message in the order of the calls:
 *   `(no output)` where there is none, a result without its call is left out, and pictures of results
 *   follow in a user message.
 * - Reasoning goes back with the answers since the last user turn, as templates want it.
 */
import { type ChatMessage, type ContentPart, MAX_PARTS_PER_MESSAGE } from '../wire/chat-message.ts';

export interface TranscriptCall {
  readonly id: string;
  readonly name: string;
  /** JSON text. */
  readonly arguments: string;
}

interface AnsweredCall extends TranscriptCall {
  result: readonly ContentPart[] | undefined;
}

interface UserTurn {
  readonly role: 'user';
  readonly parts: ContentPart[];
  isUsers: boolean;
}

interface Answer {
  readonly role: 'assistant';
  readonly texts: string[];
  readonly reasoning: string[];
  readonly calls: AnsweredCall[];
}

const NO_OUTPUT = '(no output)';
const PART_BREAK = '\n\n';

export class Transcript {
  readonly #system: string[] = [];
  readonly #turns: (UserTurn | Answer)[] = [];
  #hasAnswers = false;
  /** Whether a further piece of an answer belongs to the last one. */
  #isResponding = false;
  readonly callIds = new Set<string>();
  /** Those without a result, by their id, the last one last. */
  readonly #openCalls = new Map<string, AnsweredCall[]>();

  system(text: string): void {
    if (text === '') return;
    if (!this.#hasAnswers) this.#system.push(text);
    else this.#addUser([textPart(`<system-reminder>\n${text}\n</system-reminder>`)], false);
  }

  user(parts: readonly ContentPart[]): void {
    this.#addUser(parts, true);
  }

  text(text: string): void {
    if (text !== '') this.#answer().texts.push(text);
  }

  reasoning(text: string): void {
    if (text !== '') this.#answer().reasoning.push(text);
  }

  call(call: TranscriptCall): void {
    const open = { ...call, result: undefined };
    this.#answer().calls.push(open);
    this.callIds.add(call.id);
    const others = this.#openCalls.get(call.id);
    if (others === undefined) this.#openCalls.set(call.id, [open]);
    else others.push(open);
  }

  /** What a tool gave for the last call of that id that has no result yet. */
  result(callId: string, parts: readonly ContentPart[]): void {
    this.#isResponding = false;
    this.#hasAnswers = true;
    const call = this.#openCalls.get(callId)?.pop();
    if (call !== undefined) call.result = parts;
  }

  messages(): ChatMessage[] {
    const messages: ChatMessage[] = [];
    if (this.#system.length > 0) {
      messages.push({ role: 'system', content: this.#system.join(PART_BREAK) });
    }
    const lastUser = this.#turns.findLastIndex((turn) => turn.role === 'user' && turn.isUsers);
    let parts: ContentPart[] = [];
    for (const [at, turn] of this.#turns.entries()) {
      if (turn.role === 'user') {
        parts = joinedParts(messages, parts, turn.parts);
        continue;
      }
      pushUser(messages, parts);
      const answer = answerMessage(turn, at > lastUser);
      if (answer !== undefined) messages.push(answer);
      parts = pushResults(messages, turn.calls);
    }
    pushUser(messages, parts);
    return messages;
  }

  #addUser(parts: readonly ContentPart[], isUsers: boolean): void {
    this.#isResponding = false;
    const last = this.#turns.at(-1);
    if (last?.role !== 'user') this.#turns.push({ role: 'user', parts: [...parts], isUsers });
    else {
      for (const part of parts) last.parts.push(part);
      last.isUsers ||= isUsers;
    }
  }

  #answer(): Answer {
    const last = this.#turns.at(-1);
    if (this.#isResponding && last?.role === 'assistant') return last;
    const answer: Answer = { role: 'assistant', texts: [], reasoning: [], calls: [] };
    this.#turns.push(answer);
    this.#isResponding = true;
    this.#hasAnswers = true;
    return answer;
  }
}

export function textPart(text: string): ContentPart {
  return { type: 'text', text };
}

/** An answer of nothing but reasoning is none. */
function answerMessage(
  { texts, reasoning, calls }: Answer,
  hasReasoning: boolean,
): ChatMessage | undefined {
  if (texts.length + calls.length === 0) return undefined;
  const thought = hasReasoning ? reasoning.join(PART_BREAK) : '';
  return {
    role: 'assistant',
    content: texts.length === 0 ? null : texts.join(PART_BREAK),
    ...(thought === '' ? {} : { reasoning_content: thought }),
    ...(calls.length === 0 ? {} : { tool_calls: calls.map(toolCall) }),
  };
}

function toolCall({ id, name, arguments: text }: AnsweredCall) {
  return { id, type: 'function' as const, function: { name, arguments: text } };
}

/** The results of an answer's calls; gives the media, for the user message behind them. */
function pushResults(messages: ChatMessage[], calls: readonly AnsweredCall[]): ContentPart[] {
  const media: ContentPart[] = [];
  for (const { id, result } of calls) {
    const texts = result?.flatMap((part) => (part.type === 'text' ? [part.text] : []));
    const others = result?.filter((part) => part.type !== 'text') ?? [];
    for (const other of others) media.push(other);
    const none = others.length > 0 ? '(see the next message)' : NO_OUTPUT;
    messages.push({ role: 'tool', tool_call_id: id, content: texts?.join('\n') || none });
  }
  return media;
}

/** The parts of one message: what is beyond its bounds begins another one. */
function joinedParts(
  messages: ChatMessage[],
  before: readonly ContentPart[],
  more: readonly ContentPart[],
): ContentPart[] {
  let parts: ContentPart[] = [];
  let counts = new Map<string, number>();
  for (const part of [...before, ...more]) {
    const count = (counts.get(part.type) ?? 0) + 1;
    if (part.type !== 'text' && count > MAX_PARTS_PER_MESSAGE[part.type]) {
      pushUser(messages, parts);
      parts = [];
      counts = new Map();
    }
    counts.set(part.type, (counts.get(part.type) ?? 0) + 1);
    parts.push(part);
  }
  return parts;
}

/** Text alone is a string, which every template takes. */
function pushUser(messages: ChatMessage[], parts: readonly ContentPart[]): void {
  if (parts.length === 0) return;
  const isText = parts.every((part) => part.type === 'text');
  const texts = parts.flatMap((part) => (part.type === 'text' ? [part.text] : []));
  messages.push({ role: 'user', content: isText ? texts.join(PART_BREAK) : [...parts] });
}
