/**
 * One choice of a stream: converts each delta of the engine to the caller's delta, or to none, and
 * truncates the choice at its grant.
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
  type ReasoningDetail,
  reasoningDetails,
  reasoningOf,
  safeLogprobs,
  tallyOf,
  type TextKind,
  toolCallsOf,
  canonicalMessage,
  withoutUsage,
} from './chat-choice.ts';
import type { BoundaryLayout } from './chunk-layout.ts';
import { type SearchRound, ROUND_BREAK } from './search-calls.ts';
import { isJsonObject, type JsonObject } from '../../json/json-scan.ts';
import { StreamCalls } from './stream-calls.ts';
import { ThinkStripper } from './think-tags.ts';

export interface StreamChoiceOptions extends ResponseOptions {
  /** Calls of this tool, and the end of a completion with no other call, are not sent. */
  readonly searchTool?: string | undefined;
  /** With `stripThinkTags`: text is buffered, because the prompt may have opened a block. */
  readonly mayOpenThinking?: boolean | undefined;
  readonly newCallId: () => string;
  /** Separates the text before and after a search. Default: a blank line. */
  readonly roundBreak?: string | undefined;
}

export class StreamChoice {
  readonly index: number;
  hasRole = false;
  isFinished = false;
  /** The engine has ended the choice, but another round may follow. */
  isEndPending = false;
  /** The grant is exhausted; nothing further is sent. */
  isCut = false;
  tally: OutputTally = noOutput();
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
  #details: readonly ReasoningDetail[] = [];
  #needsBreak = false;
  #calls: StreamCalls | undefined;
  /** Number of tool calls of the service before and after those of the engine. */
  readonly #firstCall: number;
  #ownCalls = 0;

  constructor(index: number, options: StreamChoiceOptions, firstCall: number) {
    this.index = index;
    this.#options = options;
    this.#firstCall = firstCall;
    this.#stripper = options.stripThinkTags ? newStripper(options) : undefined;
    this.#grantedTokens = options.maxOutputTokens;
    this.#usualBytes = bytesUsually(this.#grantedTokens);
  }

  /** Whether the engine sent as much again after the truncation. */
  get isEndless(): boolean {
    return this.#cutBytes > mostBytes(this.#grantedTokens, 0);
  }

