/** Why a document could not be read, as the end of the sentence "… could not be read: it …". */
export class ReaderError extends Error {
  override readonly name = 'ReaderError';
}

/**
 * The reason for an error. Parsers throw arbitrary errors for malicious input; all of them mean that
 * the file is not readable.
 */
export function reasonFor(error: unknown): string {
  if (error instanceof ReaderError) return error.message;
  if (error instanceof RangeError) return 'is nested too deeply or too large';
  return 'is damaged or has an unknown format';
}
