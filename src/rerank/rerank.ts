/**
 * `POST /rerank`: ranks documents by relevance to a query. Charged per search of up to 100
 * documents, per token, or both; a response without all requested documents is not sold.
 */
import { NO_TOKENS } from '../billing/ledger/ledger.ts';
import { boundFor, type CatalogModel, chargeFor, type Price } from '../catalog/catalog.ts';
import type { Nano } from '../core/money.ts';
import { tokensAbout, tokensAtMost } from '../core/token-count.ts';
import { failedCall } from '../engines/engine-refusal.ts';
import type { EngineCall, EngineFailure, Engines, Replica } from '../engines/engines.ts';
import type { LearnedReplicas } from '../engines/learned-replicas.ts';
import { type ReadLargeJson, readEngineJson, readJson } from '../http/read-request.ts';
import type { RequestContext } from '../http/request-context.ts';
import { JSON_BODY, JSON_TYPE, type Route } from '../http/route.ts';
import {
  answerWork,
  type FallbackRule,
  findModel,
  type FoundModel,
  type HeldWork,
  sellWithFallbacks,
  type SellingParts,
} from '../http/sell-work.ts';
import { refuseMember } from '../json/validation.ts';
import { RERANK, RERANK_BY_VERSION } from './describe.ts';
import { type ReadRanking, readRanking } from './rerank-response.ts';
import { engineBody, RerankRequest, textsBody, textsOf } from './rerank-request.ts';

export interface RerankParts extends SellingParts {
  readonly engines: Engines;
  readonly readLargeJson: ReadLargeJson;
  /** Replicas that accept `texts` in place of `documents`. */
  readonly textReplicas: LearnedReplicas;
}

const DEFAULT_MAX_DOCUMENTS = 1_000;
const DOCUMENTS_PER_SEARCH = 100;
/** Special tokens around a pair. */
const FRAME_TOKENS = 16;
const MIN_RESPONSE_BYTES = 8 * 1024 * 1024;
const MAX_RESPONSE_BYTES = 256 * 1024 * 1024;
/** Some engines repeat the documents. */
const RESPONSE_BYTES_PER_TEXT_BYTE = 6;
const TIME_LIMITS = { firstByteMs: 600_000 };

export function rerankRoutes(parts: RerankParts): Route[] {
  const route = {
    method: 'POST',
    auth: 'key-or-wallet',
    about: 'Reranking of documents',
    body: JSON_BODY,
    sells: 'rerank',
    handle: (context: RequestContext) => rerank(parts, context),
  } as const;
  return [
    { ...route, path: '/rerank', describe: RERANK },
    // Cohere's clients add the version to the base URL.
    { ...route, path: '/v1/rerank', describe: RERANK_BY_VERSION },
    { ...route, path: '/v2/rerank', describe: RERANK_BY_VERSION },
  ];
}

interface RerankOrder {
  readonly request: RerankRequest;
  readonly texts: readonly string[];
  readonly wanted: number;
  readonly searches: number;
  readonly textBytes: number;
  readonly mostTokens: number;
}

function orderOf(request: RerankRequest, { id, rerank: limits }: CatalogModel): RerankOrder {
  const { maxDocuments = DEFAULT_MAX_DOCUMENTS } = limits ?? {};
  const count = request.documents.length;
  if (count > maxDocuments) {
    const message = `The model ${id} accepts at most ${maxDocuments} documents, got ${count}`;
    throw refuseMember(['documents'], message, 'too_big');
  }
  const texts = textsOf(request);
  // The query is read with each document.
  let textBytes = Buffer.byteLength(request.query) * count;
  for (const text of texts) textBytes += Buffer.byteLength(text);
  return {
    request,
    texts,
    wanted: Math.min(request.top_n ?? count, count),
    searches: Math.ceil(count / DOCUMENTS_PER_SEARCH),
    textBytes,
    mostTokens: tokensAtMost(textBytes) + FRAME_TOKENS * count,
  };
}

/** Only units that the model has a price for. */
function unitsOf({ searches }: RerankOrder, promptTokens: number, price: Price) {
  return {
    ...(price.perSearch === undefined ? {} : { searches }),
    ...(price.tokens === undefined ? {} : { promptTokens }),
  };
}

