/**
 * Parsing JSON that somebody else wrote, without exceptions for what is not JSON.
 */

/** Whether a parsed value is an object, and no array. */
export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The object that the text encodes, or null when it encodes something else or nothing. */
export function parseObject(text: string): Record<string, unknown> | null {
  const value = parseJson(text);
  return isRecord(value) ? value : null;
}

/** The value that the text encodes, or undefined when it is not JSON. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // not JSON: the caller decides what that means
  }
}
