/** Request, response and OpenAPI description of `/moderations`. */
import * as z from 'zod';
import { type RouteDescription, jsonResponse, jsonContent } from '../http/describe.ts';
import { Cost } from '../http/openapi/cost.ts';
import { MODEL_REFUSALS } from '../http/openapi/refusals.ts';
import { ModelName } from '../http/read-request.ts';

/** Maximum number of texts, or of parts of one message. */
const MAX_INPUTS = 256;
const DATA_URL = /^data:image\/[\w.+-]+;base64,/i;

const TextPart = z.looseObject({
  type: z.literal('text').describe('Kind of the part.'),
  text: z.string().describe('The text.'),
});
const ImagePart = z.looseObject({
  type: z.literal('image_url').describe('Kind of the part.'),
  image_url: z
    .looseObject({
      // The engine would fetch other URLs, without the guard of this server.
      url: z
        .string()
        .regex(DATA_URL, 'Must be a data URL: data:image/png;base64,…')
        .describe('The image as a data URL.'),
    })
    .describe('The image.'),
});

export type ModerationRequest = z.infer<typeof ModerationRequest>;
export const ModerationRequest = z.looseObject({
  model: ModelName.nullish().describe(
    'Id, trait or compatibility name. Default: a moderation model.',
  ),
  input: z
    .union(
      [
        z.string(),
        z.array(z.string()).min(1).max(MAX_INPUTS),
        z
          .array(z.discriminatedUnion('type', [TextPart, ImagePart]))
          .min(1)
          .max(MAX_INPUTS),
      ],
      'Expected a string, a list of strings, or a list of text and image parts',
    )
    .describe('Text, a list of texts, or the parts of one message.'),
});

/** The categories are those of the engine. */
export const ModerationResult = z
  .looseObject({
    flagged: z.boolean().describe('Whether any category applies.'),
    categories: z
      .record(z.string(), z.boolean().nullable())
      .describe('Whether each category of the model applies.'),
    category_scores: z
      .record(z.string(), z.number().min(0).max(1))
      .describe('Score of each category, 0 to 1.'),
    category_applied_input_types: z
      .record(z.string(), z.array(z.string()))
      .optional()
      .describe('Kinds of input that each category was checked for.'),
  })
  .meta({ id: 'ModerationResult' });

const Moderation = z
  .strictObject({
    id: z
      .string()
      .regex(/^modr-[0-9a-f]{32}$/)
      .describe('The id of the request behind `modr-`.'),
    model: z.string().describe('Id of the model that served the request.'),
    results: z.array(ModerationResult).min(1).describe('One result per text, in order.'),
    cost: Cost.describe('Charge for the request.'),
  })
  .meta({ id: 'Moderation' });

export const MODERATIONS: RouteDescription = {
  tag: 'Moderation',
  summary: 'Detect harmful content',
  about:
    'Classifies texts, or the texts and images of one message, in the format of OpenAI. The categories are those of the model.',
  request: jsonContent(ModerationRequest.meta({ id: 'ModerationRequest' }), {
    model: 'default',
    input: 'Good morning.',
  }),
  response: jsonResponse(
    'The results.',
    Moderation,
    {
      id: 'modr-019aa3f1c0de4b7e8c1d2e3f4a5b6c7d',
      model: 'guard',
      results: [
        {
          flagged: false,
          categories: { violence: false },
          category_scores: { violence: 0.0012 },
        },
      ],
      cost: { usd: 0.0000004, diem: 0 },
    },
    'model',
  ),
  refusals: [...MODEL_REFUSALS, 'IMAGE_TOO_LARGE'],
};
