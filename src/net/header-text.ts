/** Headers of an answer as undici gives them: one that came twice is a list. */
export type AnsweredHeaders = Readonly<Record<string, string | string[] | undefined>>;

/** The value of a header; those of one that came more than once as the one list that they are (RFC 9110 §5.3). */
export function headerText(headers: AnsweredHeaders, name: string): string | undefined {
  const value = headers[name];
  return Array.isArray(value) ? value.join(', ') : value;
}
