/** The responses and the description of `/images/generations` in the API document. */
import { z } from 'zod';
import { Cost } from '../../http/openapi/cost.ts';
import { ErrorEvent } from '../../http/openapi/error-event.ts';
import {
  type ResponseDescription,
  type RouteDescription,
  eventContent,
  jsonContent,
} from '../../http/describe.ts';
import { MODEL_REFUSALS } from '../../http/openapi/refusals.ts';
import { IMAGE_FORMATS } from '../made-image.ts';
import { ImagesRequest } from './schema.ts';

const Facts = {
  output_format: z.enum(IMAGE_FORMATS).describe('Format of the pictures.'),
  size: z.string().describe('Size of the first picture, as it is.'),
  quality: z.string().optional().describe('As it was asked for, or as the engine tells.'),
  usage: z.looseObject({}).optional().describe("The engine's own figures, where it has any."),
};

const Images = z
  .strictObject({
    created: z.int().describe('Unix time in seconds.'),
    data: z
      .array(
        z.strictObject({
          b64_json: z.string().optional().describe('The picture, as base64.'),
          url: z.string().optional().describe('A data URL, if `response_format` is `url`.'),
          revised_prompt: z.string().optional().describe('What the engine made of the prompt.'),
        }),
      )
      .min(1)
      .describe('The pictures.'),
    ...Facts,
    cost: Cost.describe('What was charged.'),
  })
  .meta({ id: 'Images' });

const ImageEvent = z
  .union([
    z.strictObject({
      type: z
        .enum(['image_generation.completed', 'image_edit.completed'])
        .describe('What the event is.'),
      b64_json: z.string().describe('The picture, as base64.'),
      created_at: z.int().describe('Unix time in seconds.'),
      ...Facts,
      cost: Cost.optional().describe('In the last event: what was charged for all.'),
    }),
    z.strictObject({
      type: z
        .enum(['image_generation.partial_image', 'image_edit.partial_image'])
        .describe('What the event is.'),
      b64_json: z.string().describe('The picture as far as it is made, as base64.'),
      partial_image_index: z.int().min(0).describe('Its place, from 0.'),
      created_at: z.int().describe('Unix time in seconds.'),
      output_format: Facts.output_format,
      size: Facts.size,
      quality: Facts.quality,
    }),
    ErrorEvent,
  ])
  .meta({ id: 'ImageEvent' });

/** The smallest PNG: one transparent pixel. */
const PIXEL =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==';
const FACTS = { output_format: 'png', size: '1x1' } as const;
const COST = { usd: 0.04, diem: 0 };
const EVENT = {
  type: 'image_generation.completed',
  b64_json: PIXEL,
  created_at: 1_795_233_600,
  ...FACTS,
  cost: COST,
};

export const IMAGES_ANSWER: ResponseDescription = {
  status: 200,
  about: 'The pictures, each as base64 or as a data URL; with `stream: true` each as an event.',
  headers: ['model', 'stream'],
  content: [
    ...jsonContent(Images, {
      created: 1_795_233_600,
      data: [{ b64_json: PIXEL }],
      ...FACTS,
      cost: COST,
    }),
    eventContent(ImageEvent, `event: ${EVENT.type}\ndata: ${JSON.stringify(EVENT)}\n\n`),
  ],
};

export const IMAGES_GENERATIONS: RouteDescription = {
  tag: 'Images',
  summary: 'Make images',
  about:
    "Pictures of a text, in OpenAI's form, charged by the piece: by size and quality where the model has such prices. Every picture is looked at before it is charged; one that cannot be opened costs nothing.",
  request: jsonContent(ImagesRequest.meta({ id: 'ImagesRequest' }), {
    model: 'default',
    prompt: 'A lighthouse at dusk',
    size: '1024x1024',
  }),
  response: IMAGES_ANSWER,
  refusals: MODEL_REFUSALS,
};
