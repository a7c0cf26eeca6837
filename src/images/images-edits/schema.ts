/** The fields of `/images/edits`: those beside the files of a form, and the JSON body. */
import { z } from 'zod';
import {
  formImages,
  imageFields,
  MAX_PARTIAL_IMAGES,
  PARTIAL_WORDS,
  STREAM_WORDS,
  wholeImages,
} from '../images-generations/schema.ts';

export const MAX_INPUT_IMAGES = 16;

const input_fidelity = z.string().nullish().describe('`high` or `low`; passed on to the engine.');
const COMPRESSION_WORDS = 'Of JPEG and WebP, in percent, for engines that know it.';

export type EditFields = z.infer<typeof EditFields>;
export const EditFields = z.looseObject({
  ...imageFields(formImages),
  input_fidelity,
  output_compression: z.coerce
    .number()
    .int()
    .min(0)
    .max(100)
    .optional()
    .describe(COMPRESSION_WORDS),
  stream: z.enum(['true', 'false']).optional().describe(STREAM_WORDS),
  partial_images: z.coerce
    .number()
    .int()
    .min(0)
    .max(MAX_PARTIAL_IMAGES)
    .optional()
    .describe(PARTIAL_WORDS),
});

const Picture = z.looseObject({
  image_url: z
    .string('Must be a URL: files that were uploaded are for batches only')
    .refine((text) => /^(?:https?:|data:)/i.test(text), 'Must be an http(s) URL, or a data URL')
    .describe('An http(s) URL that this server fetches, or a data URL.'),
});

export type EditRequest = z.infer<typeof EditRequest>;
export const EditRequest = z.looseObject({
  ...imageFields(wholeImages),
  images: z
    .array(Picture)
    .min(1)
    .max(MAX_INPUT_IMAGES)
    .describe(`1 to ${MAX_INPUT_IMAGES} pictures: PNG, JPEG or WebP.`),
  mask: Picture.nullish().describe('A PNG; its clear pixels are painted anew.'),
  input_fidelity,
  output_compression: z.int().min(0).max(100).nullish().describe(COMPRESSION_WORDS),
  stream: z.boolean().nullish().describe(STREAM_WORDS),
  partial_images: z.int().min(0).max(MAX_PARTIAL_IMAGES).nullish().describe(PARTIAL_WORDS),
});
