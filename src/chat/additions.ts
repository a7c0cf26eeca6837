/**
 * Adds to a chat request what the service provides: persona, search results, scraped pages, texts
 * of files, inlined media. Planning costs nothing and yields bounds for the hold; preparing runs
 * after the hold. Failed searches and pages are free.
 */
import type { CatalogModel } from '../catalog/catalog.ts';
import { type Clock, isoTime } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { UNTRUSTED_TEXT_RULE } from '../core/untrusted-text.ts';
import type { Documents, MediaSettings } from '../documents/documents.ts';
import type { JsonObject } from '../json/json-scan.ts';
import { AutoSearch } from './auto-search.ts';
import type { ExtraPrices, ExtraUse } from './chat-bill.ts';
import type { AdditionBounds } from './chat-bounds.ts';
import { type LoadedContent, loadContent, userText, withContext } from './message-content.ts';
import type { MessageResults, PaidResults } from './paid-results.ts';
import type { Personas } from './personas/personas.ts';
import {
  documentsOf,
  type FoundDocument,
  pagesPrompt,
  searchPrompt,
  type SearchResult,
  type Web,
} from './web/web.ts';
import type { ChatRequest } from './wire/chat-request.ts';
import type { ChatMessage } from './wire/chat-schema.ts';
import { SVC_PARAMETER_DEFAULTS } from './wire/svc-parameters.ts';

export interface AdditionParts {
  readonly personas: Pick<Personas, 'get'>;
  readonly web: Web;
  readonly documents: Pick<Documents, 'extract'>;
  readonly media: MediaSettings;
  readonly paidResults: PaidResults;
  readonly clock: Clock;
  readonly prices: () => ExtraPrices;
  readonly maxFileChars: number;
  readonly fetchesMedia: (engineId: string) => boolean;
  readonly socialSearch: () => {
    readonly maxResults: number;
    readonly membersFor: (engineId: string) => JsonObject;
  };
}

export interface AdditionInputs {
  readonly request: ChatRequest;
  readonly model: CatalogModel;
  readonly accountId: string;
  readonly signal: AbortSignal;
  /** As `MediaContext.reserve`. */
  readonly reserve: (totalBytes: number) => Fault | undefined;
  /** Default: the limit of the server. */
  readonly maxSearches?: number | undefined;
}

export interface AdditionsPlan extends AdditionBounds {
  readonly systemPrompts: readonly string[];
  /** `undefined` if there is nothing to do. Throws Faults, or the reason of an abort. */
  readonly prepare: (() => Promise<PreparedAdditions>) | undefined;
  readonly autoSearch: AutoSearch | undefined;
  readonly socialSearch: SocialSearch | undefined;
  /** Called when the request is charged; `undefined` if nothing can be found. */
  readonly paid: (() => void) | undefined;
}

interface SocialSearch {
  readonly bound: ExtraUse;
  readonly membersFor: (engineId: string) => JsonObject;
}

export interface PreparedAdditions {
  readonly messages: readonly ChatMessage[] | undefined;
  readonly textBytes: number;
  readonly citations: readonly SearchResult[];
  readonly documents: readonly FoundDocument[] | undefined;
  readonly uses: readonly ExtraUse[];
}

export const NOTHING_PREPARED: PreparedAdditions = {
  messages: undefined,
  textBytes: 0,
  citations: [],
  documents: undefined,
  uses: [],
};

export const NOTHING_ADDED: AdditionsPlan = {
  systemPrompts: [],
  textBytesBound: 0,
  usesBound: [],
  prepare: undefined,
  autoSearch: undefined,
  socialSearch: undefined,
  paid: undefined,
};

const FILE_FRAME_BYTES = 2_048;

interface WebQuestion {
  readonly urls: readonly string[];
  /** Empty if there is no search before the completion. */
  readonly query: string;
}

const NO_QUESTION: WebQuestion = { urls: [], query: '' };

interface Addition extends AdditionInputs {
  readonly parts: AdditionParts;
  readonly prices: ExtraPrices;
  readonly question: WebQuestion;
  /** `undefined` if nothing is searched or scraped. */
  readonly paidResults: MessageResults | undefined;
}

