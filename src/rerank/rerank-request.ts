/** The request of `/rerank`, in the formats of Cohere and Jina, and the bodies for engines. */
import * as z from 'zod';
import { UNSOLD_MEMBERS } from '../engines/unsold-members.ts';
import { ModelName } from '../http/read-request.ts';
import { jsonWithoutNulls } from '../json/json-text.ts';
import { refuseMember } from '../json/validation.ts';

const MAX_DOCUMENTS = 10_000;
const MAX_RANK_FIELDS = 64;

export type RerankRequest = z.infer<typeof RerankRequest>;
export const RerankRequest = z.looseObject({
  model: ModelName.nullish().describe('Id, trait or compatibility name. Default: a rerank model.'),
  query: z.string().min(1).describe('Query that the documents are compared with.'),
  documents: z
    .array(z.union([z.string(), z.looseObject({})], 'Expected a string or an object with text'))
    .min(1)
    .max(MAX_DOCUMENTS)
    .describe('Texts, or objects with `text` or with the fields of `rank_fields`.'),
  top_n: z.int().min(1).nullish().describe('Maximum number of results. Default: all.'),
  rank_fields: z
    .array(z.string())
    .min(1)
    .max(MAX_RANK_FIELDS)
    .nullish()
    .describe('Fields of document objects to compare.'),
  return_documents: z.boolean().nullish().describe('Whether to return the documents.'),
  max_tokens_per_doc: z
    .int()
    .min(1)
    .nullish()
    .describe('Token limit per document, for engines that support it.'),
  user: z.string().nullish().describe('Discarded.'),
});

type GivenDocument = RerankRequest['documents'][number];

/** Throws 400 for an object without text. */
export function textsOf({ documents, rank_fields: fields }: RerankRequest): string[] {
  return documents.map((one, place) => textOf(one, place, fields ?? undefined));
}

function textOf(
  document: GivenDocument,
  place: number,
  fields: readonly string[] | undefined,
): string {
  if (typeof document === 'string') return document;
  if (fields === undefined) {
    const { text } = document;
    if (typeof text === 'string') return text;
    const message =
      'Must be a string, or an object with a string in "text" or in the fields of rank_fields';
    throw refuseMember(['documents', place], message, 'invalid_type');
  }
  // Cohere joins fields in the same way.
  const lines = fields.flatMap((name) => {
    const value = document[name];
    if (value === undefined || value === null) return [];
    return [`${name}: ${typeof value === 'string' ? value : JSON.stringify(value)}`];
  });
  if (lines.length > 0) return lines.join('\n');
  const message = `Has none of the fields ${fields.join(', ')}`;
  throw refuseMember(['documents', place], message);
}

/** The format of Cohere, Jina, vLLM, llama.cpp and Infinity. */
export function engineBody(
  request: RerankRequest,
  texts: readonly string[],
  model: string,
): Buffer {
  // `texts` would replace the documents in Text Embeddings Inference, without being priced.
  const { user: _nobody, rank_fields: _used, texts: _unpriced, ...fields } = request;
  const own = { ...UNSOLD_MEMBERS, model, documents: texts, return_documents: false };
  return jsonWithoutNulls({ ...fields, ...own });
}

/** The format of Text Embeddings Inference. */
export function textsBody({ query }: RerankRequest, texts: readonly string[]): Buffer {
  return Buffer.from(JSON.stringify({ query, texts, truncate: true }));
}
