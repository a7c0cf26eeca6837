/** Reasoning of this protocol as `reasoning_details` of a chat, which sends it back unchanged. */
import { isJsonObject, type JsonObject } from '../../../json/json-scan.ts';

export const REASONING_FORMAT = 'anthropic-claude-v1';

export function signedReasoning(text: string, signature: string, index = 0): JsonObject {
  return { type: 'reasoning.text', text, signature, format: REASONING_FORMAT, index };
}

export function encryptedReasoning(data: string, index = 0): JsonObject {
  return { type: 'reasoning.encrypted', data, format: REASONING_FORMAT, index };
}

export function detailsOf({ reasoning_details: details }: JsonObject): readonly JsonObject[] {
  return Array.isArray(details) ? details.filter(isJsonObject) : [];
}
