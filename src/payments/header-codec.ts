/** x402 header values: base64 (standard alphabet) of UTF-8 JSON, bounded when decoded. */
import { parsedJsonObject } from '../json/json-text.ts';

/** A payment header with the echoed extensions is under 4 KB; Node bounds all headers to 16 KB. */
const MAX_HEADER_CHARS = 12_288;
const BASE64 = /^[A-Za-z0-9+/_-]+={0,2}$/;

export function encodeHeader(value: unknown): string {
  return Buffer.from(JSON.stringify(value), 'utf8').toString('base64');
}

/** The same in base64url, for tokens and the Machine Payments Protocol. */
export function encodeBase64Url(value: unknown): string {
  return Buffer.from(JSON.stringify(value)).toString('base64url');
}

/** The JSON object of a header value; `undefined` for any other text. */
export function decodeHeader(
  header: string,
  mostChars = MAX_HEADER_CHARS,
): Readonly<Record<string, unknown>> | undefined {
  const text = header.trim();
  if (text.length > mostChars || !BASE64.test(text)) return undefined;
  return parsedJsonObject(Buffer.from(text, 'base64').toString('utf8'));
}

export function asObject(value: unknown): Readonly<Record<string, unknown>> | undefined {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined;
  return value as Readonly<Record<string, unknown>>; // an object by the checks above
}
