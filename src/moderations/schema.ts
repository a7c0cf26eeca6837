/** The JSON body of `/moderations`. */
import { z } from 'zod';
import { ModelName } from '../http/read-request.ts';

/** Texts of one request, or parts of one message. */
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
      // What a caller names by URL would be fetched by the engine, past every guard of ours.
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
