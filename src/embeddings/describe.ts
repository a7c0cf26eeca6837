/** The OpenAPI description of `/embeddings`. */
import * as z from 'zod';
import { EmbeddingsBody } from './embeddings-request.ts';
import { type RouteDescription, jsonResponse, jsonContent } from '../http/describe.ts';
import { MODEL_REFUSALS } from '../http/openapi/refusals.ts';

const Count = z.int().min(0);

const Embeddings = z
  .looseObject({
    object: z.literal('list').describe('Kind of the object.'),
    data: z
      .array(
        z.looseObject({
          object: z.literal('embedding').describe('Kind of the item.'),
          index: Count.describe('Index of the input, from 0.'),
          embedding: z
            .union([z.array(z.number()), z.string()])
            .describe('Numbers, or base64 of little-endian float32.'),
        }),
      )
      .describe('The vectors, in the order of the inputs.'),
    model: z.string().describe('Id of the model.'),
    usage: z
      .looseObject({
        prompt_tokens: Count.describe('Tokens of all inputs.'),
        total_tokens: Count.describe('Same as `prompt_tokens`.'),
      })
      .describe('Billed tokens.'),
  })
  .meta({ id: 'Embeddings' });

const EXAMPLE = {
  object: 'list',
  data: [{ object: 'embedding', index: 0, embedding: [0.0123, -0.0456, 0.0789] }],
  model: 'bge-small',
  usage: { prompt_tokens: 5, total_tokens: 5 },
};

export const EMBEDDINGS_DESCRIPTION: RouteDescription = {
  tag: 'Embeddings',
  summary: 'Create embeddings',
  about: 'Up to 2048 texts or lists of token ids at once, each of at most 8192 tokens.',
  request: jsonContent(EmbeddingsBody.meta({ id: 'EmbeddingsRequest' }), {
    model: 'default',
    input: ['The quick brown fox'],
  }),
  response: jsonResponse('One vector for each input, in order.', Embeddings, EXAMPLE, 'model'),
  refusals: [...MODEL_REFUSALS, 'TOO_MANY_TOKENS'],
};
