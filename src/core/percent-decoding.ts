/** Text with its percent-encoding undone (RFC 3986 §2.1); with a stray percent sign it is meant as it stands. */
export function percentDecoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    // It is not percent-encoded.
    return text;
  }
}
