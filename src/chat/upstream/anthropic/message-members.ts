/** Reads and changes members of messages of Anthropic's API. */
import { childrenOf, type JsonObject } from '../../../json/json-scan.ts';
import { withMembers } from '../../../json/json-splice.ts';
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

/** Returns the JSON object with these members replaced; those that are `undefined` are removed. */
export function withChanged(bytes: Buffer, body: JsonObject, changed: JsonObject): Buffer {
  const texts = Object.entries(changed).map(([name, value]) => [
    name,
    value === undefined ? undefined : `${JSON.stringify(name)}:${JSON.stringify(value)}`,
  ]);
  return withMembers({ bytes, body, members: childrenOf(bytes).spans }, Object.fromEntries(texts));
}
