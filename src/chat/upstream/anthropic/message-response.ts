/** Converts a message of Anthropic's API to a chat completion. */
import type { JsonObject } from '../../../json/json-scan.ts';
import { jsonObjects, stringOrEmpty } from '../../../json/json-text.ts';
import { annotationOf } from './message-members.ts';
import { reasoningDetail } from './reasoning.ts';

/** Returns `undefined` if the body is no message. */
export function completionOfMessage(body: JsonObject): JsonObject | undefined {
  const { content: blocks, stop_reason, stop_sequence, usage } = body;
  if (body['type'] !== 'message' || !Array.isArray(blocks)) return undefined;
  let content = '';
  let reasoning = '';
  const reasoning_details: JsonObject[] = [];
  const tool_calls: JsonObject[] = [];
  const annotations: JsonObject[] = [];
  for (const block of jsonObjects(blocks)) {
    switch (block['type']) {
      case 'text': {
        const start = content.length;
        content += stringOrEmpty(block['text']);
        for (const citation of jsonObjects(block['citations'])) {
          annotations.push(annotationOf(citation, start, content.length));
        }
        break;
      }
      case 'thinking':
      case 'redacted_thinking': {
        reasoning += stringOrEmpty(block['thinking']);
        const detail = reasoningDetail(block, reasoning_details.length);
        if (detail !== undefined) reasoning_details.push(detail);
        break;
      }
      case 'tool_use': {
        const made = { name: block['name'], arguments: JSON.stringify(block['input'] ?? {}) };
        tool_calls.push({ id: block['id'], type: 'function', function: made });
      }
    }
  }
  const message = {
    role: 'assistant',
    content: content === '' && tool_calls.length > 0 ? null : content,
    reasoning_content: reasoning === '' ? null : reasoning,
    tool_calls,
    ...(reasoning_details.length === 0 ? {} : { reasoning_details }),
    ...(annotations.length === 0 ? {} : { annotations }),
  };
  const choice = {
    index: 0,
    message,
    logprobs: null,
    finish_reason: stop_reason,
    stop_reason: stop_sequence ?? null,
  };
  return { choices: [choice], usage };
}
