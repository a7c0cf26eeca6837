/**
 * Reads JSON of untrusted origin that may be invalid: engine responses, model output, headers.
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

/** Returns the objects of a list; none for any other value. */
export function jsonObjects(value: unknown): readonly JsonObject[] {
  return Array.isArray(value) ? value.filter(isJsonObject) : [];
}

/** Returns a string; an empty one for any other value. */
export function stringOrEmpty(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

/** Leaves null members out, which mean absent; returns the same object if there are none. */
export function withoutNulls(given: JsonObject): JsonObject {
  if (!Object.values(given).includes(null)) return given;
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== null));
}

/** Serializes an object without its null members, which some engines reject. */
export function jsonWithoutNulls(fields: JsonObject): Buffer {
  return Buffer.from(JSON.stringify(withoutNulls(fields)));
}
