/**
 * Decodes percent-encoding (RFC 3986 §2.1); text with an invalid sequence is returned unchanged.
 */
export function percentDecoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    // It is not percent-encoded.
    return text;
  }
}
