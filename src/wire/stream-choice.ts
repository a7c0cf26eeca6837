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
import { isJsonObject, type JsonObject } from './json-scan.ts';
import { ThinkStripper } from './think-tags.ts';

export class StreamChoice {
  readonly index: number;
  hasRole = false;
  isFinished = false;
  readonly #options: AnswerOptions;
  readonly #stripper: ThinkStripper | undefined;
  /** Engine's index of a call -> whether its first piece was sent. */
  readonly #calls = new Set<number>();
  readonly #callIds = new Set<string>();
  readonly #newCallId: () => string;
  readonly #firstCall: number;

  /** `firstCall` is the index that the engine's call 0 is shown with. */
  constructor(index: number, options: AnswerOptions, firstCall: number, newCallId: () => string) {
    this.index = index;
    this.#options = options;
    this.#firstCall = firstCall;
    this.#newCallId = newCallId;
    this.#stripper = options.stripThinkTags ? new ThinkStripper() : undefined;
  }

  get hasToolCalls(): boolean {
    return this.#calls.size > 0 || this.#firstCall > 0;
  }

  /** The caller's choice for an engine's, or nothing when there is nothing left to show. */
  show(choice: JsonObject, tally: OutputTally): JsonObject | undefined {
    const original = isJsonObject(choice['delta']) ? choice['delta'] : {};
    const renamed = withReasoningName(original);
    countDelta(renamed, tally);
    const calls = toolCallsOf(renamed).map((call) => this.#safeCall(call));
    const ended = choice['finish_reason'] ?? null;
    const delta: Record<string, unknown> = { ...renamed };
    if (calls.length > 0) delta['tool_calls'] = calls;
    if (this.#options.dropReasoning) delete delta['reasoning_content'];
    this.#strip(delta, ended !== null);
    if (ended !== null) this.isFinished = true;
    const isRoleNews = !this.hasRole && typeof delta['role'] === 'string';
    if (isRoleNews) this.hasRole = true;
    const reason = ended === null ? null : finishReason(ended, this.hasToolCalls);
    const isEmptied = carriesText(original) && !carriesText(delta);
    if (reason === null && !isRoleNews && isEmptied) return undefined;
    return { ...choice, index: this.index, delta, finish_reason: reason };
  }

  /** The last chunk of a choice that the engine left open. */
  close(): JsonObject {
    this.isFinished = true;
    const rest = this.#stripper?.finish() ?? '';
    const delta = rest === '' ? {} : { content: rest };
    const finish_reason = finishReason('stop', this.hasToolCalls);
    return { index: this.index, delta, logprobs: null, finish_reason };
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
    const shown = index + this.#firstCall;
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
