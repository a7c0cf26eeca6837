/**
 * One choice of a stream over time: has its role been sent, which tool calls are open, what of
 * its text is held back as the beginning of a tag, has it ended. Turns each delta of the engine
 * into the delta that the caller gets, or into none.
 */
import type { AnswerOptions, OutputTally } from './chat-response.ts';
import {
  argumentsText,
  finishReason,
  reasoningOf,
  toolCallsOf,
  withReasoningName,
} from './chat-choice.ts';
import { type HeldRound, nameOf, ROUND_BREAK } from './held-calls.ts';
import { isJsonObject, type JsonObject } from './json-scan.ts';
import { ThinkStripper } from './think-tags.ts';

export interface StreamChoiceOptions extends AnswerOptions {
  /** Calls of this tool are held back, and so is the end of an answer that has no other call. */
  readonly heldTool?: string;
}

interface PartialCall {
  readonly id: string;
  arguments: string;
}

export class StreamChoice {
  readonly index: number;
  hasRole = false;
  isFinished = false;
  /** Ended, and the caller has not seen the end: another round may follow. */
  isHeld = false;
  #endReason: unknown;
  readonly #options: StreamChoiceOptions;
  #stripper: ThinkStripper | undefined;
  /** Calls of this round that the caller does not see, by the engine's index. */
  readonly #held = new Map<number, PartialCall>();
  #content = '';
  #reasoning = '';
  #needsBreak = false;
  #ownCalls = 0;
  /** Engine's index of a call -> whether its first piece was sent. */
  readonly #calls = new Set<number>();
  readonly #callIds = new Set<string>();
  readonly #newCallId: () => string;
  #firstCall: number;

  /** `firstCall` is the index that the engine's call 0 is shown with. */
  constructor(
    index: number,
    options: StreamChoiceOptions,
    firstCall: number,
    newCallId: () => string,
  ) {
    this.index = index;
    this.#options = options;
    this.#firstCall = firstCall;
    this.#newCallId = newCallId;
    this.#stripper = options.stripThinkTags ? new ThinkStripper() : undefined;
  }

  get hasToolCalls(): boolean {
    return this.#calls.size + this.#firstCall + this.#ownCalls > this.#held.size;
  }

  /** Whether the round ended with held calls and no others. */
  get isAsking(): boolean {
    return this.isHeld && this.#held.size > 0 && this.#calls.size === this.#held.size;
  }

