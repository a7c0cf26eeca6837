/** What models of images, speech and reranking take: for their checks, and for `GET /models`. */
import { z } from 'zod';
import { Text, flag, whole } from './setting-kinds.ts';

export type ImageModelSettings = z.infer<typeof ImageModelSettings>;
export const ImageModelSettings = z.strictObject({
  sizes: z
    .array(z.string().regex(/^[1-9]\d{1,4}x[1-9]\d{1,4}$/, 'Must be a size such as 1024x1024'))
    .min(1)
    .max(64)
    .optional()
    .describe('Sizes that it makes. Default: any that the engine takes.'),
  qualities: z
    .array(Text)
    .min(1)
    .max(16)
    .optional()
    .describe('Qualities that it makes. Default: any that the engine takes.'),
  promptCharacterLimit: whole(32_000).describe('Longest prompt.'),
  maxImages: whole(10).describe('Images of one request.'),
  edits: flag(false).describe('It also edits: `/images/edits` takes it.'),
  maxInputImages: whole(16).describe('Pictures that an edit may start from.'),
});

/** How many times as fast as usual a voice speaks. */
export const SPEECH_SPEEDS = { min: 0.25, max: 4 } as const;

/** Formats of speech, in the words of OpenAI. */
export const SPEECH_FORMATS = ['mp3', 'opus', 'aac', 'flac', 'wav', 'pcm'] as const;
export type SpeechFormat = (typeof SPEECH_FORMATS)[number];

export type SpeechModelSettings = z.infer<typeof SpeechModelSettings>;
export const SpeechModelSettings = z.strictObject({
  voices: z
    .array(Text)
    .min(1)
    .max(1_000)
    .optional()
    .describe('Voices. Default: any that the engine has.'),
  defaultVoice: Text.optional().describe('Of requests that name none. Default: the first voice.'),
  formats: z
    .array(z.enum(SPEECH_FORMATS))
    .min(1)
    .default([...SPEECH_FORMATS])
    .describe('Formats that its engines write.'),
  maxCharacters: whole(4_096).describe('Longest text.'),
});

export type RerankModelSettings = z.infer<typeof RerankModelSettings>;
export const RerankModelSettings = z.strictObject({
  maxDocuments: whole(1_000).describe('Documents of one request.'),
});
