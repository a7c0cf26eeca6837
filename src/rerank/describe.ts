/** What `/rerank` answers, and what it says of itself. */
import { z } from 'zod';
import { type RouteDescription, jsonResponse, jsonContent } from '../http/describe.ts';
import { Cost } from '../http/openapi/cost.ts';
import { MODEL_REFUSALS } from '../http/openapi/refusals.ts';
import { RerankRequest } from './rerank-request.ts';

const Count = z.int().min(0);

const Ranking = z
  .strictObject({
    id: z.string().describe('The id of the request.'),
    object: z.literal('list').describe('What this is.'),
    model: z.string().describe('Id of the model that answered.'),
    results: z
      .array(
        z.strictObject({
          index: Count.describe('The place of the document in the request, from 0.'),
          relevance_score: z.number().describe('How well it fits; the scale is that of the model.'),
          document: z
            .looseObject({ text: z.string().optional().describe('Its text.') })
            .optional()
            .describe('The document, where `return_documents` asks for it.'),
        }),
      )
      .min(1)
      .describe('The best first.'),
    usage: z
      .strictObject({
        prompt_tokens: Count.describe('Tokens that were read, query and documents.'),
        completion_tokens: z.literal(0).describe('None are written; some clients want the field.'),
        total_tokens: Count.describe('The same as `prompt_tokens`.'),
      })
      .describe("In Jina's form."),
    meta: z
      .strictObject({
        api_version: z
          .strictObject({ version: z.string().describe('Of the form.') })
          .describe('The version of the form.'),
        billed_units: z
          .strictObject({ search_units: Count.describe('Searches of up to 100 documents.') })
          .describe('What models that are priced by the search charge.'),
        tokens: z
          .strictObject({
            input_tokens: Count.describe('Tokens that were read.'),
            output_tokens: Count.describe('Always 0.'),
          })
          .describe('Tokens of the request.'),
      })
      .describe("In Cohere's form."),
    cost: Cost.describe('What was charged.'),
  })
  .meta({ id: 'Ranking' });

const TEXT = 'Spring tides come with the new moon.';

export const RERANK: RouteDescription = {
  tag: 'Rerank',
  summary: 'Sort documents by relevance',
  about:
    'How well each document fits a query, the best first. Takes the requests of Cohere (versions 1 and 2) and of Jina, and its answer has the fields of both. Charged by the search of up to 100 documents, by tokens, or both, as the model is priced.',
  request: jsonContent(RerankRequest.meta({ id: 'RerankRequest' }), {
    model: 'default',
    query: 'When are spring tides?',
    documents: ['Neap tides are weak.', TEXT],
    top_n: 1,
  }),
  response: jsonResponse(
    'The documents in order.',
    Ranking,
    {
      id: '019aa3f1c0de4b7e8c1d2e3f4a5b6c7d',
      object: 'list',
      model: 'sorter',
      results: [{ index: 1, relevance_score: 0.98, document: { text: TEXT } }],
      usage: { prompt_tokens: 24, completion_tokens: 0, total_tokens: 24 },
      meta: {
        api_version: { version: '2' },
        billed_units: { search_units: 1 },
        tokens: { input_tokens: 24, output_tokens: 0 },
      },
      cost: { usd: 0.002, diem: 0 },
    },
    'model',
  ),
  refusals: MODEL_REFUSALS,
};

/** For clients that put the version of Cohere's form into the path. */
export const RERANK_BY_VERSION: RouteDescription = {
  ...RERANK,
  summary: "Sort documents, at the path of Cohere's client",
  about: 'The same as `POST /rerank`, for clients that add the version of their protocol.',
};
