/** The fields beside the file in the form of `/audio/transcriptions`. */
import { z } from 'zod';
import { ModelName } from '../../http/read-request.ts';

export type TranscriptionFields = z.infer<typeof TranscriptionFields>;
export const TranscriptionFields = z
  .looseObject({
    model: ModelName.optional().describe('Id, or a trait. Default: the default model.'),
    language: z
      .string()
      .regex(/^(?:[a-z]{2,3})?$/, 'Must be a language code such as en')
      .optional()
      .describe('Language that is spoken, such as `en`. Default: the engine finds out.'),
    prompt: z.string().optional().describe('Expected words, such as names.'),
    response_format: z
      .enum(['json', 'text', 'srt', 'vtt', 'verbose_json'])
      .default('json')
      .describe('The form of the answer. Default `json`.'),
    temperature: z.coerce.number().min(0).max(1).optional().describe('0 to 1: sampling.'),
    timestamp_granularities: z
      .array(z.enum(['segment', 'word']))
      .describe(
        'With `verbose_json`: whether segments, words or both have their times; segments unless named.',
      ),
    stream: z.enum(['true', 'false']).optional().describe('Sends events; for `json` and `text`.'),
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
