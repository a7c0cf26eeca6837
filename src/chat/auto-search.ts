/**
 * `enable_web_search: auto`: offers the model a search tool and runs its calls, which never reach
 * the caller.
 */
import {
  documentsOf,
  type FoundDocument,
  MAX_AUTO_SEARCHES,
  readSearchCall,
  type SearchOutcome,
  type SearchResult,
  searchToolMessage,
  type Web,
  webSearchTool,
} from './web/web.ts';
import type { ChatRequest } from './wire/chat-request.ts';
import type { ChatMessage, ChatTool } from './wire/chat-schema.ts';
import { type SearchCall, searchRoundMessage, type SearchRound } from './wire/search-calls.ts';
import type { ExtraUse } from './chat-bill.ts';
import type { SearchOffer } from './chat-bounds.ts';
import type { MessageResults } from './paid-results.ts';

interface AutoSearchOptions {
  readonly web: Web;
  readonly request: ChatRequest;
  readonly today: string;
  readonly eachNano: ExtraUse['eachNano'];
  readonly paidResults: MessageResults;
  readonly maxSearches: number | undefined;
}

export interface RequestedSearch {
  readonly query: string;
  readonly results: readonly SearchResult[] | undefined;
}

const NO_MORE: SearchOutcome = { ok: false, reason: 'No more searches are allowed' };

export class AutoSearch implements SearchOffer {
  readonly tool: ChatTool;
  readonly searchBytes: number;
  readonly #options: AutoSearchOptions;
  readonly searches: RequestedSearch[] = [];
  readonly #maxSearches: number;
  readonly results: SearchResult[] = [];
  readonly messages: ChatMessage[] = [];
  messageBytes = 0;
  #requested = 0;
  #billed = 0;

  constructor(options: AutoSearchOptions) {
    this.#options = options;
    this.tool = webSearchTool(options.request.tools.map((tool) => tool.function.name));
    this.searchBytes = options.web.searchBytes;
    this.#maxSearches = Math.min(options.maxSearches ?? MAX_AUTO_SEARCHES, MAX_AUTO_SEARCHES);
  }

  get toolName(): string {
    return this.tool.function.name;
  }

  get searchesLeft(): number {
    return this.#maxSearches - this.#requested;
  }

  get documents(): readonly FoundDocument[] | undefined {
    const { return_search_results_as_documents } = this.#options.request.parameters;
    const isAsked = return_search_results_as_documents && this.results.length > 0;
    return isAsked ? documentsOf(this.results) : undefined;
  }

  get use(): ExtraUse {
    return { name: 'web_search', count: this.#billed, eachNano: this.#options.eachNano };
  }

  cost(searches: number): ExtraUse {
    return { ...this.use, count: searches };
  }

  /** Runs the calls of one round, at most `allowed` of them. Rejects on abort. */
  async search(round: SearchRound, allowed: number, signal: AbortSignal): Promise<void> {
    const { calls } = round;
    const started = calls.slice(0, allowed).map((call) => this.#outcomeOf(call, signal));
    const outcomes = await Promise.all(started);
    this.#requested += Math.min(calls.length, allowed);
    for (const [at, outcome] of outcomes.entries()) {
      const results = outcome.ok ? outcome.results : undefined;
      this.searches.push({ query: queryOf(calls[at]), results });
    }
    const results = calls.map((call, at) => this.#resultMessage(call, outcomes[at] ?? NO_MORE));
    for (const message of [searchRoundMessage(round), ...results]) {
      this.messages.push(message);
      this.messageBytes += Buffer.byteLength(JSON.stringify(message));
    }
  }

  async #outcomeOf(call: SearchCall, signal: AbortSignal): Promise<SearchOutcome> {
    const read = readSearchCall(call.arguments);
    if (!read.ok) return read;
    const { query } = read;
    const { web, paidResults } = this.#options;
    const known = paidResults.known(query)?.results;
    if (known !== undefined) return { ok: true, query, results: known };
    const outcome = await web.search(query, signal);
    if (!outcome.ok) return outcome;
    // Equal calls that ran concurrently are billed once.
    if (paidResults.known(query) === undefined) {
      this.#billed += 1;
      paidResults.found(query, { results: outcome.results });
    }
    return outcome;
  }

  #resultMessage(call: SearchCall, outcome: SearchOutcome): ChatMessage {
    const { request, today } = this.#options;
    const citations = request.parameters.enable_web_citations;
    const firstSource = this.results.length;
    if (outcome.ok) this.results.push(...outcome.results);
    return { ...searchToolMessage(call.id, outcome, { citations, today, firstSource }) };
  }
}

export function queryOf(call: SearchCall | undefined): string {
  const read = call === undefined ? undefined : readSearchCall(call.arguments);
  return read?.ok === true ? read.query : '';
}
