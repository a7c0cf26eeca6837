/**
 * `POST /chat/completions`, and a chat from its parsed request on, whatever protocol it came in:
 * resolve the model, check what it can do, set the money aside, run the engine, and settle before
 * the last byte leaves. `docs/architecture.md` draws its stages. An answer in one piece is made here,
 * a stream in `streamed-response.ts`.
 *
 * Whatever ends a request ends its hold: an answer settles it, a caller who leaves pays for what
 * was produced, an engine that fails costs nothing but the text that had left.
 */
import type { Settlement } from '../billing/ledger/ledger.ts';
import type { Sale, SoldResponse } from '../billing/sale.ts';
import type { EngineResponse } from '../engines/engines.ts';
import { priceFor, saleRequest } from '../http/model-sale.ts';
import { LARGE_BODY_BYTES } from '../http/read-request.ts';
import type { RequestContext } from '../http/request-context.ts';
import { JSON_BODY, JSON_TYPE, type Route } from '../http/route.ts';
import { isTagValue } from '../http/tags.ts';
import type { CatalogModel } from '../catalog/catalog.ts';
import { type AdditionsPlan, NOTHING_ADDED, NOTHING_PREPARED } from './additions.ts';
import type { ResponseBlocks } from './agents/response-blocks.ts';
import type { ResponseProtocol } from './agents/response-protocol.ts';
import type { ChatBill } from './chat-bill.ts';
import {
  chatBounds,
  holdBounds,
  type PromptExtras,
  tokensEstimate,
  USUAL_EXTRAS,
} from './chat-bounds.ts';
import { CHAT_DESCRIPTION } from './chat-completions/describe.ts';
import {
  answerBlocks,
  answerEnd,
  answerOptions,
  billOf,
  ChatCall,
  type ChatParts,
  type ChatPlan,
  type ChatRun,
  chatFault,
  endRound,
  endUnseen,
  factsOf,
  noteBill,
  outcomeOf,
  searchRound,
  showPrepared,
  showSearches,
  startRun,
} from './chat-run.ts';
import { streamResponse } from './streamed-response.ts';
import { fitToModel } from './wire/capability-gates.ts';
import {
  type ChatRequest,
  type ChatRequestOptions,
  parseChatRequest,
} from './wire/chat-request.ts';
import { type ResponseFrame, type ChatResponse, writeChatResponse } from './wire/chat-response.ts';
import { mayEngineSearch } from './wire/engine-request.ts';
import { type HeldRound, heldRoundOf, joinedResponse } from './wire/held-calls.ts';

/** `parseChatRequest` for a body that would hold up the event loop. */
export type ReadLargeChat = (
  body: Buffer,
  caller: string,
  options: ChatRequestOptions,
) => Promise<ChatRequest>;

export function chatCompletionsRoute(parts: ChatParts, readLarge: ReadLargeChat): Route {
  const options = { serviceName: parts.serviceName };
  return {
    method: 'POST',
    path: '/chat/completions',
    auth: 'key-or-wallet',
    about: 'Chat completions',
    body: JSON_BODY,
    sells: 'chat',
    describe: CHAT_DESCRIPTION,
    handle: (context) => {
      const { body } = context;
      return body.length < LARGE_BODY_BYTES
        ? sellChat(parts, context, parseChatRequest(body, options))
        : readLarge(body, context.caller.accountId, options).then((request) =>
            sellChat(parts, context, request),
          );
    },
  };
}

/**
 * Runs a chat; a refusal says what was learned before it. `protocol` is how its answer is said, when
 * that is not as chat completions.
 */
export function sellChat(
  parts: ChatParts,
  context: RequestContext,
  asked: ChatRequest,
  protocol?: ResponseProtocol,
): Promise<void> {
  const resolved = parts.catalog.require(asked.model, 'text');
  const price = priceFor(context, resolved);
  const { model, deprecation } = resolved;
  const { caller, cancellation } = context;
  const most = model.maxCompletionTokens || Infinity;
  const given = protocol === undefined ? asked : withinCap(asked, most);
  // A plain request asks no more of a model than that.
  const isFit = given.isPlain && (given.maxOutputTokens ?? 0) <= most;
  const request = isFit ? given : fitToModel(given, model, parts.canSearch);
  const { accountId } = caller;
  const additions = request.isPlain
    ? NOTHING_ADDED
    : parts.planAdditions({
        request,
        model,
        accountId,
        signal: cancellation.signal,
        maxSearches: protocol?.maxSearches,
      });
  const isOwnWanted = request.parameters.include_venice_system_prompt;
  // The service's prompt first, then the persona; the caller's own follow in the messages.
  let systemPrompt = isOwnWanted ? parts.systemPrompt() : '';
  if (additions.systemPrompts.length > 0) {
    const all = [systemPrompt, ...additions.systemPrompts];
    systemPrompt = all.filter((text) => text !== '').join('\n\n');
  }
  const extras = extrasOf(parts, request, model, additions);
  const bounds = chatBounds(request, model, Buffer.byteLength(systemPrompt), extras);
  const plan: ChatPlan = {
    parts,
    context,
    cancellation,
    request,
    model,
    deprecation,
    price,
    additions,
    systemPrompt,
    extras,
    bounds,
    protocol,
  };
  const work = (sale: Sale): Promise<void> => {
    context.known = { model, deprecation, sale };
    const { prepare } = additions;
    const answer = request.stream ? streamResponse : wholeResponseText;
    if (prepare === undefined) return startRun(plan, sale, NOTHING_PREPARED, answer);
    return prepare().then((prepared) => startRun(plan, sale, prepared, answer));
  };
  const wanted = saleRequest(context, {
    kind: 'chat',
    model,
    price,
    rate: parts.rateOf(caller, model),
    tokensEstimate: tokensEstimate(request, model, bounds.outputTokens),
    bounds: holdBounds(plan),
    paid: additions.paid,
    metadata: request.isPlain && protocol === undefined ? undefined : tagsFor(request, protocol),
  });
  return parts.sales.sell(wanted, work);
}

