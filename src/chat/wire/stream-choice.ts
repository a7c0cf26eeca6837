/**
 * One choice of a stream over time: has its role been sent, which tool calls are open, what of
 * its text is held back as the beginning of a tag, has it ended. Turns each delta of the engine
 * into the delta that the caller gets, or into none, and cuts the choice where its grant ends.
 */
import { bytesUsually } from '../../core/token-count.ts';
import type { ResponseOptions } from './chat-response.ts';
import {
  addTally,
  cutMessage,
  finishReason,
  mostBytes,
  noOutput,
  type OutputTally,
  outputBytes,
  reasoningOf,
  tallyOf,
  type TextKind,
  toolCallsOf,
  canonicalMessage,
  withoutUsage,
} from './chat-choice.ts';
import type { BoundaryLayout } from './chunk-template.ts';
import { type HeldRound, ROUND_BREAK } from './held-calls.ts';
import { isJsonObject, type JsonObject } from '../../json/json-scan.ts';
import { StreamCalls } from './stream-calls.ts';
import { ThinkStripper } from './think-tags.ts';

export interface StreamChoiceOptions extends ResponseOptions {
  /** Calls of this tool are held back, and so is the end of an answer that has no other call. */
  readonly heldTool?: string | undefined;
  /** With `stripThinkTags`: the prompt may have opened a block, so that its text is held. */
  readonly mayOpenThinking?: boolean | undefined;
  readonly newCallId: () => string;
  /** Between what was said before a search and after it. Default: a blank line. */
  readonly roundBreak?: string | undefined;
}

export class StreamChoice {
  readonly index: number;
  hasRole = false;
  isFinished = false;
  /** Ended, and the caller has not seen the end: another round may follow. */
  isHeld = false;
  /** Its text came to the end of the grant: nothing that follows is shown. */
  isCut = false;
  tally: OutputTally = { contentBytes: 0, reasoningBytes: 0, toolBytes: 0 };
  /** The tally as one figure, for the look at every delta. */
  bytes = 0;
  readonly #options: StreamChoiceOptions;
  #deltas = 0;
  #cutBytes = 0;
  #grantedTokens: number;
  #usualBytes: number;
  #endReason: unknown;
  #stripper: ThinkStripper | undefined;
  #content = '';
  #reasoning = '';
  #needsBreak = false;
  /** Of this round, once it has one. */
  #calls: StreamCalls | undefined;
  /** Calls of ours before those of the engine, and behind them. */
  readonly #firstCall: number;
  #ownCalls = 0;

  /** `firstCall` is the index that the engine's call 0 is shown with. */
  constructor(index: number, options: StreamChoiceOptions, firstCall: number) {
    this.index = index;
    this.#options = options;
    this.#firstCall = firstCall;
    this.#stripper = options.stripThinkTags ? newStripper(options) : undefined;
    this.#grantedTokens = options.maxOutputTokens;
    this.#usualBytes = bytesUsually(this.#grantedTokens);
  }

  /** Whether the engine has gone on for as long again after the cut. */
  get isEndless(): boolean {
    return this.#cutBytes > mostBytes(this.#grantedTokens, 0);
  }

