/** Properties of image, speech and rerank models, for validation and for `GET /models`. */
import * as z from 'zod';
import { Text, flag, whole } from './setting-kinds.ts';

export type ImageModelSettings = z.infer<typeof ImageModelSettings>;
export const ImageModelSettings = z.strictObject({
  sizes: z
    .array(z.string().regex(/^[1-9]\d{1,4}x[1-9]\d{1,4}$/, 'Must be a size such as 1024x1024'))
    .min(1)
    .max(64)
    .optional()
    .describe('Sizes on offer. Default: any that the engine accepts.'),
  qualities: z
    .array(Text)
    .min(1)
    .max(16)
    .optional()
    .describe('Qualities on offer. Default: any that the engine accepts.'),
  promptCharacterLimit: whole(32_000).describe('Maximum length of a prompt, in characters.'),
  maxImages: whole(10).describe('Maximum number of images of one request.'),
  edits: flag(false).describe('`true` if the model also serves `/images/edits`.'),
  maxInputImages: whole(16).describe('Maximum number of input images of an edit.'),
});

/** Range of `speed`, as a factor of the normal speed. */
export const SPEECH_SPEEDS = { min: 0.25, max: 4 } as const;

/** Audio formats, with the names of OpenAI. */
export const SPEECH_FORMATS = ['mp3', 'opus', 'aac', 'flac', 'wav', 'pcm'] as const;
export type SpeechFormat = (typeof SPEECH_FORMATS)[number];

export type SpeechModelSettings = z.infer<typeof SpeechModelSettings>;
export const SpeechModelSettings = z.strictObject({
  voices: z
    .array(Text)
    .min(1)
    .max(1_000)
    .optional()
    .describe('Voices on offer. Default: any that the engine accepts.'),
  defaultVoice: Text.optional().describe(
    'Voice of requests without `voice`. Default: the first of `voices`.',
  ),
  formats: z
    .array(z.enum(SPEECH_FORMATS))
    .min(1)
    .default([...SPEECH_FORMATS])
    .describe('Formats on offer.'),
  maxCharacters: whole(4_096).describe('Maximum length of a text, in characters.'),
});

export type RerankModelSettings = z.infer<typeof RerankModelSettings>;
export const RerankModelSettings = z.strictObject({
  maxDocuments: whole(1_000).describe('Maximum number of documents in one request.'),
});
