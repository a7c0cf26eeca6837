/**
 * `POST /completions`: text that continues a prompt as it stands, with the text models of the chat
 * and at their prices, whole or as a stream. The chat's rules hold: the worst case is set aside, a
 * caller who leaves pays for what was made, an engine that fails costs nothing but the text that had
 * left.
 */
import { parseJsonBody } from '../../json/json-scan.ts';
import type { Outcome } from '../../billing/sale.ts';
import { boundFor, chargeFor, outputTokensAffordable } from '../../catalog/catalog.ts';
import { Fault } from '../../core/faults.ts';
import { reasonOf } from '../../core/log.ts';
import { bytesAtMost } from '../../core/token-count.ts';
import type {
  EngineCall,
  EngineFailure,
  EngineHead,
  EngineOutcome,
  EngineRun,
  EngineSink,
} from '../../engines/engines.ts';
import { engineFault, saysContextOverflow } from '../../engines/engine-refusal.ts';
import { ResponseStream, KEEP_ALIVE } from '../../http/response-stream.ts';
import { asFault } from '../../http/error-response.ts';
import { type ReadLargeJson, LARGE_BODY_BYTES, readEngineJson } from '../../http/read-request.ts';
import type { RequestContext } from '../../http/request-context.ts';
import { JSON_BODY, JSON_TYPE, type Route } from '../../http/route.ts';
import {
  type ServedBy,
  answerWork,
  costOf,
  findModel,
  type HeldWork,
  noteOutcome,
  sayStreamed,
  sellWork,
} from '../../http/sell-work.ts';
import { type RoundEnd, type RoundUse, roundUse } from '../chat-bill.ts';
import { contextOverflow } from '../chat-bounds.ts';
import type { ChatParts } from '../chat-plan.ts';
import { noOutput } from '../wire/chat-choice.ts';
import { streamErrorEvents } from '../wire/stream-events.ts';
import { measurePrompt } from '../wire/prompt-facts.ts';
import {
  type CompletionEnd,
  type CompletionFrame,
  CompletionStream,
  completionJson,
  readCompletion,
} from './completion-response.ts';
import {
  type CompletionBounds,
  type CompletionRequest,
  completionBounds,
  completionEstimate,
  completionRequest,
  engineBody,
} from './completion-request.ts';
import { COMPLETIONS_DESCRIPTION } from './describe.ts';

const EVENT_STREAM = 'text/event-stream; charset=utf-8';
/** An answer in one piece has its first byte when all of it is there. */
const WHOLE_LIMITS = { firstByteMs: 600_000 };
const STREAM_TYPES = ['text/event-stream'];
const WHOLE_TYPES = ['application/json'];
/** A request that can afford fewer tokens than this of what it asks for is refused. */
const MIN_OUTPUT_TOKENS = 16;
const MAX_RESPONSE_BYTES = 256 * 1024 * 1024;
/** Names and figures that an engine adds to every choice. */
const RESPONSE_BYTES_PER_CHOICE = 64 * 1024;
/** One token as an event of its own, with its twenty likeliest others. */
const RESPONSE_BYTES_PER_TOKEN = 16 * 1024;
/** A raw prompt holds text only. */
const NO_MEDIA = measurePrompt([], {});

export function completionsRoute(parts: ChatParts, readLarge: ReadLargeJson): Route {
  return {
    method: 'POST',
    path: '/completions',
    auth: 'key-or-wallet',
    about: 'Text completions',
    body: JSON_BODY,
    sells: 'completions',
    describe: COMPLETIONS_DESCRIPTION,
    handle: async (context) => {
      const { body } = context;
      const isLarge = body.length >= LARGE_BODY_BYTES;
      const { accountId } = context.caller;
      const given = isLarge ? await readLarge(body, accountId) : parseJsonBody(body);
      await complete({ chat: parts, readLarge }, context, completionRequest(given));
    },
  };
}

interface CompletionParts {
  readonly chat: ChatParts;
  readonly readLarge: ReadLargeJson;
}

