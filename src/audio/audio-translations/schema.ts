/** The fields beside the file in the form of `/audio/translations`. */
import { z } from 'zod';
import { ModelName } from '../../http/read-request.ts';

export type TranslationFields = z.infer<typeof TranslationFields>;
export const TranslationFields = z.looseObject({
  model: ModelName.optional().describe('Default: the default of type `asr`.'),
  prompt: z.string().optional().describe('English, for engines that take one.'),
  response_format: z
    .enum(['json', 'text', 'srt', 'vtt', 'verbose_json'])
    .default('json')
    .describe('How the text is written.'),
  temperature: z.coerce.number().min(0).max(1).optional().describe('For engines that take one.'),
});
