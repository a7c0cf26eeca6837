/**
 * `POST /completions`: text completions by the text models of the chat, at their prices. The chat
 * run calls the engine, settles and responds.
 */
import { boundFor, outputTokensAffordable } from '../../catalog/catalog.ts';
import { bytesAtMost } from '../../core/token-count.ts';
import type { EngineFailure, Replica } from '../../engines/engines.ts';
import { LARGE_BODY_BYTES, type ReadLargeJson, readEngineJson } from '../../http/read-request.ts';
import type { RequestContext } from '../../http/request-context.ts';
import { JSON_BODY, type Route } from '../../http/route.ts';
import { findModel, sellWork } from '../../http/sell-work.ts';
import { parseJsonBody } from '../../json/json-scan.ts';
import { NOTHING_ADDED, NOTHING_PREPARED } from '../additions.ts';
import { MIN_OUTPUT_TOKENS, RESPONSE_BYTES_PER_TOKEN, USUAL_EXTRAS } from '../chat-bounds.ts';
import type { ChatParts, ChatPlan, EngineWire } from '../chat-plan.ts';
import { ChatRun } from '../run.ts';
import { StreamRun } from '../stream-run.ts';
import { chatRequestWith } from '../wire/chat-request.ts';
import type { ChatResponse, ResponseEnd } from '../wire/chat-response.ts';
import {
  type CompletionFrame,
  CompletionStream,
  completionJson,
  readCompletion,
} from './completion-response.ts';
import {
  type CompletionRequest,
  completionBounds,
  completionEstimate,
  completionRequest,
  engineBody,
} from './completion-request.ts';
import { COMPLETIONS_DESCRIPTION } from './describe.ts';

const RESPONSE_BYTES_PER_CHOICE = 64 * 1024;

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
      await complete(parts, context, completionRequest(given), readLarge);
    },
  };
}

async function complete(
  parts: ChatParts,
  context: RequestContext,
  request: CompletionRequest,
  readLarge: ReadLargeJson,
): Promise<void> {
  const wanted = { name: request.model, work: 'completions' };
  const found = findModel(parts, context, 'text', wanted);
  const { model, price } = found;
  const bounds = completionBounds(request, model);
  const { promptTokens, outputTokens, promptBytes } = bounds;
  const { madeChoices: choices, stream, body } = request;
  const { prompt_cache_key: key } = body;
  const plan: ChatPlan = {
    ...found,
    parts,
    context,
    request: chatRequestWith({
      model: request.model,
      stream,
      choiceCount: choices,
      maxOutputTokens: outputTokens,
      promptCacheKey: typeof key === 'string' ? key : undefined,
    }),
    additions: NOTHING_ADDED,
    systemPrompt: '',
    extras: USUAL_EXTRAS,
    bounds,
    protocol: undefined,
    wire: new CompletionWire({ parts, context, request, readLarge, promptTokens, model: model.id }),
  };
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
  await sellWork(parts, context, found, order, ({ sale }) => {
    const { grantedNano } = sale.hold;
    const affordable = outputTokensAffordable(grantedNano, { promptTokens, choices }, price) ?? 0;
    const Run = stream ? StreamRun : ChatRun;
    return new Run(plan, sale, NOTHING_PREPARED, {
      messages: undefined,
      searches: 0,
      promptBytes,
      promptTokens,
      outputTokens: Math.min(outputTokens, affordable),
    }).respond();
  });
}

interface WireOptions {
  readonly parts: ChatParts;
  readonly context: RequestContext;
  readonly request: CompletionRequest;
  readonly readLarge: ReadLargeJson;
  readonly promptTokens: number;
  readonly model: string;
}

class CompletionWire implements EngineWire {
  readonly work = 'completions';
  readonly path = '/completions';
  readonly #options: WireOptions;
  readonly #frame: Omit<CompletionFrame, 'outputTokens'>;

  constructor(options: WireOptions) {
    const { parts, context, request, model } = options;
    const { prompts, shownChoices, echo, wantsLogprobs } = request;
    this.#options = options;
    this.#frame = {
      id: `cmpl-${context.requestId}`,
      model,
      createdS: Math.floor(parts.clock.nowMs() / 1_000),
      choiceCount: shownChoices * prompts.length,
      echoBytes: (index) => {
        const prompt = echo ? prompts[Math.floor(index / shownChoices)] : undefined;
        if (prompt === undefined) return 0;
        return prompt.textBytes + (prompt.ids === 0 ? 0 : bytesAtMost(prompt.ids));
      },
      wantsLogprobs,
    };
  }

  responseBytes(outputTokens: number): number {
    const { request, promptTokens } = this.#options;
    const echoed = request.echo ? promptTokens * request.shownChoices : 0;
    const tokens = outputTokens * request.madeChoices + echoed;
    return RESPONSE_BYTES_PER_CHOICE * this.#frame.choiceCount + tokens * RESPONSE_BYTES_PER_TOKEN;
  }

  buildBody(
    replica: Replica,
    refusal: EngineFailure | undefined,
    maxTokens: number,
  ): Buffer | undefined {
    const { parts, context, request } = this.#options;
    const { dialects, cacheScope } = parts;
    if (refusal !== undefined && !dialects.learnSalt(replica, request.body, refusal))
      return undefined;
    const { accountId } = context.caller;
    const { prompt_cache_key: key, cache_salt: salt } = request.body;
    const isSalted = dialects.of(replica).cacheSalt || salt !== undefined;
    return engineBody(request, {
      model: replica.model,
      maxTokens,
      promptCacheKey: typeof key === 'string' ? cacheScope.keyOf(accountId, key) : undefined,
      cacheSalt: isSalted ? cacheScope.saltOf(accountId, salt) : undefined,
    });
  }

  async read(body: Buffer, outputTokens: number): Promise<ChatResponse | undefined> {
    const { context, readLarge } = this.#options;
    const given = await readEngineJson(body, context.caller.accountId, readLarge);
    return readCompletion(given, { ...this.#frame, outputTokens });
  }

  write({ choices }: ChatResponse, end: ResponseEnd): Buffer {
    return Buffer.from(completionJson(this.#frame, choices, end));
  }

  newStream(outputTokens: number): CompletionStream {
    return new CompletionStream({ ...this.#frame, outputTokens });
  }
}