interface CompletionRun extends HeldWork, CompletionParts {
  readonly request: CompletionRequest;
  readonly bounds: CompletionBounds;
  readonly frame: CompletionFrame;
}

async function complete(
  parts: CompletionParts,
  context: RequestContext,
  request: CompletionRequest,
): Promise<void> {
  const { chat } = parts;
  const wanted = { name: request.model, work: 'completions' };
  const found = findModel(chat, context, 'text', wanted);
  const { model, price } = found;
  const bounds = completionBounds(request, model);
  const { promptTokens, outputTokens } = bounds;
  const choices = request.madeChoices;
  const least = Math.min(outputTokens, MIN_OUTPUT_TOKENS);
  const order = {
    kind: 'completions',
    tokensEstimate: completionEstimate(request, bounds),
    metadata: request.tags,
    bounds: {
      minNano: boundFor({ promptTokens, maxOutputTokens: least, choices }, price),
      maxNano: boundFor({ promptTokens, maxOutputTokens: outputTokens, choices }, price),
      maxIsNamed: true,
    },
  };
  await sellWork(chat, context, found, order, async (held) => {
    const { grantedNano } = held.sale.hold;
    const affordable = outputTokensAffordable(grantedNano, { promptTokens, choices }, price) ?? 0;
    const granted = { ...bounds, outputTokens: Math.min(outputTokens, affordable) };
    const frame = frameOf(chat, context, request, { model: model.id, ...granted });
    const run: CompletionRun = { ...held, ...parts, request, bounds: granted, frame };
    await (request.stream ? new StreamedCompletion(run).run() : answerWhole(run));
  });
}

function frameOf(
  { clock }: ChatParts,
  { requestId }: RequestContext,
  { prompts, shownChoices, echo, wantsLogprobs }: CompletionRequest,
  { model, outputTokens }: { readonly model: string; readonly outputTokens: number },
): CompletionFrame {
  return {
    id: `cmpl-${requestId}`,
    model,
    createdS: Math.floor(clock.nowMs() / 1_000),
    choiceCount: shownChoices * prompts.length,
    outputTokens,
    echoBytes: (index) => {
      const prompt = echo ? prompts[Math.floor(index / shownChoices)] : undefined;
      if (prompt === undefined) return 0;
      return prompt.textBytes + (prompt.ids === 0 ? 0 : bytesAtMost(prompt.ids));
    },
    wantsLogprobs,
  };
}

function callOf(run: CompletionRun): EngineCall {
  const { request, bounds, model, context, signal, frame, chat } = run;
  const { accountId } = context.caller;
  const { prompt_cache_key: key, cache_salt: salt } = request.body;
  const promptCacheKey =
    typeof key === 'string' ? chat.cacheScope.keyOf(accountId, key) : undefined;
  const tokens = bounds.outputTokens * request.madeChoices;
  const echoed = request.echo ? bounds.promptTokens * request.shownChoices : 0;
  const bytes =
    RESPONSE_BYTES_PER_CHOICE * frame.choiceCount + (tokens + echoed) * RESPONSE_BYTES_PER_TOKEN;
  return {
    work: 'completions',
    replicas: model.replicas,
    method: 'POST',
    path: '/completions',
    contentType: 'application/json',
    buildBody: (replica, refusal) => {
      if (refusal !== undefined && !chat.dialects.learnSalt(replica, refusal)) return undefined;
      const isSalted = chat.dialects.of(replica).cacheSalt || salt !== undefined;
      const cacheSalt = isSalted ? chat.cacheScope.saltOf(accountId, salt) : undefined;
      const maxTokens = bounds.outputTokens;
      return engineBody(request, { model: replica.model, maxTokens, promptCacheKey, cacheSalt });
    },
    canAmend: true,
    affinityKey: promptCacheKey,
    mayLackPath: true,
    caller: accountId,
    signal,
    maxResponseBytes: Math.min(MAX_RESPONSE_BYTES, bytes),
    timeLimits: request.stream ? undefined : WHOLE_LIMITS,
    accept: request.stream ? STREAM_TYPES : WHOLE_TYPES,
  };
}

