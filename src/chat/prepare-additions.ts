/**
 * The work of a plan, after the hold: content is loaded while the web is asked, and what was found
 * goes into the messages. Uses are what really happened; a search or page that failed is free.
 */
import type { CatalogModel } from '../catalog/catalog.ts';
import { isoTime } from '../core/clock.ts';
import { citationsOf, documentsOf, pagesPrompt, searchPrompt } from './web/web.ts';
import type { AdditionParts, PreparedAdditions, WebWish } from './chat-additions.ts';
import type { ChatCall } from './chat-run.ts';
import type { ExtraPrices } from './extra-uses.ts';
import type { MessageFindings } from './paid-findings.ts';
import { type LoadedContent, loadContent, withContext } from './message-content.ts';

export interface PrepareInputs {
  readonly parts: AdditionParts;
  readonly call: ChatCall;
  readonly model: CatalogModel;
  readonly wish: WebWish;
  readonly prices: ExtraPrices;
  /** Absent where nothing is searched or read. */
  readonly findings: MessageFindings | undefined;
}

type WebFindings = Omit<PreparedAdditions, 'messages' | 'textBytes'> & { readonly text: string };

const NO_FINDINGS: WebFindings = { text: '', citations: [], documents: undefined, uses: [] };

/** Runs a plan. Throws the Faults of media and files, or the reason of an abort. */
export async function prepareAdditions(inputs: PrepareInputs): Promise<PreparedAdditions> {
  const failed = new AbortController();
  const signal = AbortSignal.any([inputs.call.signal, failed.signal]);
  try {
    const [content, findings] = await Promise.all([
      contentOf(inputs, signal),
      findingsOf(inputs, signal),
    ]);
    return together(inputs.call, content, findings);
  } catch (error) {
    // What still runs beside the part that failed is of no use to anybody.
    failed.abort();
    throw error;
  }
}

function together(
  call: ChatCall,
  content: LoadedContent,
  { text, ...found }: WebFindings,
): PreparedAdditions {
  const messages = text === '' ? content.messages : withContext(content.messages, text);
  const given = call.request.messages;
  const isSame = messages.every((message, at) => message === given[at]);
  return {
    ...found,
    messages: isSame ? undefined : messages,
    textBytes: content.textBytes + Buffer.byteLength(text),
  };
}

async function contentOf(inputs: PrepareInputs, signal: AbortSignal): Promise<LoadedContent> {
  const { parts, call, model } = inputs;
  return loadContent({
    messages: call.request.messages,
    model,
    documents: parts.documents,
    media: parts.media,
    engineFetches: model.replicas.every((replica) => parts.fetchesMedia(replica.engine)),
    signal,
    caller: call.caller.accountId,
  });
}

async function findingsOf(inputs: PrepareInputs, signal: AbortSignal): Promise<WebFindings> {
  const { parts, call, wish, prices, findings } = inputs;
  const { web } = parts;
  if (wish.urls.length > 0) {
    const query = wish.urls.join(' ');
    const known = findings?.known(query)?.pages;
    const pages = known ?? (await web.scrape(wish.urls, { signal, caller: call.caller.accountId }));
    const count = known === undefined ? pages.filter((page) => page.ok).length : 0;
    if (count > 0) findings?.found(query, { pages });
    const use = { name: 'web_scraping' as const, count, eachNano: prices.pageNano };
    return { ...NO_FINDINGS, text: pagesPrompt(pages), uses: [use] };
  }
  if (wish.query === '') return NO_FINDINGS;
  const known = findings?.known(wish.query)?.results;
  const outcome = known === undefined ? await web.search(wish.query, { signal }) : undefined;
  if (outcome?.ok === false) return NO_FINDINGS;
  const results = known ?? outcome?.results ?? [];
  if (known === undefined) findings?.found(wish.query, { results });
  const { parameters } = call.request;
  const asksForDocuments = parameters.return_search_results_as_documents && results.length > 0;
  return {
    text: searchPrompt(results, {
      citations: parameters.enable_web_citations,
      today: isoTime(parts.clock.nowMs()).slice(0, 10),
    }),
    citations: citationsOf(results),
    documents: asksForDocuments ? documentsOf(results) : undefined,
    uses: [{ name: 'web_search', count: known === undefined ? 1 : 0, eachNano: prices.searchNano }],
  };
}
