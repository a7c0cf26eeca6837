/**
 * The chat flow: resolve the model, check what it can do, set the money aside, run the engine, and
 * settle before the last byte leaves. `docs/architecture.md` draws its stages.
 *
 * Whatever ends a request ends its hold: an answer settles it, a caller who leaves pays for what
 * was produced, an engine that fails costs nothing.
 */
import {
  type CatalogModel,
  boundFor,
  outputTokensAffordable,
  requirePlan,
  requirePrice,
  requirePrivacy,
} from '../../catalog/catalog.ts';
import type { Caller } from '../../identity/identity.ts';
import { Fault } from '../../kernel/faults.ts';
import { reasonOf } from '../../kernel/log.ts';
import { type ChatAbilities, applyAbilities } from '../../wire/capability-gates.ts';
import type { ChatRequest } from '../../wire/chat-request.ts';
import { MIN_OUTPUT_TOKENS, chatBounds } from './chat-bounds.ts';
import type { ChatAdditions } from './chat-additions.ts';
import type { ChatCall, ChatParts, ChatRun } from './chat-run.ts';
import { streamAnswer } from './streamed-answer.ts';
import { wholeAnswer } from './whole-answer.ts';

export { type ChatAdditions, NO_ADDITIONS } from './chat-additions.ts';
export type { ChatCall, ChatHead, ChatParts, ChatReceiver } from './chat-run.ts';

export async function runChat(parts: ChatParts, call: ChatCall): Promise<void> {
  const { caller } = call;
  const resolved = parts.catalog.require(call.request.model, 'text');
  const { model } = resolved;
  call.note({ model: model.id });
  call.receiver.resolved(model, resolved.deprecation);
  requirePlan(model, caller.plan);
  requirePrivacy(model, caller.modelPrivacy);
  requireAllowed(model, caller);
  const request = applyAbilities(call.request, model.id, abilitiesOf(model));
  const additions = await parts.additionsFor({ ...call, request }, model);
  const systemPrompt = joinPrompts(parts, request, additions);
  const run = await admit(parts, { call, request, model, additions, systemPrompt });
  const whole = { ...run, deprecation: resolved.deprecation };
  try {
    await (request.stream ? streamAnswer(whole) : wholeAnswer(whole));
  } catch (error) {
    await releaseAfter(whole, error);
    throw error;
  }
}

/** Settling twice is harmless, so every way out may end the hold. */
async function releaseAfter(run: ChatRun, error: unknown): Promise<void> {
  try {
    await run.parts.charge.release(run.admission, { status: 'failed' });
  } catch (failure) {
    // The epoch of this process gives the hold back later; the first error is the caller's.
    const fields = { requestId: run.call.requestId, reason: reasonOf(failure) };
    run.parts.log.error({ ...fields, after: reasonOf(error) }, 'A hold could not be released');
  }
}

type Unpriced = Pick<ChatRun, 'call' | 'request' | 'model' | 'additions' | 'systemPrompt'>;

/** Prices the worst case, holds what the balance affords, and clamps the output to it. */
async function admit(parts: ChatParts, unpriced: Unpriced): Promise<Omit<ChatRun, 'deprecation'>> {
  const { call, request, model, additions, systemPrompt } = unpriced;
  const price = requirePrice(model);
  const addedBytes = additions.textBytes + Buffer.byteLength(systemPrompt ?? '');
  const bounds = chatBounds(request, model, addedBytes);
  const bound = {
    promptTokens: bounds.promptTokens,
    maxOutputTokens: bounds.outputTokens,
    choices: request.choiceCount,
    surcharges: additions.surchargeBoundNano,
  };
  const leastOutput = Math.min(bounds.outputTokens, MIN_OUTPUT_TOKENS);
  const rate = parts.rateOf(call.caller, model);
  const admission = await parts.charge.admit({
    requestId: call.requestId,
    caller: call.caller,
    kind: 'chat',
    modelId: model.id,
    tier: model.tier,
    rate,
    tokensBound: bounds.promptTokens + bounds.outputTokens * request.choiceCount,
    minNano: boundFor({ ...bound, maxOutputTokens: leastOutput }, price),
    maxNano: boundFor(bound, price),
    priceVersion: price.version,
  });
  call.receiver.admitted(admission, rate);
  const affordable = outputTokensAffordable(admission.hold.grantedNano, bound, price) ?? 0;
  const outputTokens = Math.max(1, Math.min(bounds.outputTokens, affordable));
  return { parts, ...unpriced, rate, bounds, admission, outputTokens };
}

function requireAllowed(model: CatalogModel, caller: Caller): void {
  if (caller.models === undefined || caller.models.has(model.id)) return;
  throw new Fault('MODEL_NOT_ALLOWED', {
    message: `This API key may not use the model "${model.id}"`,
    canRetry: false,
  });
}

/** The service's prompt first, then the persona; the caller's own follow in the messages. */
function joinPrompts(
  parts: ChatParts,
  request: ChatRequest,
  additions: ChatAdditions,
): string | undefined {
  const own = request.parameters.include_venice_system_prompt ? parts.systemPrompt() : '';
  const joined = [own, ...additions.systemPrompts].filter((text) => text !== '').join('\n\n');
  return joined === '' ? undefined : joined;
}

function abilitiesOf(model: CatalogModel): ChatAbilities {
  const can = model.capabilities;
  return {
    vision: can.has('vision'),
    multipleImages: can.has('multipleImages'),
    audioInput: can.has('audioInput'),
    videoInput: can.has('videoInput'),
    functionCalling: can.has('functionCalling'),
    responseSchema: can.has('responseSchema'),
    logProbs: can.has('logProbs'),
    reasoning: can.has('reasoning'),
    reasoningEffort: can.has('reasoningEffort'),
    webSearch: true,
    xSearch: can.has('xSearch'),
    maxCompletionTokens: model.maxCompletionTokens || Number.MAX_SAFE_INTEGER,
    ...(model.maxImages === undefined ? {} : { maxImages: model.maxImages }),
    ...(model.maxVideos === undefined ? {} : { maxVideos: model.maxVideos }),
    ...(model.reasoningEfforts === undefined
      ? {}
      : { reasoningEffortOptions: model.reasoningEfforts }),
  };
}