  /** What was said in a round that ended held. */
  heldRound(tool: string): HeldRound {
    const calls = [...this.#held.values()].map((call) => ({ ...call, name: tool }));
    return { calls, content: this.#content, reasoning: this.#reasoning };
  }

  /** The engine is asked again: what it says continues this choice. */
  nextRound(): void {
    this.isFinished = false;
    this.isHeld = false;
    this.#needsBreak ||= this.#content !== '';
    this.#content = '';
    this.#reasoning = '';
    this.#held.clear();
    this.#calls.clear();
    this.#callIds.clear();
    if (this.#options.stripThinkTags) this.#stripper = new ThinkStripper();
  }

  /** Makes room for one more call, of ours, behind those of the engine; gives its index. */
  addCall(): number {
    this.#ownCalls += 1;
    return this.#calls.size - this.#held.size + this.#firstCall;
  }

  /** The caller's choice for an engine's, or nothing when there is nothing left to show. */
  show(choice: JsonObject, tally: OutputTally): JsonObject | undefined {
    const original = isJsonObject(choice['delta']) ? choice['delta'] : {};
    const renamed = withReasoningName(original);
    countDelta(renamed, tally);
    const given = toolCallsOf(renamed);
    const calls = given.filter((call) => !this.#hold(call)).map((call) => this.#safeCall(call));
    const ended = choice['finish_reason'] ?? null;
    const delta: Record<string, unknown> = { ...renamed };
    if (calls.length > 0) delta['tool_calls'] = calls;
    else if (given.length > 0) delete delta['tool_calls'];
    if (this.#options.dropReasoning) delete delta['reasoning_content'];
    this.#strip(delta, ended !== null);
    if (ended !== null) this.isFinished = true;
    if (this.#options.heldTool !== undefined) return this.#showRound(choice, delta, ended);
    const isRoleNews = !this.hasRole && typeof delta['role'] === 'string';
    if (isRoleNews) this.hasRole = true;
    const reason = ended === null ? null : finishReason(ended, this.hasToolCalls);
    const isEmptied = carriesText(original) && !carriesText(delta);
    if (reason === null && !isRoleNews && isEmptied) return undefined;
    return { ...choice, index: this.index, delta, finish_reason: reason };
  }

  /**
   * The same for an answer of several rounds: the role waits for the first text, so that search
   * results can come before it, and the end waits for `close`.
   */
  #showRound(choice: JsonObject, delta: Record<string, unknown>, ended: unknown) {
    this.#gather(delta);
    if (this.hasRole || !carriesText(delta)) delete delta['role'];
    this.isHeld = ended !== null;
    this.#endReason = ended;
    if (!carriesText(delta)) return undefined;
    if (typeof delta['role'] === 'string') this.hasRole = true;
    return { ...choice, index: this.index, delta, finish_reason: null };
  }

  #gather(delta: Record<string, unknown>): void {
    const { content } = delta;
    this.#reasoning += reasoningOf(delta) ?? '';
    if (typeof content !== 'string' || content === '') return;
    this.#content += content;
    if (this.#needsBreak) delta['content'] = ROUND_BREAK + content;
    this.#needsBreak = false;
  }

  /** Takes a piece of a held call; `false` for a piece that is the caller's. */
  #hold(call: JsonObject): boolean {
    const { heldTool } = this.#options;
    if (heldTool === undefined) return false;
    const index = this.#callIndex(call);
    const made = isJsonObject(call['function']) ? call['function'] : {};
    const text = argumentsText(made['arguments']);
    const known = this.#held.get(index);
    if (known !== undefined) {
      known.arguments += text;
      return true;
    }
    if (this.#calls.has(index) || nameOf(call) !== heldTool) return false;
    const id = textOr(call['id'], this.#newCallId);
    this.#calls.add(index);
    this.#callIds.add(id);
    this.#held.set(index, { id, arguments: text });
    return true;
  }

  /** The last chunk of a choice that the engine left open. */
  close(): JsonObject {
    this.isFinished = true;
    this.isHeld = false;
    const rest = this.#stripper?.finish() ?? '';
    const delta = rest === '' ? {} : { content: rest };
    const finish_reason = this.#finishReason();
    return { index: this.index, delta, logprobs: null, finish_reason };
  }

  /** An end for calls that nobody saw is an ordinary one. */
  #finishReason(): string {
    const given = this.#endReason ?? 'stop';
    const isUnseen = given === 'tool_calls' && !this.hasToolCalls;
    return finishReason(isUnseen ? 'stop' : given, this.hasToolCalls);
  }

  #strip(delta: Record<string, unknown>, isLast: boolean): void {
    if (this.#stripper === undefined) return;
    const { content } = delta;
    const given = typeof content === 'string' ? this.#stripper.push(content) : undefined;
    const rest = isLast ? this.#stripper.finish() : '';
    if (given !== undefined || rest !== '') delta['content'] = (given ?? '') + rest;
  }

  /** The SDKs need `index` in each piece, and `id`, `type` and the name in the first. */
  #safeCall(call: JsonObject): JsonObject {
    const index = this.#callIndex(call);
    const made = isJsonObject(call['function']) ? call['function'] : {};
    const isFirst = !this.#calls.has(index);
    this.#calls.add(index);
    const heldBefore = [...this.#held.keys()].filter((held) => held < index).length;
    const shown = index - heldBefore + this.#firstCall;
    const given = made['arguments'];
    const text = given === undefined && !isFirst ? {} : { arguments: argumentsText(given) };
    if (!isFirst) return { ...call, index: shown, function: { ...made, ...text } };
    const id = textOr(call['id'], this.#newCallId);
    this.#callIds.add(id);
    return { ...call, index: shown, id, type: 'function', function: { ...made, ...text } };
  }

  /** Engines that leave the index out send each call whole, or tell them apart by id. */
  #callIndex(call: JsonObject): number {
    const index = call['index'];
    if (typeof index === 'number' && Number.isSafeInteger(index) && index >= 0) return index;
    const made = isJsonObject(call['function']) ? call['function'] : {};
    const isNew =
      typeof call['id'] === 'string' && call['id'] !== ''
        ? !this.#callIds.has(call['id'])
        : typeof made['name'] === 'string' && made['name'] !== '';
    return isNew ? this.#calls.size : Math.max(0, this.#calls.size - 1);
  }
}

function textOr(value: unknown, otherwise: () => string): string {
  return typeof value === 'string' && value !== '' ? value : otherwise();
}

function carriesText(delta: JsonObject): boolean {
  return (
    toolCallsOf(delta).length > 0 ||
    (typeof delta['content'] === 'string' && delta['content'] !== '') ||
    (reasoningOf(delta) ?? '') !== ''
  );
}

/** Adds what a delta carries to the tally that bills a stream without usage. */
function countDelta(delta: JsonObject, tally: OutputTally): void {
  const content = typeof delta['content'] === 'string' ? delta['content'] : '';
  const reasoning = reasoningOf(delta) ?? '';
  let toolBytes = 0;
  for (const call of toolCallsOf(delta)) {
    const made = isJsonObject(call['function']) ? call['function'] : {};
    const name = typeof made['name'] === 'string' ? made['name'] : '';
    toolBytes += Buffer.byteLength(name + argumentsText(made['arguments']));
  }
  tally.contentBytes += Buffer.byteLength(content);
  tally.reasoningBytes += Buffer.byteLength(reasoning);
  tally.toolBytes += toolBytes;
  if (content !== '' || reasoning !== '' || toolBytes > 0) tally.deltas += 1;
}
