/**
 * Parses JSON of untrusted origin that may be invalid: engine responses, model output, headers.
 * Also writes bodies for engines. Request bodies are parsed by `json-scan.ts`, which rejects them
 * with an error message.
 */
import { isJsonObject, type JsonObject } from './json-scan.ts';

export function parsedJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // The parser's message quotes the text; the caller decides what a missing value means.
    return undefined;
  }
}

/** Returns the object of a JSON text; `undefined` if it is invalid or another kind of value. */
export function parsedJsonObject(text: string): JsonObject | undefined {
  const value = parsedJson(text);
  return isJsonObject(value) ? value : undefined;
}

/** Serializes an object without its null members, which some engines reject. */
export function jsonWithoutNulls(fields: JsonObject): Buffer {
  const known = Object.entries(fields).filter(([, value]) => value !== null);
  return Buffer.from(JSON.stringify(Object.fromEntries(known)));
}