/** What the prompt has beside its text. */
function extrasOf(
  { templates, searchPromptTokens }: ChatParts,
  { isPlain, fields }: ChatRequest,
  model: CatalogModel,
  { socialSearch }: AdditionsPlan,
): PromptExtras {
  const templateTokens = templates.tokensOf(model);
  const searches = socialSearch !== undefined || (!isPlain && mayEngineSearch(fields));
  if (!searches && templateTokens === USUAL_EXTRAS.templateTokens) return USUAL_EXTRAS;
  return { templateTokens, searchTokens: searches ? searchPromptTokens() : 0 };
}

/** Agents ask for as much as they can think of: their caps are lowered where a chat's are refused. */
function withinCap(request: ChatRequest, most: number): ChatRequest {
  if ((request.maxOutputTokens ?? 0) <= most) return request;
  return { ...request, maxOutputTokens: most };
}

/** By which a session of an agent is summed up, beside what the caller tags it with. */
function tagsFor(
  { metadata, promptCacheKey }: ChatRequest,
  protocol: ResponseProtocol | undefined,
) {
  const session = promptCacheKey ?? '';
  const hasSession = session !== '' && isTagValue(session);
  if (protocol === undefined && !hasSession) return metadata;
  return {
    ...metadata,
    ...(protocol === undefined ? {} : { protocol: protocol.name }),
    ...(hasSession ? { prompt_cache_key: session } : {}),
  };
}

/** A chat answer in one piece: collected, counted, settled, and only then sent. */
async function wholeResponseText(run: ChatRun): Promise<void> {
  const { parts, context, additions, cancellation } = run;
  const tool = additions.autoSearch?.toolName;
  const earlier: HeldRound[] = [];
  const blocks = run.protocol && answerBlocks(run, run.protocol);
  if (blocks !== undefined) showPrepared(run, blocks);
  for (;;) {
    const options = answerOptions(run);
    const call = new ChatCall(run, options);
    const answer = await parts.engines.collect(call);
    if (!answer.ok) {
      if (answer.reason !== 'aborted') throw chatFault(run, answer);
      endUnseen(run, answer);
      return settleAborted(run, answer.replica?.engine);
    }
    const { read } = call;
    if (read === undefined) throw new Error('A usable answer was read');
    run.cited = read.cited;
    endRound(run, { reported: read.reported, tally: read.tally, extent: 'whole' }, answer);
    const held = tool === undefined ? undefined : heldRoundOf(read, tool);
    if (tool === undefined || held === undefined || run.round.searches === 0) {
      const said = tool === undefined ? read : joinedResponse(read, tool, earlier);
      const bill = billOf(run);
      const { body } = await charge(run, bill, options, said, answer, blocks);
      noteBill(run, bill, answer.replica.engine);
      return context.bytes(200, JSON_TYPE, body);
    }
    const shown = additions.autoSearch?.searches.length ?? 0;
    if (blocks === undefined) earlier.push(held);
    else blocks.choice({ delta: { content: held.content, reasoning_content: held.reasoning } });
    try {
      await searchRound(run, held);
    } catch (error) {
      // The caller left during the search; anything else is a bug.
      if (!cancellation.aborted) throw error;
      parts.log.debug({ requestId: context.requestId }, 'The caller left during a search');
      return settleAborted(run, answer.replica.engine);
    }
    if (blocks === undefined) continue;
    showSearches(run, blocks, shown);
    blocks.nextRound();
  }
}

interface MadeResponse extends SoldResponse {
  readonly body: Buffer | string;
}

/** Settles, and makes the body out of what was charged. */
function charge(
  run: ChatRun,
  bill: ChatBill,
  frame: ResponseFrame,
  said: ChatResponse,
  answer: EngineResponse,
  blocks: ResponseBlocks | undefined,
): Promise<MadeResponse> {
  const { parts, context } = run;
  const from = { replica: answer.replica.engine, firstTokenMs: answer.firstByteMs };
  if (blocks !== undefined) showChoice(said, blocks);
  const make = (settled: Settlement): MadeResponse => {
    parts.headers.answered(factsOf(run, answer.head, settled.after.usdNano), context.answerHeaders);
    const end = answerEnd(run, bill, settled);
    const body = blocks === undefined ? writeChatResponse(said, frame, end) : blocks.whole(end);
    return { type: JSON_TYPE, body };
  };
  return run.sale.answer(outcomeOf(run, bill, 'completed', from), make, blocks?.together);
}

/** The one choice of the answer as a delta that says everything. */
function showChoice({ choices: [choice] }: ChatResponse, blocks: ResponseBlocks): void {
  if (choice === undefined) return;
  const { message, ...rest } = choice;
  blocks.choice({ ...rest, delta: message });
}

/** The caller left before the answer. */
async function settleAborted(run: ChatRun, replica: string | undefined): Promise<void> {
  const bill = billOf(run);
  const from = replica === undefined ? {} : { replica };
  await run.sale.settle(outcomeOf(run, bill, 'aborted', from));
  noteBill(run, bill, replica);
}
