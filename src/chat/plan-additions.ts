/**
 * From the service parameters and the content of a chat request to the plan of what is added to
 * it: who speaks, what is searched, read and fetched, and what that costs at most. The plan itself
 * does no I/O.
 */
import type { CatalogModel } from '../catalog/catalog.ts';
import { isoTime } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { UNTRUSTED_TEXT_RULE } from '../core/untrusted-text.ts';
import type { Web } from './web/web.ts';
import type { ChatRequest } from './wire/chat-request.ts';
import { SVC_PARAMETER_DEFAULTS } from './wire/svc-parameters.ts';
import { AutoSearch } from './auto-search.ts';
import type { AdditionParts, AdditionsPlan, SocialSearch, WebWish } from './chat-additions.ts';
import type { ChatCall } from './chat-run.ts';
import type { ExtraPrices, ExtraUse } from './extra-uses.ts';
import { userText } from './message-content.ts';
import type { MessageFindings } from './paid-findings.ts';
import { prepareAdditions } from './prepare-additions.ts';

/** Fence, name and note around the text of a file. */
const FILE_FRAME_BYTES = 2_048;

/** By default nothing is added. */
const NOTHING_ADDED: AdditionsPlan = {
  systemPrompts: [],
  textBytesBound: 0,
  usesBound: [],
  prepare: undefined,
  autoSearch: undefined,
  socialSearch: undefined,
  paid: undefined,
};

/** Plans the additions of one request. Throws `CHARACTER_NOT_FOUND`. */
export function planAdditions(
  parts: AdditionParts,
  call: ChatCall,
  request: ChatRequest,
  model: CatalogModel,
): AdditionsPlan {
  const { facts } = request;
  const hasContent = facts.fileCount + facts.imageCount + facts.audioCount + facts.videoCount > 0;
  if (!hasContent && request.parameters === SVC_PARAMETER_DEFAULTS) return NOTHING_ADDED;
  const prices = pricesFor(parts.prices(), model);
  const wish = webWish(parts.web, request);
  const files = facts.fileCount * (3 * parts.maxFileChars + FILE_FRAME_BYTES);
  const pages = wish.urls.length === 0 ? 0 : parts.web.pagesBytes(wish.urls.length);
  const search = wish.query === '' ? 0 : parts.web.searchBytes;
  const hasWork = hasContent || pages + search > 0;
  const withRequest = { ...call, request };
  const mayFind = pages + search > 0 || request.parameters.enable_web_search === 'auto';
  const findings = mayFind ? parts.findings.of(call.caller.accountId, request.messages) : undefined;
  return {
    systemPrompts: [
      ...personaPrompt(parts, request),
      ...(facts.fileCount > 0 ? [UNTRUSTED_TEXT_RULE] : []),
    ],
    textBytesBound: files + pages + search,
    usesBound: usesOf(wish, prices),
    prepare: hasWork
      ? () => prepareAdditions({ parts, call: withRequest, model, wish, prices, findings })
      : undefined,
    autoSearch:
      wish.urls.length > 0 || findings === undefined
        ? undefined
        : autoSearch(parts, request, model, { prices, findings }),
    socialSearch: socialSearch(parts, request, prices),
    paid: findings === undefined ? undefined : () => findings.paid(),
  };
}

function personaPrompt(parts: AdditionParts, request: ChatRequest): string[] {
  const slug = request.parameters.character_slug;
  if (slug === undefined) return [];
  const persona = parts.personas.get(slug);
  if (persona !== undefined) return [persona.prompt];
  throw new Fault('CHARACTER_NOT_FOUND', {
    message: `There is no character "${slug.slice(0, 100)}"; see GET /characters`,
  });
}

const NO_WISH: WebWish = { urls: [], query: '' };

/** Pages that the user names come before a search; an engine's own search before both. */
function webWish(web: Web, request: ChatRequest): WebWish {
  const { enable_web_scraping, enable_web_search, enable_x_search } = request.parameters;
  const searches = enable_web_search === 'on';
  if (enable_x_search || !(enable_web_scraping || searches)) return NO_WISH;
  const text = userText(request.messages);
  const urls = enable_web_scraping ? web.urlsIn(text) : [];
  return { urls, query: urls.length === 0 && searches ? text.trim() : '' };
}

function usesOf(wish: WebWish, prices: ExtraPrices): ExtraUse[] {
  if (wish.urls.length > 0) {
    return [{ name: 'web_scraping', count: wish.urls.length, eachNano: prices.pageNano }];
  }
  return wish.query === '' ? [] : [{ name: 'web_search', count: 1, eachNano: prices.searchNano }];
}

function pricesFor(general: ExtraPrices, model: CatalogModel): ExtraPrices {
  const own = model.price?.perSearch;
  return own === undefined ? general : { ...general, searchNano: own };
}

/**
 * The tool is offered where the model can call it and nothing stands in its way: one choice, a
 * text answer, and no order to call or to leave the caller's own tools.
 */
function autoSearch(
  parts: AdditionParts,
  request: ChatRequest,
  model: CatalogModel,
  { prices, findings }: { readonly prices: ExtraPrices; readonly findings: MessageFindings },
): AutoSearch | undefined {
  const { parameters, toolChoice, responseFormat, choiceCount, tools } = request;
  if (parameters.enable_web_search !== 'auto' || parameters.enable_x_search) return undefined;
  if (!parts.web.canSearch || !model.capabilities.has('functionCalling')) return undefined;
  const isFree = (toolChoice ?? 'auto') === 'auto' && (responseFormat?.type ?? 'text') === 'text';
  if (!isFree || choiceCount > 1) return undefined;
  return new AutoSearch({
    web: parts.web,
    takenNames: tools.map((tool) => tool.function.name),
    asksForCitations: parameters.enable_web_citations,
    asksForDocuments: parameters.return_search_results_as_documents,
    today: isoTime(parts.clock.nowMs()).slice(0, 10),
    eachNano: prices.searchNano,
    findings,
  });
}

function socialSearch(
  parts: AdditionParts,
  request: ChatRequest,
  prices: ExtraPrices,
): SocialSearch | undefined {
  if (!request.parameters.enable_x_search) return undefined;
  const { maxResults, membersFor } = parts.socialSearch();
  return {
    bound: { name: 'x_search', count: maxResults, eachNano: prices.socialNano },
    membersFor,
  };
}