function useOf({ request, bounds }: CompletionRun, end: RoundEnd): RoundUse {
  return roundUse(end, bounds, { facts: NO_MEDIA, choiceCount: request.madeChoices });
}

function endOf(outputBytes: number, given: Omit<RoundEnd, 'tally'>): RoundEnd {
  return { ...given, tally: { ...noOutput(), contentBytes: outputBytes } };
}

/** An empty answer is free, unless nothing but reading the prompt was asked for, or it was read for nobody. */
function outcomeOf(
  { bounds, price }: CompletionRun,
  use: RoundUse,
  status: Outcome['status'],
  { attempts, replica }: Pick<EngineOutcome, 'attempts' | 'replica'>,
): Outcome {
  const isDue = use.completionTokens > 0 || use.isWork || bounds.outputTokens === 0;
  return {
    costNano: chargeFor(isDue ? use : {}, price),
    status,
    tokens: {
      prompt: use.promptTokens,
      completion: use.completionTokens,
      cached: use.cachedTokens,
      cacheWrite: use.cacheWriteTokens,
      reasoning: use.reasoningTokens,
    },
    countedBy: use.countedBy,
    attempts,
    ...(replica === null ? {} : { replica: replica.engine }),
  };
}

function faultOf({ model }: CompletionRun, failure: EngineFailure): Fault {
  if (saysContextOverflow(failure)) return contextOverflow(model, undefined, 'prompt');
  return engineFault(failure, model.id);
}

function answeredBy({ chat }: CompletionRun, head: EngineHead | undefined): ServedBy {
  if (head === undefined) return { replica: undefined, attempts: 1 };
  const { replica, attempts, headers } = head;
  return { replica: replica.engine, attempts, flags: chat.headers.flagsOf(headers) };
}

async function settleUnseen(run: CompletionRun, failure: EngineFailure): Promise<void> {
  const extent = failure.attempts > 0 ? 'unseen' : 'partial';
  const use = useOf(run, endOf(0, { reported: undefined, extent }));
  await run.sale.settle(outcomeOf(run, use, 'aborted', failure));
}

async function answerWhole(run: CompletionRun): Promise<void> {
  const answer = await run.chat.engines.collectRead(callOf(run), async (body) => {
    const { accountId } = run.context.caller;
    return readCompletion(await readEngineJson(body, accountId, run.readLarge), run.frame);
  });
  if (!answer.ok) {
    if (answer.reason === 'aborted') return settleUnseen(run, answer);
    throw faultOf(run, answer);
  }
  const { choices, outputBytes, reported } = answer.read;
  const use = useOf(run, endOf(outputBytes, { reported, extent: 'whole' }));
  const outcome = {
    ...outcomeOf(run, use, 'completed', answer),
    firstTokenMs: answer.firstByteMs,
  };
  await answerWork(run, answeredBy(run, answer.head), outcome, (cost) => {
    const body = Buffer.from(completionJson(run.frame, choices, { usage: use, cost }));
    return { type: JSON_TYPE, body };
  });
}

class StreamedCompletion implements EngineSink {
  readonly #run: CompletionRun;
  readonly #events: CompletionStream;
  readonly #answer: ResponseStream;
  #engineRun: EngineRun | undefined;
  #head: EngineHead | undefined;

  constructor(run: CompletionRun) {
    this.#run = run;
    this.#events = new CompletionStream(run.frame);
    this.#answer = new ResponseStream({
      context: run.context,
      clock: run.chat.clock,
      type: EVENT_STREAM,
      setHeaders: () => sayStreamed(run, answeredBy(run, this.#head)),
      resume: () => this.#engineRun?.resume(),
      keepAlive: () => KEEP_ALIVE,
    });
  }

