/** The form fields beside the file of `/audio/transcriptions` and `/audio/translations`. */
import * as z from 'zod';
import { ModelName } from '../../http/read-request.ts';

export type TranscriptionFields = z.infer<typeof TranscriptionFields>;
export const TranscriptionFields = z
  .looseObject({
    model: ModelName.optional().describe('Id or trait. Default: the default model of type `asr`.'),
    language: z
      .string()
      .regex(/^(?:[a-z]{2,3})?$/, 'Must be a language code such as en')
      .optional()
      .describe('Spoken language, such as `en`. Default: the engine detects it.'),
    prompt: z.string().optional().describe('Expected words, such as names.'),
    response_format: z
      .enum(['json', 'text', 'srt', 'vtt', 'verbose_json'])
      .default('json')
      .describe('Response format. Default: `json`.'),
    temperature: z.coerce
      .number()
      .min(0)
      .max(1)
      .optional()
      .describe('Sampling temperature, 0 to 1.'),
    timestamp_granularities: z
      .array(z.enum(['segment', 'word']))
      .describe('With `verbose_json`: times of segments, of words, or of both. Default: segments.'),
    stream: z
      .enum(['true', 'false'])
      .optional()
      .describe('Streams the text as events, with `json` or `text`.'),
  })
  .superRefine((fields, context) => {
    const { timestamp_granularities: times, response_format: format } = fields;
    if (fields.stream === 'true' && format !== 'json' && format !== 'text') {
      const message = 'Needs response_format=json: events have no times';
      context.addIssue({ code: 'custom', path: ['stream'], message });
    }
    if (times.length === 0 || format === 'verbose_json') return;
    const message = 'Needs response_format=verbose_json';
    context.addIssue({ code: 'custom', path: ['timestamp_granularities'], message });
  });

export type TranslationFields = z.infer<typeof TranslationFields>;
export const TranslationFields = z.looseObject({
  model: ModelName.optional().describe('Id or trait. Default: the default model of type `asr`.'),
  prompt: z.string().optional().describe('Expected words in English, for engines that support it.'),
  response_format: z
    .enum(['json', 'text', 'srt', 'vtt', 'verbose_json'])
    .default('json')
    .describe('Response format. Default: `json`.'),
  temperature: z.coerce
    .number()
    .min(0)
    .max(1)
    .optional()
    .describe('Sampling temperature, 0 to 1, for engines that support it.'),
});
