/** The responses and the description of `/images/generations` in the API document. */
import * as z from 'zod';
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
  output_format: z.enum(IMAGE_FORMATS).describe('Format of the images.'),
  size: z.string().describe('Actual size of the first image.'),
  quality: z
    .string()
    .optional()
    .describe(
      'The requested quality, or the one that the engine reports; in a stream `auto` without either.',
    ),
  background: z
    .string()
    .describe(
      'As reported by the engine, otherwise as requested: `transparent`, `opaque` or `auto`.',
    ),
  usage: z
    .looseObject({})
    .optional()
    .describe('Usage as reported by the engine, if any; in a stream zero tokens without one.'),
};

const Images = z
  .strictObject({
    created: z.int().describe('Unix time in seconds.'),
    data: z
      .array(
        z.strictObject({
          b64_json: z.string().optional().describe('The image as base64.'),
          url: z
            .string()
            .optional()
            .describe('The image as a data URL, if `response_format` is `url`.'),
          revised_prompt: z.string().optional().describe('The prompt as revised by the engine.'),
        }),
      )
      .min(1)
      .describe('The images.'),
    ...Facts,
    cost: Cost.describe('The charge.'),
  })
  .meta({ id: 'Images' });

const ImageEvent = z
  .union([
    z.strictObject({
      type: z
        .enum(['image_generation.completed', 'image_edit.completed'])
        .describe('Type of the event.'),
      b64_json: z.string().describe('The image as base64.'),
      created_at: z.int().describe('Unix time in seconds.'),
      ...Facts,
      cost: Cost.optional().describe('The charge for all images, in the last event.'),
    }),
    z.strictObject({
      type: z
        .enum(['image_generation.partial_image', 'image_edit.partial_image'])
        .describe('Type of the event.'),
      b64_json: z.string().describe('The partial image as base64.'),
      partial_image_index: z.int().min(0).describe('Index of the partial image, from 0.'),
      created_at: z.int().describe('Unix time in seconds.'),
      output_format: Facts.output_format,
      size: Facts.size,
      quality: Facts.quality,
      background: Facts.background,
    }),
    ErrorEvent,
  ])
  .meta({ id: 'ImageEvent' });

/** The smallest PNG: one transparent pixel. */
const PIXEL =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==';
const FACTS = { output_format: 'png', size: '1x1', background: 'auto' } as const;
const COST = { usd: 0.04, diem: 0 };
const EVENT = {
  type: 'image_generation.completed',
  b64_json: PIXEL,
  created_at: 1_795_233_600,
  ...FACTS,
  cost: COST,
};

export const IMAGES_RESPONSE: ResponseDescription = {
  status: 200,
  about: 'The images, as base64 or as data URLs; with `stream: true` each image is an event.',
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
  summary: 'Generate images',
  about:
    "Generates images from a text, in OpenAI's format. Each image is charged, by size and quality if the model has such prices, or by its tokens if the model has token prices and the engine reports them. Each image is validated before the charge; an invalid image costs nothing.",
  request: jsonContent(ImagesRequest.meta({ id: 'ImagesRequest' }), {
    model: 'default',
    prompt: 'A lighthouse at dusk',
    size: '1024x1024',
  }),
  response: IMAGES_RESPONSE,
  refusals: MODEL_REFUSALS,
};
