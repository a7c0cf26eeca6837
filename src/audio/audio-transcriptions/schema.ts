/** The fields beside the file in the form of `/audio/transcriptions`. */
import { z } from 'zod';

const MAX_MODEL_CHARACTERS = 256;

export type TranscriptionFields = z.infer<typeof TranscriptionFields>;
export const TranscriptionFields = z
  .looseObject({
    model: z.string().min(1).max(MAX_MODEL_CHARACTERS).optional(),
    language: z
      .string()
      .regex(/^(?:[a-z]{2,3})?$/, 'Must be a language code such as en')
      .optional(),
    prompt: z.string().optional(),
    response_format: z.enum(['json', 'text', 'srt', 'vtt', 'verbose_json']).default('json'),
    temperature: z.coerce.number().min(0).max(1).optional(),
    timestamp_granularities: z.array(z.enum(['segment', 'word'])),
    stream: z.literal('false', 'Is not supported: leave it out').optional(),
  })
  .superRefine((fields, context) => {
    const { timestamp_granularities: times, response_format: format } = fields;
    if (times.length === 0 || format === 'verbose_json') return;
    const message = 'Needs response_format=verbose_json';
    context.addIssue({ code: 'custom', path: ['timestamp_granularities'], message });
  });
