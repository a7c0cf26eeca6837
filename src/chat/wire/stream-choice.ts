/**
 * One choice of a stream over time: has its role been sent, which tool calls are open, what of
 * its text is held back as the beginning of a tag, has it ended. Turns each delta of the engine
 * into the delta that the caller gets, or into none, and cuts the choice where its grant ends.
 */
import type { AnswerOptions } from './chat-response.ts';
import {
  argumentsText,
  finishReason,
  reasoningOf,
  toolCallsOf,
  withReasoningName,
} from './chat-choice.ts';
import { type HeldRound, nameOf, ROUND_BREAK } from './held-calls.ts';
import { isJsonObject, type JsonObject } from '../../json/json-scan.ts';
import {
  addTally,
  cutMessage,
  mostBytes,
  noOutput,
  type OutputTally,
  outputBytes,
  tallyOf,
  type TextKind,
} from './output-tally.ts';
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
  /** Its text came to the end of the grant: nothing that follows is shown. */
  isCut = false;
  #endReason: unknown;
  readonly #options: StreamChoiceOptions;
  /** What the engine made in this round, shown or not. */
  readonly #tally = noOutput();
  /** The same as one figure, for the look at every delta. */
  #bytes = 0;
  #deltas = 0;
  #cutBytes = 0;
  #grantedTokens: number;
  #usualBytes: number;
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
    this.#grantedTokens = options.maxOutputTokens;
    this.#usualBytes = mostBytes(this.#grantedTokens, Infinity);
  }

  get tally(): Readonly<OutputTally> {
    return this.#tally;
  }

  /** Whether the engine has gone on for as long again after the cut. */
  get isEndless(): boolean {
    return this.#cutBytes > mostBytes(this.#grantedTokens, 0);
  }

  /** Counts a text that is shown as it came; `false`, and nothing counted, when it must be cut. */
  count(kind: TextKind, sizeBytes: number): boolean {
    const bytes = this.#bytes + sizeBytes;
    if (this.isCut || (bytes > this.#usualBytes && this.#roomFor(sizeBytes) < sizeBytes)) {
      return false;
    }
    this.#bytes = bytes;
    this.#deltas += 1;
    if (kind === 'content') this.#tally.contentBytes += sizeBytes;
    else if (kind === 'reasoning') this.#tally.reasoningBytes += sizeBytes;
    else this.#tally.toolBytes += sizeBytes;
    return true;
  }

  /** How much of a further delta the grant leaves room for, in bytes. */
  #roomFor(sizeBytes: number): number {
    if (this.#bytes + sizeBytes <= this.#usualBytes) return sizeBytes;
    return Math.max(0, mostBytes(this.#grantedTokens, this.#deltas + 1) - this.#bytes);
  }

  /** The delta as far as the grant reaches. */
  #granted(delta: JsonObject): JsonObject {
    const size = tallyOf(delta);
    const sizeBytes = outputBytes(size);
    if (sizeBytes === 0) return delta;
    const roomBytes = this.#roomFor(sizeBytes);
    this.isCut = roomBytes < sizeBytes;
    const shown = this.isCut ? cutMessage(delta, roomBytes) : delta;
    addTally(this.#tally, this.isCut ? tallyOf(shown) : size);
    this.#bytes = outputBytes(this.#tally);
    this.#deltas += 1;
    return shown;
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
  nextRound(grantedTokens: number): void {
    this.isFinished = false;
    this.isHeld = false;
    this.isCut = false;
    Object.assign(this.#tally, noOutput());
    this.#bytes = 0;
    this.#deltas = 0;
    this.#cutBytes = 0;
    this.#grantedTokens = grantedTokens;
    this.#usualBytes = mostBytes(grantedTokens, Infinity);
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
  show(choice: JsonObject): JsonObject | undefined {
    const original = isJsonObject(choice['delta']) ? choice['delta'] : {};
    const whole = withReasoningName(original);
    if (this.isCut) {
      this.#cutBytes += outputBytes(tallyOf(whole));
      return undefined;
    }
    const renamed = this.#granted(whole);
    const given = toolCallsOf(renamed);
    const calls = given.filter((call) => !this.#hold(call)).map((call) => this.#safeCall(call));
    const ended = this.isCut ? 'length' : (choice['finish_reason'] ?? null);
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
    const logprobs = this.isCut ? { logprobs: null } : {};
    return { ...choice, ...logprobs, index: this.index, delta, finish_reason: reason };
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
  close(reason = 'stop'): JsonObject {
    this.isFinished = true;
    this.isHeld = false;
    const rest = this.#stripper?.finish() ?? '';
    const delta = rest === '' ? {} : { content: rest };
    const finish_reason = this.#finishReason(reason);
    return { index: this.index, delta, logprobs: null, finish_reason };
  }

  /** An end for calls that nobody saw is an ordinary one. */
  #finishReason(otherwise: string): string {
    const given = this.#endReason ?? otherwise;
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
