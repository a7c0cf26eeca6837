/**
 * JSON that somebody else wrote and that need not be any: what an engine said, what a model wrote, what
 * a header holds; and bodies for engines. A body of a caller is read by `json-scan.ts`, which refuses it in words.
 */
import { isJsonObject, type JsonObject } from './json-scan.ts';

/** The value of a JSON text; `undefined` for what is no JSON. */
export function parsedJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // The parser's words quote the text; what it means that there is none is for who asked.
    return undefined;
  }
}

/** The object of a JSON text; `undefined` for any other value, and for what is no JSON. */
export function parsedJsonObject(text: string): JsonObject | undefined {
  const value = parsedJson(text);
  return isJsonObject(value) ? value : undefined;
}

/** An object as JSON without the members that are null, which not every engine takes for absent. */
export function jsonWithoutNulls(fields: JsonObject): Buffer {
  const known = Object.entries(fields).filter(([, value]) => value !== null);
  return Buffer.from(JSON.stringify(Object.fromEntries(known)));
}