  /** Counts a text that is shown as it came; `false`, and nothing counted, when it must be cut. */
  count(kind: TextKind, sizeBytes: number): boolean {
    const bytes = this.bytes + sizeBytes;
    if (this.isCut || (bytes > this.#usualBytes && this.#roomFor(sizeBytes) < sizeBytes)) {
      return false;
    }
    this.bytes = bytes;
    this.#deltas += 1;
    if (kind === 'content') this.tally.contentBytes += sizeBytes;
    else if (kind === 'reasoning') this.tally.reasoningBytes += sizeBytes;
    else this.tally.toolBytes += sizeBytes;
    return true;
  }

  /**
   * A chunk that is shown as it came begins it, or ends it; `false`, and nothing done, where that
   * takes parsing.
   */
  passBoundary({ isEnd, saysRole }: BoundaryLayout): boolean {
    // An end for calls may be said in another word.
    const mayDiffer = this.#calls !== undefined || this.#firstCall + this.#ownCalls > 0;
    if (this.isCut || !(saysRole || this.hasRole) || (isEnd && mayDiffer)) return false;
    this.hasRole = true;
    if (isEnd) this.isFinished = true;
    return true;
  }

  /** How much of a further delta the grant leaves room for, in bytes. */
  #roomFor(sizeBytes: number): number {
    if (this.bytes + sizeBytes <= this.#usualBytes) return sizeBytes;
    return Math.max(0, mostBytes(this.#grantedTokens, this.#deltas + 1) - this.bytes);
  }

  #granted(delta: JsonObject): JsonObject {
    const size = tallyOf(delta);
    const sizeBytes = outputBytes(size);
    if (sizeBytes === 0) return delta;
    const roomBytes = this.#roomFor(sizeBytes);
    this.isCut = roomBytes < sizeBytes;
    const shown = this.isCut ? cutMessage(delta, roomBytes) : delta;
    addTally(this.tally, this.isCut ? tallyOf(shown) : size);
    this.bytes = outputBytes(this.tally);
    this.#deltas += 1;
    return shown;
  }

  /** Whether a block was closed that the prompt had opened; `undefined` without any text. */
  get opensThinking(): boolean | undefined {
    if (this.#stripper?.wasOpened === true) return true;
    return this.tally.contentBytes === 0 ? undefined : false;
  }

  get #hasToolCalls(): boolean {
    return (this.#calls?.shownCount ?? 0) + this.#firstCall + this.#ownCalls > 0;
  }

  get heldRound(): HeldRound | undefined {
    const calls = this.#calls?.held ?? [];
    if (!this.isHeld || calls.length === 0 || this.#calls?.shownCount !== 0) return undefined;
    return { calls, content: this.#content, reasoning: this.#reasoning };
  }

  nextRound(grantedTokens: number): void {
    this.isFinished = false;
    this.isHeld = false;
    this.isCut = false;
    this.tally = noOutput();
    this.bytes = 0;
    this.#deltas = 0;
    this.#cutBytes = 0;
    this.#grantedTokens = grantedTokens;
    this.#usualBytes = bytesUsually(grantedTokens);
    this.#needsBreak ||= this.#content !== '';
    this.#content = '';
    this.#reasoning = '';
    this.#calls = undefined;
    if (this.#options.stripThinkTags) this.#stripper = newStripper(this.#options);
  }

  /** Makes room for one more call, of ours, behind those of the engine; gives its index. */
  addCall(): number {
    this.#ownCalls += 1;
    return (this.#calls?.shownCount ?? 0) + this.#firstCall;
  }

  /** The caller's choice for an engine's, or nothing when there is nothing left to show. */
  show(choice: JsonObject): JsonObject | undefined {
    const original = isJsonObject(choice['delta']) ? choice['delta'] : {};
    const whole = canonicalMessage(original);
    if (this.isCut) {
      this.#cutBytes += outputBytes(tallyOf(whole));
      return undefined;
    }
    const { heldTool, dropReasoning, newCallId } = this.#options;
    const delta: Record<string, unknown> = { ...this.#granted(whole) };
    const given = toolCallsOf(delta);
    if (given.length > 0) {
      this.#calls ??= new StreamCalls(heldTool, newCallId);
      const calls = this.#calls.show(given, this.#firstCall);
      if (calls.length > 0) delta['tool_calls'] = calls;
      else delete delta['tool_calls'];
    }
    const ended = this.isCut ? 'length' : (choice['finish_reason'] ?? null);
    if (this.#stripper !== undefined) strip(this.#stripper, delta, ended !== null);
    if (dropReasoning) delete delta['reasoning_content'];
    if (ended !== null) this.isFinished = true;
    if (heldTool !== undefined) return this.#showRound(choice, delta, ended);
    const isRoleNews = !this.hasRole && typeof delta['role'] === 'string';
    if (isRoleNews) this.hasRole = true;
    const reason = ended === null ? null : finishReason(ended, this.#hasToolCalls);
    if (reason === null && !isRoleNews && carriesText(original) && !carriesText(delta)) {
      return undefined;
    }
    const logprobs = this.isCut ? { logprobs: null } : undefined;
    const others = withoutUsage(choice);
    return { ...others, ...logprobs, index: this.index, delta, finish_reason: reason };
  }

  /**
   * The same for an answer of several rounds: the role waits for the first text, so that search
   * results can come before it, and the end waits for `close`.
   */
  #showRound(choice: JsonObject, delta: Record<string, unknown>, ended: unknown) {
    const { content } = delta;
    this.#reasoning += reasoningOf(delta) ?? '';
    if (typeof content === 'string' && content !== '') {
      this.#content += content;
      if (this.#needsBreak) delta['content'] = (this.#options.roundBreak ?? ROUND_BREAK) + content;
      this.#needsBreak = false;
    }
    if (this.hasRole || !carriesText(delta)) delete delta['role'];
    this.isHeld = ended !== null;
    this.#endReason = ended;
    if (!carriesText(delta)) return undefined;
    if (typeof delta['role'] === 'string') this.hasRole = true;
    return { ...withoutUsage(choice), index: this.index, delta, finish_reason: null };
  }

  close(otherwise: string): JsonObject {
    this.isFinished = true;
    this.isHeld = false;
    const rest = this.#stripper?.finish() ?? '';
    const delta = rest === '' ? {} : { content: rest };
    const reason = this.#endReason ?? otherwise;
    // An end for calls that nobody saw is an ordinary one.
    const isUnseen = reason === 'tool_calls' && !this.#hasToolCalls;
    const finish_reason = finishReason(isUnseen ? 'stop' : reason, this.#hasToolCalls);
    return { index: this.index, delta, logprobs: null, finish_reason };
  }
}

function newStripper({ mayOpenThinking }: StreamChoiceOptions): ThinkStripper {
  return new ThinkStripper(mayOpenThinking === true);
}

function strip(stripper: ThinkStripper, delta: Record<string, unknown>, isLast: boolean): void {
  const { content } = delta;
  // An engine that tells its reasoning apart, or calls a tool, has left no block open.
  const isApart = (reasoningOf(delta) ?? '') !== '' || toolCallsOf(delta).length > 0;
  const before = isApart ? stripper.release() : '';
  const given = typeof content === 'string' ? stripper.push(content) : undefined;
  const rest = isLast ? stripper.finish() : '';
  const text = before + (given ?? '') + rest;
  if (given !== undefined || text !== '') delta['content'] = text;
}

function carriesText(delta: JsonObject): boolean {
  return (
    toolCallsOf(delta).length > 0 ||
    (typeof delta['content'] === 'string' && delta['content'] !== '') ||
    (reasoningOf(delta) ?? '') !== ''
  );
}
