/**
 * Texts for the model: search results and pages as delimited data, rules for citations, and the
 * search tool.
 */
import {
  delimitUntrusted,
  UNTRUSTED_TEXT_RULE,
  singleLineLabel,
} from '../../core/untrusted-text.ts';
import { isJsonObject } from '../../json/json-scan.ts';
import { parsedJson } from '../../json/json-text.ts';
import type { SearchOutcome } from './search.ts';
import { RESULT_BYTES, type SearchResult } from './search-results.ts';

export const MAX_AUTO_SEARCHES = 3;

export type ScrapedPage =
  | {
      readonly ok: true;
      readonly url: string;
      readonly title: string;
      readonly markdown: string;
      readonly truncated: boolean;
    }
  | { readonly ok: false; readonly url: string; readonly reason: string };

interface SearchPromptOptions {
  readonly citations: boolean;
  /** `YYYY-MM-DD`. */
  readonly today: string;
  /**
   * Number of sources of earlier searches, so that `[REF]` numbers are indexes of all citations.
   */
  readonly firstSource?: number;
}

const CITE =
  'Cite the sources you use: directly after a statement write [REF]N[/REF], where N is the number ' +
  'of the source, for example [REF]0[/REF]. Use one such mark for each source and never a number ' +
  'that is not listed.';

export function searchPrompt(
  results: readonly SearchResult[],
  options: SearchPromptOptions,
): string {
  const head = `Today is ${options.today}. A web search was made for the user's message.`;
  return results.length === 0 ? `${head} It found nothing.` : foundText(head, results, options);
}

function foundText(
  head: string,
  results: readonly SearchResult[],
  { citations, firstSource = 0 }: SearchPromptOptions,
): string {
  const rules = [head, UNTRUSTED_TEXT_RULE, ...(citations ? [CITE] : [])].join(' ');
  const sources = results.map(({ title, url, content, date }, at) => {
    const number = firstSource + at;
    const dated = date === undefined ? '' : `\nDate: ${date}`;
    const text = `Title: ${title}\nURL: ${url}${dated}\n\n${content}`;
    return `Source ${number}:\n${delimitUntrusted(text, `search result ${number}`)}`;
  });
  return [rules, ...sources].join('\n\n');
}

export function pagesPrompt(pages: readonly ScrapedPage[]): string {
  const parts = pages.map((page) => {
    if (!page.ok) {
      return `The page ${singleLineLabel(page.url)} could not be read: ${singleLineLabel(page.reason)}.`;
    }
    const note = page.truncated ? '\n[The rest of the page was left out: it is too long]' : '';
    const content = `Title: ${page.title}\n\n${page.markdown}`;
    return `${delimitUntrusted(content, `page ${page.url}`)}${note}`;
  });
  return [`These pages are named in the user's message. ${UNTRUSTED_TEXT_RULE}`, ...parts].join(
    '\n\n',
  );
}

/** Rules before the texts, and the frame of each item, with a margin. */
const RULES_BYTES = 4_096;
const FRAME_BYTES = 4_096;

export function searchTextBytes(maxResults: number): number {
  return RULES_BYTES + maxResults * (RESULT_BYTES + FRAME_BYTES);
}

export function pagesTextBytes(count: number, maxCharsPerPage: number): number {
  return RULES_BYTES + count * (3 * maxCharsPerPage + FRAME_BYTES);
}

export function webSearchTool(takenNames: readonly string[]) {
  let name = 'web_search';
  for (let number = 2; takenNames.includes(name); number++) name = `web_search_${number}`;
  return {
    type: 'function' as const,
    function: {
      name,
      description:
        'Searches the web. Use it for recent events, changing facts, and anything you are not sure ' +
        'of; do not use it for what you know well.',
      parameters: {
        type: 'object',
        properties: {
          query: { type: 'string', description: 'What to type into a search engine, in few words' },
        },
        required: ['query'],
        additionalProperties: false,
      },
    },
  };
}

export function readSearchCall(
  argumentsJson: string,
): { readonly ok: true; readonly query: string } | { readonly ok: false; readonly reason: string } {
  const parsed = parsedJson(argumentsJson);
  // The model receives the reason and can try again.
  if (parsed === undefined) return { ok: false, reason: 'The arguments are not JSON' };
  const query = isJsonObject(parsed) ? parsed['query'] : undefined;
  if (typeof query !== 'string' || query.trim() === '') {
    return { ok: false, reason: 'The argument `query` must be a non-empty string' };
  }
  return { ok: true, query: query.trim() };
}

export function searchToolMessage(
  callId: string,
  outcome: SearchOutcome,
  options: SearchPromptOptions,
) {
  let content = 'The search found nothing.';
  if (!outcome.ok) {
    content = `The search failed: ${outcome.reason}. Answer without it and say so.`;
  } else if (outcome.results.length > 0) {
    content = foundText(`Today is ${options.today}.`, outcome.results, options);
  }
  return { role: 'tool' as const, tool_call_id: callId, content };
}
