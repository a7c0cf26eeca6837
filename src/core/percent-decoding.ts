/** Decodes percent-encoding (RFC 3986 §2.1); returns invalid sequences unchanged. */
export function percentDecoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    // It is not percent-encoded.
    return text;
  }
}
