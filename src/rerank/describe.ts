/** The OpenAPI description of `/rerank`. */
import * as z from 'zod';
import { type RouteDescription, jsonResponse, jsonContent } from '../http/describe.ts';
import { Cost } from '../http/openapi/cost.ts';
import { MODEL_REFUSALS } from '../http/openapi/refusals.ts';
import { RerankRequest } from './rerank-request.ts';

const Count = z.int().min(0);

const Ranking = z
  .strictObject({
    id: z.string().describe('Id of the request.'),
    object: z.literal('list').describe('Kind of the object.'),
    model: z.string().describe('Id of the model that served the request.'),
    results: z
      .array(
        z.strictObject({
          index: Count.describe('Index of the document in the request, from 0.'),
          relevance_score: z.number().describe('Relevance on the scale of the model.'),
          document: z
            .looseObject({ text: z.string().optional().describe('Text of the document.') })
            .optional()
            .describe('The document, with `return_documents`.'),
        }),
      )
      .min(1)
      .describe('Results, most relevant first.'),
    usage: z
      .strictObject({
        prompt_tokens: Count.describe('Tokens of query and documents.'),
        completion_tokens: z.literal(0).describe('Always 0.'),
        total_tokens: Count.describe('Same as `prompt_tokens`.'),
      })
      .describe('Billed tokens, in the format of Jina.'),
    meta: z
      .strictObject({
        api_version: z
          .strictObject({ version: z.string().describe('Version number.') })
          .describe('Version of the format.'),
        billed_units: z
          .strictObject({ search_units: Count.describe('Searches of up to 100 documents.') })
          .describe('Units billed by models that are priced per search.'),
        tokens: z
          .strictObject({
            input_tokens: Count.describe('Tokens of query and documents.'),
            output_tokens: Count.describe('Always 0.'),
          })
          .describe('Billed tokens.'),
      })
      .describe('Billed usage, in the format of Cohere.'),
    cost: Cost.describe('Charge for the request.'),
  })
  .meta({ id: 'Ranking' });

const TEXT = 'Spring tides come with the new moon.';

export const RERANK: RouteDescription = {
  tag: 'Rerank',
  summary: 'Sort documents by relevance',
  about:
    'Returns documents in order of relevance to a query. Accepts requests of Cohere (versions 1 and 2) and Jina, and returns the fields of both. The charge is per search of up to 100 documents, per token, or both, depending on the model.',
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

/** For clients that add the version of Cohere's API to the path. */
export const RERANK_BY_VERSION: RouteDescription = {
  ...RERANK,
  summary: "Sort documents, at the path of Cohere's clients",
  about: 'Same as `POST /rerank`, for clients that add a version to the path.',
};
