/**
 * Citations by an engine: `annotations` of a chat message. Their positions count from the beginning
 * of the message; those of agents' protocols count in a block of text.
 */
import { isJsonObject } from '../../json/json-scan.ts';
import { stringOrEmpty } from '../../json/json-text.ts';
import type { Citation, CitedSpan } from './response-protocol.ts';

export class EngineCitations {
  /** UTF-16 units of text before the open block. */
  #earlierLength = 0;
  #count = 0;
  #kept: readonly unknown[] = [];

  passText(length: number): void {
    this.#earlierLength += length;
  }

  /** For the next block of text: some engines send their sources before it. */
  keep(annotations: readonly unknown[]): void {
    this.#kept = [...this.#kept, ...annotations];
  }

  kept(): readonly unknown[] {
    const kept = this.#kept;
    this.#kept = [];
    return kept;
  }

  /** `length` is that of the open block so far. Kinds that agents' protocols lack are left out. */
  read(
    annotations: readonly unknown[],
    length: number,
  ): { readonly citation: Citation; readonly span: CitedSpan }[] {
    const placeOf = (index: unknown, usual: number): number => {
      if (typeof index !== 'number') return usual;
      return Math.min(Math.max(index - this.#earlierLength, 0), length);
    };
    return annotations.flatMap((annotation) => {
      if (!isJsonObject(annotation)) return [];
      const { type, url_citation: nested } = annotation;
      const given = isJsonObject(nested) ? nested : annotation;
      const { url, title, content, start_index, end_index, ...rest } = given;
      const span = { start: placeOf(start_index, 0), end: placeOf(end_index, length) };
      const source = {
        url: stringOrEmpty(url),
        title: stringOrEmpty(title),
        content: stringOrEmpty(content),
      };
      const citation = { ...source, number: this.#count };
      this.#count += 1;
      if (type === 'url_citation' && source.url !== '') return [{ citation, span }];
      if (typeof type !== 'string' || !type.endsWith('_location')) return [];
      const own = title === undefined ? rest : { ...rest, title };
      return [{ citation: { ...citation, own }, span }];
    });
  }
}
