/** The descriptions of `/audio/transcriptions` and `/audio/translations` in the API document. */
import * as z from 'zod';
import {
  type RouteDescription,
  eventContent,
  fileField,
  formContent,
  jsonContent,
  textContent,
} from '../../http/describe.ts';
import { Cost } from '../../http/openapi/cost.ts';
import { ErrorEvent } from '../../http/openapi/error-event.ts';
import { MODEL_REFUSALS } from '../../http/openapi/refusals.ts';
import { TranscriptionFields, TranslationFields } from './schema.ts';

const Usage = z.object({
  type: z.literal('duration').describe('Unit of the charge.'),
  seconds: z.int().describe('Charged seconds, rounded up.'),
});
const TimeRange = z.object({
  start: z.number().describe('Seconds from the start of the media.'),
  end: z.number().describe('Seconds from the start of the media.'),
});
const Transcription = z
  .object({
    text: z.string().describe('The transcript.'),
    usage: Usage.describe('The charged duration.'),
  })
  .meta({ id: 'Transcription' });
const VerboseTranscription = z
  .object({
    task: z.enum(['transcribe', 'translate']).describe('Transcription or translation.'),
    language: z.string().describe('Language code; `und` if the engine does not report it.'),
    duration: z.number().describe('Duration of the media in seconds.'),
    text: z.string().describe('The transcript.'),
    segments: z
      .array(
        TimeRange.extend({
          id: z.int().describe('Index of the segment, from 0.'),
          text: z.string().describe('Text of the segment.'),
          tokens: z.array(z.int()).describe('Ids of the tokens; empty if the engine reports none.'),
          seek: z
            .int()
            .describe(
              'Start of the window in frames of 10 ms; that of the segment if the engine reports none.',
            ),
          temperature: z.number().describe('Sampling temperature, or 0.'),
          avg_logprob: z.number().describe('Mean log probability of the tokens, or 0.'),
          compression_ratio: z.number().describe('Compression ratio of the text, or 1.'),
          no_speech_prob: z.number().describe('Probability of silence, or 0.'),
        }),
      )
      .optional()
      .describe('Segments with their times, if requested.'),
    words: z
      .array(TimeRange.extend({ word: z.string().describe('The word.') }))
      .optional()
      .describe('Words with their times, if requested.'),
    usage: Usage.describe('The charged duration.'),
  })
  .meta({ id: 'VerboseTranscription' });

const SUBTITLE = '00:00:00.000 --> 00:00:01.200\nGood morning.\n\n';

const TranscriptEvent = z
  .discriminatedUnion('type', [
    z.strictObject({
      type: z.literal('transcript.text.delta').describe('Type of the event.'),
      delta: z.string().describe('The next part of the text.'),
    }),
    z.strictObject({
      type: z.literal('transcript.text.done').describe('Type of the event.'),
      text: z.string().describe('The whole transcript.'),
      usage: Usage.describe('The charged duration.'),
      cost: Cost.describe('The charge.'),
    }),
    ErrorEvent,
  ])
  .meta({ id: 'TranscriptEvent' });

const DELTA = { type: 'transcript.text.delta', delta: 'Good morning.' };
const DONE = {
  type: 'transcript.text.done',
  text: 'Good morning.',
  usage: { type: 'duration', seconds: 2 },
  cost: { usd: 0.0002, diem: 0 },
};

const { properties = {} } = z.toJSONSchema(TranscriptionFields, { io: 'input' });
// The name of a list field in a form ends with brackets.
const { timestamp_granularities: TIMES = {}, ...FIELDS } = properties;

export const AUDIO_TRANSCRIPTION: RouteDescription = {
  tag: 'Audio',
  summary: 'Transcribe a file',
  about:
    "Transcribes an uploaded audio or video file, in OpenAI's format. Formats, lengths and prices are those of `/video/transcriptions`, which takes a URL instead.",
  request: [
    formContent(['file'], {
      file: fileField('The audio or video file.'),
      ...FIELDS,
      stream: {
        type: 'boolean',
        description:
          'Streams the text as events, with `json` or `text`: `transcript.text.delta`, then one `transcript.text.done`.',
      },
      'timestamp_granularities[]': TIMES,
    }),
  ],
  response: {
    status: 200,
    about: 'The transcript in the requested `response_format`.',
    headers: ['model', 'stream'],
    content: [
      ...jsonContent(z.union([Transcription, VerboseTranscription]), {
        text: 'Good morning.',
        usage: { type: 'duration', seconds: 2 },
      }),
      textContent('text/plain', 'Good morning.'),
      textContent('text/vtt', `WEBVTT\n\n${SUBTITLE}`),
      eventContent(
        TranscriptEvent,
        [DELTA, DONE].map((event) => `data: ${JSON.stringify(event)}\n\n`).join(''),
      ),
    ],
  },
  refusals: [
    ...MODEL_REFUSALS,
    'INVALID_VIDEO_FORMAT',
    'VIDEO_DURATION_TOO_LONG',
    'ASR_UPSTREAM_VALIDATION_FAILED',
    'ASR_UPSTREAM_FAILED',
  ],
};

const { properties: TRANSLATION_FIELDS } = z.toJSONSchema(TranslationFields, { io: 'input' });

export const AUDIO_TRANSLATION: RouteDescription = {
  ...AUDIO_TRANSCRIPTION,
  summary: 'Translate speech to English',
  about:
    "Translates the speech of an uploaded audio or video file into English, in OpenAI's format. Formats, lengths and prices are those of `/audio/transcriptions`. The embedded speech model (Whisper) translates; other models depend on their engine.",
  request: [
    formContent(['file'], { file: fileField('The audio or video file.'), ...TRANSLATION_FIELDS }),
  ],
};
