/** Reasoning of this protocol as `reasoning_details` of a chat, which sends it back unchanged. */
import type { JsonObject } from '../../../json/json-scan.ts';
import { stringOrEmpty } from '../../../json/json-text.ts';
import type { ReasoningDetail } from '../../wire/chat-choice.ts';

export const REASONING_FORMAT = 'anthropic-claude-v1';

export function signedReasoning(text: string, signature: string, index = 0): ReasoningDetail {
  return { type: 'reasoning.text', text, signature, format: REASONING_FORMAT, index };
}

export function encryptedReasoning(data: string, index = 0): ReasoningDetail {
  return { type: 'reasoning.encrypted', data, format: REASONING_FORMAT, index };
}

/** A block of a message; `undefined` if it has no signature. */
export function reasoningDetail(block: JsonObject, index = 0): ReasoningDetail | undefined {
  const { type, thinking, signature, data } = block;
  if (type === 'redacted_thinking') {
    return typeof data === 'string' ? encryptedReasoning(data, index) : undefined;
  }
  if (typeof signature !== 'string' || signature === '') return undefined;
  return signedReasoning(stringOrEmpty(thinking), signature, index);
}