  async run(): Promise<void> {
    const run = this.#run;
    try {
      this.#engineRun = run.chat.engines.run(callOf(run), this);
      const outcome = await this.#engineRun.outcome;
      if (run.signal.aborted) return await this.#leave(outcome);
      const fault = this.#problemOf(outcome);
      await (fault === undefined ? this.#complete(outcome) : this.#fail(fault, outcome));
    } finally {
      this.#answer.close();
    }
  }

  onHead(head: EngineHead): void {
    this.#head = head;
  }

  onChunk(chunk: Buffer): boolean {
    const goesOn = this.#answer.write(this.#events.push(chunk));
    const { failure, isCutOff } = this.#events;
    // After an error inside the stream or the end of the grant nothing more is shown.
    if (failure !== undefined || isCutOff) this.#engineRun?.abort();
    return goesOn;
  }

  #problemOf(outcome: EngineOutcome): Fault | undefined {
    const { failure, isCutOff, isComplete, isDone } = this.#events;
    if (isCutOff) return undefined;
    if (failure !== undefined) return new Fault('INFERENCE_FAILED', { cause: failure });
    // What becomes of the connection behind `[DONE]` takes nothing from the answer.
    if (!outcome.ok && !isDone) return faultOf(this.#run, outcome);
    if (isComplete) return undefined;
    return new Fault('INFERENCE_FAILED', { cause: 'the stream ended early' });
  }

  #use(extent: RoundEnd['extent']): RoundUse {
    const { outputBytes, reported } = this.#events;
    return useOf(this.#run, endOf(outputBytes, { reported, extent }));
  }

  #outcome(use: RoundUse, status: Outcome['status'], outcome: EngineOutcome): Outcome {
    const firstTokenMs = this.#head?.firstByteMs;
    return {
      ...outcomeOf(this.#run, use, status, outcome),
      ...(firstTokenMs === undefined ? {} : { firstTokenMs }),
    };
  }

  async #complete(outcome: EngineOutcome): Promise<void> {
    const { context, sale } = this.#run;
    const use = this.#use(this.#events.isCutOff ? 'partial' : 'whole');
    const charge = this.#outcome(use, 'completed', outcome);
    if (context.keeper !== undefined) this.#answer.begin();
    let last: Buffer;
    try {
      ({ last } = await sale.answer(charge, (settled) => {
        const end: CompletionEnd = { usage: use, cost: costOf(settled) };
        const closing = this.#events.closing(end);
        return { type: EVENT_STREAM, body: this.#answer.kept(closing), last: closing };
      }));
    } catch (error) {
      // The stream is not complete without its charge, and its end says so.
      return this.#fail(asFault(error), outcome);
    }
    noteOutcome(context, charge);
    this.#answer.end(last);
  }

  async #leave(outcome: EngineOutcome): Promise<void> {
    const wasSeen = this.#events.outputBytes > 0;
    const extent = wasSeen || outcome.attempts === 0 ? 'partial' : 'unseen';
    const charge = this.#outcome(this.#use(extent), 'aborted', outcome);
    await this.#run.sale.settle(charge);
    noteOutcome(this.#run.context, charge);
  }

  /** Before the headers an error is a status; after them it is an event, and text that had left is paid. */
  async #fail(fault: Fault, outcome: EngineOutcome): Promise<void> {
    if (!this.#answer.hasBegun) throw fault;
    const { sale, context, chat } = this.#run;
    let usage = '';
    if (this.#events.outputBytes > 0) {
      const use = this.#use('partial');
      const charge = this.#outcome(use, 'failed', outcome);
      usage = this.#events.usageEvent({ usage: use, cost: costOf(await sale.settle(charge)) });
      noteOutcome(context, charge);
    } else await sale.release({ status: 'failed', attempts: outcome.attempts });
    const fields = { requestId: context.requestId, reason: reasonOf(fault.options.cause ?? fault) };
    chat.log.warn(fields, 'A stream failed after its first byte');
    this.#answer.end(Buffer.concat([Buffer.from(usage), streamErrorEvents(fault)]));
  }
}
