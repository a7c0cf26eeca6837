/** Citations of a text block as annotations of a chat message. */
import type { JsonObject } from '../../../json/json-scan.ts';

/** A citation without a URL, such as a page of a document, keeps its members. */
export function annotationOf(citation: JsonObject, start: number, end: number): JsonObject {
  const { url, title, cited_text: content } = citation;
  const span = { start_index: start, end_index: end };
  if (typeof url !== 'string') return { ...citation, ...span };
  return { type: 'url_citation', url_citation: { url, title, content, ...span } };
}
