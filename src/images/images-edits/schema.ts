/** The fields beside the files in the form of `/images/edits`. */
import { z } from 'zod';
import { formImages, imageFields } from '../images-generations/schema.ts';

export type EditFields = z.infer<typeof EditFields>;
export const EditFields = z.looseObject({
  ...imageFields(formImages),
  input_fidelity: z
    .string()
    .optional()
    .describe('`high` or `low`: how much of the pictures stays, for engines that know it.'),
  output_compression: z.coerce
    .number()
    .int()
    .min(0)
    .max(100)
    .optional()
    .describe('Of JPEG and WebP, in percent, for engines that know it.'),
  stream: z
    .enum(['true', 'false'])
    .optional()
    .describe('Each picture as an event; partial pictures are not shown.'),
  partial_images: z.coerce
    .number()
    .int()
    .min(0)
    .max(3)
    .optional()
    .describe('Taken; partial pictures are not shown.'),
});
