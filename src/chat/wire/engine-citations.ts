/**
 * Reads the results of an engine's own search: a list of URLs (xAI), results with titles
 * (Perplexity and others), or annotations of a message.
 */
import { isJsonObject, type JsonObject } from '../../json/json-scan.ts';
import type { RawResult } from '../web/web.ts';

const MAX_READ = 1_024;
const LISTS = ['search_results', 'search_sources', 'citations'];

export const NOTHING_CITED: readonly RawResult[] = [];

export function citedBy(answer: JsonObject, before = NOTHING_CITED): readonly RawResult[] {
  const cited = [...before];
  for (const name of LISTS) addAll(cited, answer[name]);
  const { choices } = answer;
  if (!Array.isArray(choices)) return cited;
  for (const choice of choices) {
    if (!isJsonObject(choice)) continue;
    const message = choice['message'] ?? choice['delta'];
    if (isJsonObject(message)) addAll(cited, message['annotations']);
  }
  return cited;
}

function addAll(to: RawResult[], list: unknown): void {
  if (!Array.isArray(list)) return;
  for (const item of list as readonly unknown[]) {
    if (to.length >= MAX_READ) return;
    const found = resultOf(item);
    if (found !== undefined) to.push(found);
  }
}

function resultOf(item: unknown): RawResult | undefined {
  if (typeof item === 'string') return { url: item, title: '', content: '', date: undefined };
  if (!isJsonObject(item)) return undefined;
  const inner = isJsonObject(item['url_citation']) ? item['url_citation'] : item;
  const { url, title, content, snippet, date, published_at } = inner;
  return { url, title, content: content ?? snippet, date: date ?? published_at };
}
