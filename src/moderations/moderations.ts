/**
 * `POST /moderations`: classifies texts and images by an engine. Free, or charged per token; a
 * response that does not match the inputs is not sold.
 */
import { NO_TOKENS } from '../billing/ledger/ledger.ts';
import { boundFor, chargeFor, type Price, type UsageBound } from '../catalog/catalog.ts';
import {
  mediaTokensAbout,
  mediaTokensAtMost,
  tokensAbout,
  tokensAtMost,
} from '../core/token-count.ts';
import { requireModestImage } from '../documents/documents.ts';
import { engineFault } from '../engines/engine-refusal.ts';
import type { EngineCall, Engines } from '../engines/engines.ts';
import { readUsage } from '../engines/usage.ts';
import { type ReadLargeJson, readEngineJson, readJson } from '../http/read-request.ts';
import type { RequestContext } from '../http/request-context.ts';
import { JSON_BODY, JSON_TYPE, type Route } from '../http/route.ts';
import { answerWork, findModel, sellWork, type SellingParts } from '../http/sell-work.ts';
import * as z from 'zod';
import { ModerationRequest, ModerationResult, MODERATIONS } from './schema.ts';

export interface ModerationsParts extends SellingParts {
  readonly engines: Engines;
  readonly readLargeJson: ReadLargeJson;
}

const MAX_RESPONSE_BYTES = 8 * 1024 * 1024;
/** Prompt text that a guard model adds to an input. */
const FRAME_TOKENS = 2_048;

export function moderationsRoute(parts: ModerationsParts): Route {
  return {
    method: 'POST',
    path: '/moderations',
    auth: 'key-or-wallet',
    about: 'Moderation of texts and images',
    body: JSON_BODY,
    sells: 'moderation',
    describe: MODERATIONS,
    handle: (context) => moderate(parts, context),
  };
}

interface InputSize {
  readonly results: number;
  readonly textBytes: number;
  readonly imageCount: number;
}

function sizeOf(input: ModerationRequest['input']): InputSize {
  if (typeof input === 'string') {
    return { results: 1, textBytes: Buffer.byteLength(input), imageCount: 0 };
  }
  let textBytes = 0;
  let imageCount = 0;
  let parts = 0;
  for (const one of input) {
    if (typeof one === 'string') textBytes += Buffer.byteLength(one);
    else {
      parts += 1;
      if (one.type === 'text') textBytes += Buffer.byteLength(one.text);
      else imageCount += 1;
    }
  }
  return { results: parts > 0 ? 1 : input.length, textBytes, imageCount };
}

function refuseHugeImages(input: ModerationRequest['input']): void {
  if (typeof input === 'string') return;
  for (const [at, one] of input.entries()) {
    if (typeof one === 'string' || one.type === 'text') continue;
    requireModestImage(one.image_url.url, ['input', String(at), 'image_url']);
  }
}

async function moderate(parts: ModerationsParts, context: RequestContext): Promise<void> {
  const request = await readJson(context, ModerationRequest, parts.readLargeJson);
  const wanted = { name: request.model ?? undefined, work: 'moderation' };
  const found = findModel(parts, context, 'moderation', wanted);
  const { model, price } = found;
  const size = sizeOf(request.input);
  refuseHugeImages(request.input);
  const media = { imageCount: size.imageCount, audioCount: 0, videoCount: 0 };
  const mostTokens =
    tokensAtMost(size.textBytes) + mediaTokensAtMost(media) + FRAME_TOKENS * size.results;
  const aboutTokens = tokensAbout(size.textBytes) + mediaTokensAbout(media);
  const maxNano = boundFor(priced({ promptTokens: mostTokens }, price), price);
  const order = { kind: 'moderation', bounds: { minNano: maxNano, maxNano } };
  await sellWork(parts, context, found, order, async (held) => {
    const call: EngineCall = {
      work: 'moderation',
      replicas: model.replicas,
      method: 'POST',
      path: '/moderations',
      contentType: 'application/json',
      buildBody: (replica) => Buffer.from(JSON.stringify({ ...request, model: replica.model })),
      isOptionalPath: true,
      caller: context.caller.accountId,
      tries: context,
      signal: held.signal,
      maxResponseBytes: MAX_RESPONSE_BYTES,
    };
    const answer = await parts.engines.collectRead(call, async (body) => {
      const { accountId } = context.caller;
      const value = await readEngineJson(body, accountId, parts.readLargeJson);
      return readModeration(value, size.results);
    });
    if (!answer.ok) throw engineFault(answer, model.id);
    const { results, promptTokens: reported = 0 } = answer.read;
    // Engines that do not count tokens report zero.
    const isReported = reported > 0 && reported <= mostTokens;
    const promptTokens = isReported ? reported : aboutTokens;
    const replica = answer.replica.engine;
    const { attempts, firstByteMs: firstTokenMs } = answer;
    const outcome = {
      costNano: chargeFor(priced({ promptTokens }, price), price),
      status: 'completed',
      tokens: { ...NO_TOKENS, prompt: promptTokens },
      countedBy: isReported ? 'engine' : 'bytes',
      attempts,
      replica,
      firstTokenMs,
    } as const;
    await answerWork(held, { replica, attempts }, outcome, (cost) => {
      const said = { id: `modr-${context.requestId}`, model: model.id, results, cost };
      return { type: JSON_TYPE, body: Buffer.from(JSON.stringify(said)) };
    });
  });
}

/** A model that is free or priced per request has no token price. */
function priced(tokens: { readonly promptTokens: number }, price: Price): UsageBound {
  return price.tokens === undefined ? {} : tokens;
}

interface ReadModeration {
  readonly results: readonly z.infer<typeof ModerationResult>[];
  readonly promptTokens: number | undefined;
}

const Answer = z.looseObject({ results: z.array(ModerationResult), usage: z.unknown().optional() });

function readModeration(given: unknown, count: number): ReadModeration | undefined {
  const answer = Answer.safeParse(given).data;
  if (answer === undefined || answer.results.length !== count) return undefined;
  return { results: answer.results, promptTokens: readUsage(answer.usage)?.promptTokens };
}
