/** The fields of `/images/edits`: those beside the files of a form, and the JSON body. */
import * as z from 'zod';
import {
  formImages,
  imageFields,
  MAX_PARTIAL_IMAGES,
  PARTIAL_IMAGES_TEXT,
  STREAM_TEXT,
  wholeImages,
} from '../images-generations/schema.ts';

export const MAX_INPUT_IMAGES = 16;

const input_fidelity = z.string().nullish().describe('`high` or `low`; forwarded to the engine.');
const COMPRESSION_TEXT = 'Compression of JPEG and WebP in percent, for engines that support it.';

export type EditFields = z.infer<typeof EditFields>;
export const EditFields = z.looseObject({
  ...imageFields(formImages),
  input_fidelity,
  output_compression: z.coerce.number().int().min(0).max(100).optional().describe(COMPRESSION_TEXT),
  stream: z.enum(['true', 'false']).optional().describe(STREAM_TEXT),
  partial_images: z.coerce
    .number()
    .int()
    .min(0)
    .max(MAX_PARTIAL_IMAGES)
    .optional()
    .describe(PARTIAL_IMAGES_TEXT),
});

const ImageUrl = z.looseObject({
  image_url: z
    .string('Must be a URL: uploaded files can only be used in batches')
    .refine((text) => /^(?:https?:|data:)/i.test(text), 'Must be an http(s) URL, or a data URL')
    .describe('An http(s) URL that this server fetches, or a data URL.'),
});

export type EditRequest = z.infer<typeof EditRequest>;
export const EditRequest = z.looseObject({
  ...imageFields(wholeImages),
  images: z
    .array(ImageUrl)
    .min(1)
    .max(MAX_INPUT_IMAGES)
    .describe(`1 to ${MAX_INPUT_IMAGES} images: PNG, JPEG or WebP.`),
  mask: ImageUrl.nullish().describe('A PNG whose transparent pixels mark the area to edit.'),
  input_fidelity,
  output_compression: z.int().min(0).max(100).nullish().describe(COMPRESSION_TEXT),
  stream: z.boolean().nullish().describe(STREAM_TEXT),
  partial_images: z.int().min(0).max(MAX_PARTIAL_IMAGES).nullish().describe(PARTIAL_IMAGES_TEXT),
});