/** Plans without I/O. Throws `CHARACTER_NOT_FOUND`. */
export function planAdditions(parts: AdditionParts, inputs: AdditionInputs): AdditionsPlan {
  const { request, model, accountId } = inputs;
  const { facts, parameters } = request;
  const hasContent = facts.fileCount + facts.imageCount + facts.audioCount + facts.videoCount > 0;
  if (!hasContent && parameters === SVC_PARAMETER_DEFAULTS) return NOTHING_ADDED;
  const general = parts.prices();
  const prices = { ...general, searchNano: model.price?.perSearch ?? general.searchNano };
  const question = questionOf(parts.web, request);
  const { urls, query } = question;
  const files = facts.fileCount * (3 * parts.maxFileChars + FILE_FRAME_BYTES);
  const pages = urls.length === 0 ? 0 : parts.web.pagesBytes(urls.length);
  const search = query === '' ? 0 : parts.web.searchBytes;
  const mayFind = pages + search > 0 || parameters.enable_web_search === 'auto';
  const paidResults = mayFind ? parts.paidResults.of(accountId, request.messages) : undefined;
  const addition: Addition = { ...inputs, parts, prices, question, paidResults };
  const hasWork = hasContent || pages + search > 0;
  return {
    systemPrompts: [
      ...personaPrompt(parts, request),
      ...(facts.fileCount > 0 ? [UNTRUSTED_TEXT_RULE] : []),
    ],
    textBytesBound: files + pages + search,
    usesBound: urls.length + query.length === 0 ? [] : [webUse(addition, urls.length || 1)],
    prepare: hasWork ? () => prepareAdditions(addition) : undefined,
    autoSearch: urls.length > 0 ? undefined : autoSearch(addition),
    socialSearch: parameters.enable_x_search ? socialSearch(parts, prices) : undefined,
    paid: paidResults === undefined ? undefined : () => paidResults.paid(),
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

/** Scraping has priority over a search; the engine's own search over both. */
function questionOf(web: Web, request: ChatRequest): WebQuestion {
  const { enable_web_scraping, enable_web_search, enable_x_search } = request.parameters;
  const searches = enable_web_search === 'on';
  if (enable_x_search || !(enable_web_scraping || searches)) return NO_QUESTION;
  const text = userText(request.messages);
  const urls = enable_web_scraping ? web.urlsIn(text) : [];
  return { urls, query: urls.length === 0 && searches ? text.trim() : '' };
}

function webUse({ question, prices }: Addition, count: number): ExtraUse {
  return question.urls.length > 0
    ? { name: 'web_scraping', count, eachNano: prices.pageNano }
    : { name: 'web_search', count, eachNano: prices.searchNano };
}

/**
 * The tool is offered to models with tool calls, for one choice of text and with a free
 * `tool_choice`.
 */
function autoSearch(addition: Addition): AutoSearch | undefined {
  const { parts, request, model, prices, paidResults, maxSearches } = addition;
  const { parameters, toolChoice, responseFormat, choiceCount } = request;
  if (paidResults === undefined) return undefined;
  if (parameters.enable_web_search !== 'auto' || parameters.enable_x_search) return undefined;
  if (!parts.web.canSearch || !model.capabilities.has('functionCalling')) return undefined;
  const isFree = (toolChoice ?? 'auto') === 'auto' && (responseFormat?.type ?? 'text') === 'text';
  if (!isFree || choiceCount > 1) return undefined;
  return new AutoSearch({
    web: parts.web,
    request,
    today: isoTime(parts.clock.nowMs()).slice(0, 10),
    eachNano: prices.searchNano,
    paidResults,
    maxSearches,
  });
}

function socialSearch(parts: AdditionParts, { socialNano }: ExtraPrices): SocialSearch {
  const { maxResults, membersFor } = parts.socialSearch();
  return { bound: { name: 'x_search', count: maxResults, eachNano: socialNano }, membersFor };
}

type WebFindings = Omit<PreparedAdditions, 'messages' | 'textBytes'> & { readonly text: string };

const NO_FINDINGS: WebFindings = { text: '', citations: [], documents: undefined, uses: [] };

/**
 * Loads content and searches the web concurrently. Throws the Faults of media and files, or the
 * reason of an abort.
 */
async function prepareAdditions(addition: Addition): Promise<PreparedAdditions> {
  const failed = new AbortController();
  const signal = AbortSignal.any([addition.signal, failed.signal]);
  try {
    const [content, { text, ...found }] = await Promise.all([
      contentOf(addition, signal),
      findingsOf(addition, signal),
    ]);
    const messages = text === '' ? content.messages : withContext(content.messages, text);
    const given = addition.request.messages;
    const isSame = messages.every((message, at) => message === given[at]);
    const textBytes = content.textBytes + Buffer.byteLength(text);
    return { ...found, messages: isSame ? undefined : messages, textBytes };
  } catch (error) {
    failed.abort();
    throw error;
  }
}

async function contentOf(addition: Addition, signal: AbortSignal): Promise<LoadedContent> {
  const { parts, request, model, accountId, reserve } = addition;
  return loadContent({
    messages: request.messages,
    model,
    documents: parts.documents,
    media: parts.media,
    keepsFiles: request.keepsFiles === true,
    reserve,
    engineFetches: model.replicas.every((replica) => parts.fetchesMedia(replica.engine)),
    signal,
    caller: accountId,
  });
}

async function findingsOf(addition: Addition, signal: AbortSignal): Promise<WebFindings> {
  const { parts, request, question, paidResults, accountId } = addition;
  const { urls, query } = question;
  if (urls.length > 0) {
    const asked = urls.join(' ');
    const known = paidResults?.known(asked)?.pages;
    const pages = known ?? (await parts.web.scrape(urls, { signal, caller: accountId }));
    const count = known === undefined ? pages.filter((page) => page.ok).length : 0;
    if (count > 0) paidResults?.found(asked, { pages });
    return { ...NO_FINDINGS, text: pagesPrompt(pages), uses: [webUse(addition, count)] };
  }
  if (query === '') return NO_FINDINGS;
  const known = paidResults?.known(query)?.results;
  const outcome = known === undefined ? await parts.web.search(query, signal) : undefined;
  if (outcome?.ok === false) return NO_FINDINGS;
  const results = known ?? outcome?.results ?? [];
  if (known === undefined) paidResults?.found(query, { results });
  const { return_search_results_as_documents, enable_web_citations } = request.parameters;
  const asksForDocuments = return_search_results_as_documents && results.length > 0;
  return {
    text: searchPrompt(results, {
      citations: enable_web_citations,
      today: isoTime(parts.clock.nowMs()).slice(0, 10),
    }),
    citations: results,
    documents: asksForDocuments ? documentsOf(results) : undefined,
    uses: [webUse(addition, known === undefined ? 1 : 0)],
  };
}
