/** The body of `/video/transcriptions`. */
import * as z from 'zod';

const MAX_URL_CHARACTERS = 8_192;

export type TranscriptionRequest = z.infer<typeof TranscriptionRequest>;
export const TranscriptionRequest = z.looseObject({
  url: z
    .string()
    .max(MAX_URL_CHARACTERS)
    .refine((text) => /^https?:\/\//i.test(text) && URL.canParse(text), 'Must be an http(s) URL')
    .describe('The http(s) URL of an audio or video file; this server fetches it.'),
  response_format: z.enum(['json', 'text']).nullish().describe('Response format. Default: `json`.'),
  model: z
    .string()
    .min(1)
    .nullish()
    .describe('Id or trait. Default: the default model of type `asr`.'),
});
