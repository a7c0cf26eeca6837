/** Removes configured credentials from texts that others see, such as a message that repeats a header. */

/** Shorter secrets would also match plain words. */
const MIN_SECRET_CHARS = 6;

export function isLongSecret({ length }: string): boolean {
  return length >= MIN_SECRET_CHARS;
}

export function withoutSecrets(text: string, secrets: readonly string[]): string {
  return secrets
    .filter(isLongSecret)
    .reduce((shown, secret) => shown.replaceAll(secret, '[secret]'), text);
}