async function rerank(parts: RerankParts, context: RequestContext): Promise<void> {
  const request = await readJson(context, RerankRequest, parts.readLargeJson);
  const wanted = { name: request.model ?? undefined, work: 'reranking' };
  const found = findModel(parts, context, 'rerank', wanted);
  const boundOf = (one: FoundModel): Nano => {
    const order = orderOf(request, one.model);
    return boundFor(unitsOf(order, order.mostTokens, one.price), one.price);
  };
  const rule: FallbackRule = { type: 'rerank', work: 'reranking', boundOf };
  await sellWithFallbacks(parts, context, found, { kind: 'rerank', rule }, async (held) => {
    const { model, price } = held;
    const order = orderOf(request, model);
    const answer = await rank(parts, context, order, held);
    if (!answer.ok) return failedCall(answer, model.id);
    const { tokens: reported = 0 } = answer.read;
    // Engines that do not count tokens report zero.
    const isReported = reported > 0 && reported <= order.mostTokens;
    const promptTokens = isReported ? reported : tokensAbout(order.textBytes);
    const replica = answer.replica.engine;
    const { attempts, firstByteMs: firstTokenMs } = answer;
    const outcome = {
      costNano: chargeFor(unitsOf(order, promptTokens, price), price),
      status: 'completed',
      tokens: { ...NO_TOKENS, prompt: promptTokens },
      countedBy: isReported ? 'engine' : 'bytes',
      attempts,
      replica,
      firstTokenMs,
      extras: { searches: order.searches },
    } as const;
    await answerWork(held, { replica, attempts }, outcome, (cost) => {
      const said = {
        id: context.requestId,
        object: 'list',
        model: model.id,
        results: resultsOf(answer.read, order),
        usage: { prompt_tokens: promptTokens, completion_tokens: 0, total_tokens: promptTokens },
        meta: {
          api_version: { version: '2' },
          billed_units: { search_units: order.searches },
          tokens: { input_tokens: promptTokens, output_tokens: 0 },
        },
        cost,
      };
      return { type: JSON_TYPE, body: Buffer.from(JSON.stringify(said)) };
    });
    return undefined;
  });
}

function resultsOf({ ranked }: ReadRanking, { request, texts }: RerankOrder): object[] {
  return ranked.map(({ index, score }) => {
    const result = { index, relevance_score: score };
    if (request.return_documents !== true) return result;
    const given = request.documents[index];
    return { ...result, document: typeof given === 'object' ? given : { text: texts[index] } };
  });
}

async function rank(
  { engines, textReplicas, readLargeJson }: RerankParts,
  context: RequestContext,
  { request, texts, wanted, textBytes }: RerankOrder,
  { model, signal }: Pick<HeldWork, 'model' | 'signal'>,
) {
  let sent: { replica: Replica; asTexts: boolean; isChanged: boolean } | undefined;
  const call: EngineCall = {
    work: 'rerank',
    replicas: model.replicas,
    method: 'POST',
    path: '/rerank',
    contentType: 'application/json',
    buildBody: (replica, refusal) => {
      if (refusal === undefined || sent === undefined) {
        sent = { replica, asTexts: textReplicas.has(replica), isChanged: false };
      } else {
        const { asTexts, isChanged } = sent;
        if (isChanged || !wants(asTexts ? 'documents' : 'texts', refusal)) return undefined;
        // The engine accepts the other format, or another server has replaced it.
        sent = { replica, asTexts: !asTexts, isChanged: true };
      }
      return sent.asTexts ? textsBody(request, texts) : engineBody(request, texts, replica.model);
    },
    canAmend: true,
    isOptionalPath: true,
    caller: context.caller.accountId,
    tries: context,
    signal,
    maxResponseBytes: Math.min(
      MAX_RESPONSE_BYTES,
      MIN_RESPONSE_BYTES + textBytes * RESPONSE_BYTES_PER_TEXT_BYTE,
    ),
    timeLimits: TIME_LIMITS,
  };
  const answer = await engines.collectRead(call, async (body) => {
    const value = await readEngineJson(body, context.caller.accountId, readLargeJson);
    return readRanking(value, texts.length, wanted);
  });
  if (answer.ok && sent?.isChanged === true && sent.replica === answer.replica) {
    textReplicas[sent.asTexts ? 'add' : 'remove'](sent.replica);
  }
  return answer;
}

const NAMES = { documents: /\bdocuments\b/, texts: /\btexts\b/ };

/** The validation error names the missing field. */
function wants(field: keyof typeof NAMES, { status, body }: EngineFailure): boolean {
  const isInvalid = status === 400 || status === 422;
  return isInvalid && NAMES[field].test(String(body ?? ''));
}
