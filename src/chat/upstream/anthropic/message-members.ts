/** Parts of messages of Anthropic's API, as an engine sends them or a caller receives them. */
import type { JsonObject } from '../../../json/json-scan.ts';
import { withoutNulls } from '../../../json/json-text.ts';
import { type OutputTally, textBytes } from '../../wire/chat-choice.ts';

/** Adds the output of a content block, in UTF-8 bytes. */
export function addBlock(tally: OutputTally, block: JsonObject): void {
  const { type, text, thinking, name, input } = block;
  if (type === 'text') tally.contentBytes += textBytes(text);
  else if (type === 'thinking') tally.reasoningBytes += textBytes(thinking);
  else if (type === 'tool_use') {
    tally.toolBytes += textBytes(name) + textBytes(JSON.stringify(input ?? {}));
  }
}

/** The counts of `message_delta` are totals; members that it lacks stay. */
export function mergedUsage(before: JsonObject, usage: JsonObject): JsonObject {
  return { ...before, ...withoutNulls(usage) };
}

/** The annotation of a chat for a citation; one without a URL, such as a page, keeps its members. */
export function annotationOf(citation: JsonObject, start: number, end: number): JsonObject {
  const { url, title, cited_text: content } = citation;
  const span = { start_index: start, end_index: end };
  if (typeof url !== 'string') return { ...citation, ...span };
  return { type: 'url_citation', url_citation: { url, title, content, ...span } };
}

export const MESSAGE_STOP = messageEvent('message_stop', {});

/** An event of the stream of a message. */
export function messageEvent(type: string, members: object): string {
  return `event: ${type}\ndata: ${JSON.stringify({ type, ...members })}\n\n`;
}
