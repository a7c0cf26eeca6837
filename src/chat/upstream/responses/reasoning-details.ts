/**
 * Reasoning items as `reasoning_details` of a chat message, in the form of OpenRouter, and back:
 * summaries, raw text, and the encrypted reasoning that only its provider can read.
 */
import type { JsonObject } from '../../../json/json-scan.ts';
import { jsonObjects } from '../../../json/json-text.ts';

/** Names the provider of a detail, because others reject what they cannot decrypt. */
const FORMAT = 'openai-responses-v1';
const KNOWN_FORMAT = /-responses-v1$/;

/** `index`: the number of details before these. */
export function detailsOf(item: JsonObject, index: number): JsonObject[] {
  const { id, encrypted_content: data } = item;
  const details: JsonObject[] = [
    ...textsOf(item['summary']).map((summary) => ({ type: 'reasoning.summary', summary })),
    ...textsOf(item['content']).map((text) => ({ type: 'reasoning.text', text })),
  ];
  if (typeof data === 'string' && data !== '') details.push({ type: 'reasoning.encrypted', data });
  const source = typeof id === 'string' ? { id, format: FORMAT } : { format: FORMAT };
  return details.map((detail, at) => ({ ...detail, ...source, index: index + at }));
}

/** The text of a reasoning item, for `reasoning_content`. */
export function reasoningText(item: JsonObject): string {
  return [...textsOf(item['summary']), ...textsOf(item['content'])].join('\n\n');
}

/** Adjacent details with one id are one item; details of other protocols are left out. */
export function reasoningItems(details: unknown): JsonObject[] {
  const items: { id: unknown; summary: JsonObject[]; content: JsonObject[]; data: unknown }[] = [];
  for (const { type, id, format, summary, text, data } of jsonObjects(details)) {
    if (typeof format !== 'string' || !KNOWN_FORMAT.test(format)) continue;
    let item = items.at(-1);
    if (item === undefined || item.id !== id || item.data !== undefined) {
      item = { id, summary: [], content: [], data: undefined };
      items.push(item);
    }
    if (type === 'reasoning.summary') item.summary.push({ type: 'summary_text', text: summary });
    else if (type === 'reasoning.text') item.content.push({ type: 'reasoning_text', text });
    else if (type === 'reasoning.encrypted') item.data = data;
  }
  // The engine does not store items, so one without content to decrypt or read means nothing to it.
  return items.flatMap(({ id, summary, content, data }) => {
    if (data === undefined && content.length === 0) return [];
    return [
      {
        type: 'reasoning',
        ...(typeof id === 'string' ? { id } : {}),
        summary,
        ...(content.length === 0 ? {} : { content }),
        ...(data === undefined ? {} : { encrypted_content: data }),
      },
    ];
  });
}

function textsOf(parts: unknown): string[] {
  return jsonObjects(parts).flatMap(({ text }) => (typeof text === 'string' ? [text] : []));
}
