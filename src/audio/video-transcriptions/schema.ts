/** The body of `/video/transcriptions`. */
import { z } from 'zod';

const MAX_URL_CHARACTERS = 8_192;

export type TranscriptionRequest = z.infer<typeof TranscriptionRequest>;
export const TranscriptionRequest = z.looseObject({
  url: z
    .string()
    .max(MAX_URL_CHARACTERS)
    .refine((text) => /^https?:\/\//i.test(text) && URL.canParse(text), 'Must be an http(s) URL')
    .describe('An http(s) URL of a sound or a video that this server fetches.'),
  response_format: z.enum(['json', 'text']).nullish().describe('Default `json`.'),
  model: z.string().min(1).nullish().describe('Id, or a trait. Default: the default model.'),
});