  /** Counts a text; returns `false` without counting it if it has to be truncated. */
  count(kind: TextKind, sizeBytes: number): boolean {
    const bytes = this.bytes + sizeBytes;
    if (this.isCut || (bytes > this.#usualBytes && this.#capacityFor(sizeBytes) < sizeBytes)) {
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
   * Begins or ends the choice by an unchanged chunk; returns `false` without effect if the chunk
   * has to be parsed.
   */
  passBoundary({ isEnd, saysRole }: BoundaryLayout): boolean {
    const mayDiffer = this.#calls !== undefined || this.#firstCall + this.#ownCalls > 0;
    if (this.isCut || !(saysRole || this.hasRole) || (isEnd && mayDiffer)) return false;
    this.hasRole = true;
    if (isEnd) this.isFinished = true;
    return true;
  }

  #capacityFor(sizeBytes: number): number {
    if (this.bytes + sizeBytes <= this.#usualBytes) return sizeBytes;
    return Math.max(0, mostBytes(this.#grantedTokens, this.#deltas + 1) - this.bytes);
  }

  #granted(delta: JsonObject): JsonObject {
    const size = tallyOf(delta);
    const sizeBytes = outputBytes(size);
    if (sizeBytes === 0) return delta;
    const leftBytes = this.#capacityFor(sizeBytes);
    this.isCut = leftBytes < sizeBytes;
    const shown = this.isCut ? cutMessage(delta, leftBytes) : delta;
    addTally(this.tally, this.isCut ? tallyOf(shown) : size);
    this.bytes = outputBytes(this.tally);
    this.#deltas += 1;
    return shown;
  }

  /**
   * Whether the choice closed a thinking block that its prompt had opened; `undefined` without
   * text.
   */
  get opensThinking(): boolean | undefined {
    if (this.#stripper?.wasOpened === true) return true;
    return this.tally.contentBytes === 0 ? undefined : false;
  }

  get areCallsRenumbered(): boolean {
    return this.#calls?.areRenumbered === true;
  }

  get #hasToolCalls(): boolean {
    return (this.#calls?.shownCount ?? 0) + this.#firstCall + this.#ownCalls > 0;
  }

  get searchRound(): SearchRound | undefined {
    const calls = this.#calls?.searches ?? [];
    if (!this.isEndPending || calls.length === 0 || this.#calls?.shownCount !== 0) return undefined;
    return { calls, content: this.#content, reasoning: this.#reasoning, details: this.#details };
  }

  nextRound(grantedTokens: number): void {
    this.isFinished = false;
    this.isEndPending = false;
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
    this.#details = [];
    this.#calls = undefined;
    if (this.#options.stripThinkTags) this.#stripper = newStripper(this.#options);
  }

  /** Reserves an index after the engine's calls for a call of the service. */
  addCall(): number {
    this.#ownCalls += 1;
    return (this.#calls?.shownCount ?? 0) + this.#firstCall;
  }

  show(given: JsonObject): JsonObject | undefined {
    const { delta: piece } = given;
    const original = isJsonObject(piece) ? piece : this.#unsentMessage(given);
    const choice = original === piece ? given : withoutMessage(given);
    const whole = canonicalMessage(original);
    if (this.isCut) {
      this.#cutBytes += outputBytes(tallyOf(whole));
      return undefined;
    }
    const { searchTool, dropReasoning, newCallId } = this.#options;
    const delta: Record<string, unknown> = { ...this.#granted(whole) };
    const pieces = toolCallsOf(delta);
    if (pieces.length > 0) {
      this.#calls ??= new StreamCalls(searchTool, newCallId);
      const calls = this.#calls.show(pieces, this.#firstCall);
      if (calls.length > 0) delta['tool_calls'] = calls;
      else delete delta['tool_calls'];
    }
    const ended = this.isCut ? 'length' : (choice['finish_reason'] ?? null);
    if (this.#stripper !== undefined) strip(this.#stripper, delta, ended !== null);
    if (dropReasoning) {
      delete delta['reasoning_content'];
      delete delta['reasoning_details'];
    }
    if (ended !== null) this.isFinished = true;
    if (searchTool !== undefined) return this.#showRound(choice, delta, ended);
    const isRoleNews = !this.hasRole && typeof delta['role'] === 'string';
    if (isRoleNews) this.hasRole = true;
    const reason = ended === null ? null : finishReason(ended, this.#hasToolCalls);
    if (reason === null && !isRoleNews && carriesText(original) && !carriesText(delta)) {
      return undefined;
    }
    const logprobs = this.isCut ? { logprobs: null } : undefined;
    const others = soundChoice(choice);
    return { ...others, ...logprobs, index: this.index, delta, finish_reason: reason };
  }

  /** Some engines send a whole message in place of a delta, of which the text may have been sent. */
  #unsentMessage({ message }: JsonObject): JsonObject {
    return this.bytes === 0 && isJsonObject(message) ? message : {};
  }

  /**
   * As `show`, for a completion of several rounds: the role waits for the first text, so that
   * search results can precede it, and the end waits for `close`.
   */
  #showRound(choice: JsonObject, delta: Record<string, unknown>, ended: unknown) {
    const { content } = delta;
    this.#reasoning += reasoningOf(delta) ?? '';
    const details = reasoningDetails(delta);
    if (details.length > 0) this.#details = [...this.#details, ...details];
    if (typeof content === 'string' && content !== '') {
      this.#content += content;
      if (this.#needsBreak) delta['content'] = (this.#options.roundBreak ?? ROUND_BREAK) + content;
      this.#needsBreak = false;
    }
    if (this.hasRole || !carriesText(delta)) delete delta['role'];
    this.isEndPending = ended !== null;
    this.#endReason = ended;
    if (!carriesText(delta)) return undefined;
    if (typeof delta['role'] === 'string') this.hasRole = true;
    return { ...soundChoice(choice), index: this.index, delta, finish_reason: null };
  }

  close(otherwise: string): JsonObject {
    this.isFinished = true;
    this.isEndPending = false;
    const rest = this.#stripper?.finish() ?? '';
    const delta = rest === '' ? {} : { content: rest };
    const reason = this.#endReason ?? otherwise;
    // The caller has not seen the calls that this end refers to.
    const isUnseen = reason === 'tool_calls' && !this.#hasToolCalls;
    const finish_reason = finishReason(isUnseen ? 'stop' : reason, this.#hasToolCalls);
    return { index: this.index, delta, logprobs: null, finish_reason };
  }
}

function withoutMessage({ message: _whole, ...choice }: JsonObject): JsonObject {
  return choice;
}

function soundChoice(choice: JsonObject): JsonObject {
  const given = choice['logprobs'];
  const logprobs = safeLogprobs(given);
  const others = withoutUsage(choice);
  return logprobs === given ? others : { ...others, logprobs };
}

function newStripper({ mayOpenThinking }: StreamChoiceOptions): ThinkStripper {
  return new ThinkStripper(mayOpenThinking === true);
}

function strip(stripper: ThinkStripper, delta: Record<string, unknown>, isLast: boolean): void {
  const { content } = delta;
  // Separate reasoning or a tool call means that no thinking block is open in the content.
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
    (reasoningOf(delta) ?? '') !== '' ||
    Array.isArray(delta['reasoning_details'] ?? delta['annotations'])
  );
}
