/** The JSON body of `/images/generations`, and the fields that it shares with an edit. */
import { z } from 'zod';
import { ModelName } from '../../http/read-request.ts';
import { IMAGE_FORMATS } from '../made-image.ts';

const MAX_IMAGES = 128;

/** OpenAI's limit per image. */
export const MAX_PARTIAL_IMAGES = 3;
export const STREAM_WORDS = 'Each picture as an event when it is finished and charged.';
export const PARTIAL_WORDS =
  'In a stream: so many events with each picture while it is made, from engines that show it; they cost nothing of their own.';

const IMAGE_SIZE = /^(?:auto|[1-9]\d{1,4}x[1-9]\d{1,4})$/;

/** Fields common to all image requests; numbers in a form arrive as text. */
export function imageFields(whole: z.ZodType<number>) {
  return {
    prompt: z.string().min(1).describe('What the picture shows.'),
    model: ModelName.nullish().describe(
      'Id, trait or compatibility name. Default: an image model.',
    ),
    n: whole.nullish().describe('Pictures, 1 when absent; each is charged.'),
    size: z
      .string()
      .regex(IMAGE_SIZE, 'Must be auto, or a width and height such as 1024x1024')
      .nullish()
      .describe(
        '`1024x1024` and the like, as the model takes them; the engine chooses when absent.',
      ),
    quality: z.string().min(1).max(64).nullish().describe('`low`, `high`, `hd`, as supported.'),
    background: z.string().nullish().describe('`transparent`, `opaque` or `auto`; passed on.'),
    output_format: z.enum(IMAGE_FORMATS).nullish().describe('Format of the pictures.'),
    response_format: z
      .enum(['b64_json', 'url'])
      .nullish()
      .describe(
        '`b64_json`, which is also what is had without it, or `url`: a data URL. Either way the pictures are in the answer; a stream has base64.',
      ),
    user: z.string().nullish().describe('Discarded.'),
  };
}

export const wholeImages = z.int().min(1).max(MAX_IMAGES);
export const formImages = z.coerce.number().int().min(1).max(MAX_IMAGES);

export type ImagesRequest = z.infer<typeof ImagesRequest>;
export const ImagesRequest = z.looseObject({
  ...imageFields(wholeImages),
  output_compression: z.int().min(0).max(100).nullish().describe('Of JPEG and WebP, in percent.'),
  style: z.string().nullish().describe('`vivid` or `natural`, for engines that know it.'),
  moderation: z.string().nullish().describe('`low` or `auto`, for engines that know it.'),
  stream: z.boolean().nullish().describe(STREAM_WORDS),
  partial_images: z.int().min(0).max(MAX_PARTIAL_IMAGES).nullish().describe(PARTIAL_WORDS),
});
