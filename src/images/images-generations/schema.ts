/** The JSON body of `/images/generations`, and the fields that it shares with an edit. */
import * as z from 'zod';
import { ModelName } from '../../http/read-request.ts';
import { IMAGE_FORMATS } from '../made-image.ts';

const MAX_IMAGES = 128;

/** OpenAI's limit per image. */
export const MAX_PARTIAL_IMAGES = 3;
export const STREAM_TEXT = 'Sends each image as an event after the charge.';
export const PARTIAL_IMAGES_TEXT =
  'In a stream: number of partial images per image, from engines that support them. Partial images have no price of their own.';

const IMAGE_SIZE = /^(?:auto|[1-9]\d{1,4}x[1-9]\d{1,4})$/;

/** Fields common to all image requests; numbers in a form arrive as text. */
export function imageFields(whole: z.ZodType<number>) {
  return {
    prompt: z.string().min(1).describe('Description of the image.'),
    model: ModelName.nullish().describe(
      'Id, trait or compatibility name. Default: the default image model.',
    ),
    n: whole.nullish().describe('Number of images, each of which is charged. Default: 1.'),
    size: z
      .string()
      .regex(IMAGE_SIZE, 'Must be auto, or a width and height such as 1024x1024')
      .nullish()
      .describe(
        'Size such as `1024x1024`, from the sizes of the model. Default: the engine chooses.',
      ),
    quality: z
      .string()
      .min(1)
      .max(64)
      .nullish()
      .describe('Quality such as `low`, `high` or `hd`, as supported by the model.'),
    background: z
      .string()
      .nullish()
      .describe('`transparent`, `opaque` or `auto`; forwarded to the engine.'),
    output_format: z.enum(IMAGE_FORMATS).nullish().describe('Format of the images.'),
    response_format: z
      .enum(['b64_json', 'url'])
      .nullish()
      .describe(
        '`b64_json` (default), or `url` for data URLs. The images are part of the response in both cases; a stream contains base64.',
      ),
    user: z.string().nullish().describe('Discarded.'),
  };
}

export const wholeImages = z.int().min(1).max(MAX_IMAGES);
export const formImages = z.coerce.number().int().min(1).max(MAX_IMAGES);

export type ImagesRequest = z.infer<typeof ImagesRequest>;
export const ImagesRequest = z.looseObject({
  ...imageFields(wholeImages),
  output_compression: z
    .int()
    .min(0)
    .max(100)
    .nullish()
    .describe('Compression of JPEG and WebP in percent.'),
  style: z.string().nullish().describe('`vivid` or `natural`, for engines that support it.'),
  moderation: z.string().nullish().describe('`low` or `auto`, for engines that support it.'),
  stream: z.boolean().nullish().describe(STREAM_TEXT),
  partial_images: z.int().min(0).max(MAX_PARTIAL_IMAGES).nullish().describe(PARTIAL_IMAGES_TEXT),
});
