/**
 * The chat flow: resolve the model, check what it can do, set the money aside, run the engine, and
 * settle before the last byte leaves. `docs/architecture.md` draws its stages.
 *
 * Whatever ends a request ends its hold: an answer settles it, a caller who leaves pays for what
 * was produced, an engine that fails costs nothing.
 */
import {
  type Catalog,
  type CatalogModel,
  type DeprecationNotice,
  boundFor,
  outputTokensAffordable,
  requirePlan,
  requirePrice,
  requirePrivacy,
} from '../../catalog/catalog.ts';
import type { Engines } from '../../engines/engines.ts';
import type { Caller } from '../../identity/identity.ts';
import type { Clock } from '../../kernel/clock.ts';
import { Fault } from '../../kernel/faults.ts';
import type { Ids } from '../../kernel/ids.ts';
import { type Log, reasonOf } from '../../kernel/log.ts';
import { type Nano, ZERO, maxNano, minNano } from '../../kernel/money.ts';
import { type ChatAbilities, applyAbilities } from '../../wire/capability-gates.ts';
import type { ChatRequest } from '../../wire/chat-request.ts';
import type { Queryable } from '../../store/store.ts';
import type { EngineDialect } from '../../wire/engine-request.ts';
import type { Admission, Charge, RateRule } from '../charge.ts';
import { type ChatBounds, MIN_OUTPUT_TOKENS, chatBounds } from './chat-bounds.ts';
import type { ChatAdditions } from './chat-additions.ts';
import { NO_ADDITIONS } from './chat-additions.ts';
import { streamAnswer } from './streamed-answer.ts';
import { wholeAnswer } from './whole-answer.ts';

export type { ChatAdditions } from './chat-additions.ts';

/** What the answer's headers are made of. */
export interface ChatHead {
  readonly model: CatalogModel;
  readonly deprecation: DeprecationNotice | undefined;
  readonly admission: Admission;
  readonly rate: RateRule;
  /** The engine that answers, and the attempt that did; unknown while a stream is kept alive. */
  readonly replica: string | undefined;
  readonly attempts: number;
  /** Headers that the engine sent and that are passed on, such as content flags. */
  readonly flags: Readonly<Record<string, string>>;
  /** Posted USD after the request; for a stream, what its hold leaves. */
  readonly remainingNano: Nano;
}

/** Where an answer goes. */
export interface ChatReceiver {
  /** What is known before the answer, for the headers of a refusal as well. */
  resolved(model: CatalogModel, deprecation: DeprecationNotice | undefined): void;
  admitted(admission: Admission, rate: RateRule): void;
  /**
   * Set when the answer is kept for retries: keeps a whole answer, or the rest of a stream, in the
   * transaction of its charge.
   */
  readonly keep?: (tx: Queryable, head: ChatHead, body: Buffer) => Promise<void>;
  /** Headers of a stream; called once, before the first `write`. */
  begin(head: ChatHead): void;
  /** `false` when the caller reads slower than the engine writes; `onDrain` says when to go on. */
  write(chunk: Buffer): boolean;
  onDrain(resume: () => void): void;
  /** The end of a stream. */
  end(lastChunk: Buffer): void;
  /** A whole answer. */
  whole(head: ChatHead, body: Buffer): Promise<void>;
}

export interface ChatCall {
  readonly requestId: string;
  readonly caller: Caller;
  readonly request: ChatRequest;
  readonly signal: AbortSignal;
  readonly receiver: ChatReceiver;
  /** For the log line: what the flow learned. */
  readonly note: (notes: ChatNotes) => void;
}

export interface ChatNotes {
  readonly model?: string;
  readonly replica?: string;
  readonly costUsd?: string;
  readonly promptTokens?: number;
  readonly completionTokens?: number;
  readonly firstTokenMs?: number;
}

export interface ChatParts {
  readonly catalog: Catalog;
  readonly engines: Engines;
  readonly charge: Charge;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly serviceName: string;
  /** The service's own system prompt; empty for none. */
  readonly systemPrompt: () => string;
  readonly rateOf: (caller: Caller, model: CatalogModel) => RateRule;
  readonly dialectOf: (engineId: string) => EngineDialect;
  /** Persona, search, scraping, files: what is added to a request, and what it costs at most. */
  readonly additionsFor: (call: ChatCall, model: CatalogModel) => Promise<ChatAdditions>;
}

/** One admitted request on its way: what both answer modes share. */
export interface ChatRun {
  readonly parts: ChatParts;
  readonly call: ChatCall;
  readonly request: ChatRequest;
  readonly model: CatalogModel;
  readonly deprecation: DeprecationNotice | undefined;
  readonly rate: RateRule;
  readonly bounds: ChatBounds;
  readonly admission: Admission;
  readonly additions: ChatAdditions;
  /** The output cap that the hold covers: what the engine is told. */
  readonly outputTokens: number;
  readonly systemPrompt: string | undefined;
}

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

/** What a stream's headers can say of the balance: posted USD minus this request's hold. */
export function remainingDuring(run: ChatRun): Nano {
  const { before, grantedNano } = run.admission.hold;
  const fromUsd = maxNano(ZERO, minNano(grantedNano, before.usdNano));
  return maxNano(ZERO, (before.usdNano - fromUsd) as Nano); // both are nano-USD
}

export { NO_ADDITIONS };
