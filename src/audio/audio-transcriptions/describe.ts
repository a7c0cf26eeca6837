/** The description of `/audio/transcriptions` in the API document. */
import { z } from 'zod';
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
import { TranscriptionFields } from './schema.ts';

const Usage = z.object({
  type: z.literal('duration').describe('What is counted.'),
  seconds: z.int().describe('Seconds that were charged, begun ones whole.'),
});
const Stretch = z.object({
  start: z.number().describe('Seconds from the beginning.'),
  end: z.number().describe('Seconds from the beginning.'),
});
const Transcription = z
  .object({
    text: z.string().describe('What is said.'),
    usage: Usage.describe('What was charged for.'),
  })
  .meta({ id: 'Transcription' });
const VerboseTranscription = z
  .object({
    task: z.enum(['transcribe', 'translate']).describe('Kind of the work.'),
    language: z.string().describe('Language code; `und` when the engine does not tell.'),
    duration: z.number().describe('Seconds.'),
    text: z.string().describe('What is said.'),
    segments: z
      .array(
        Stretch.extend({
          id: z.int().describe('Place among the segments, from 0.'),
          text: z.string().describe('What is said in it.'),
        }).loose(),
      )
      .optional()
      .describe('What is said, sentence by sentence; missing unless asked for.'),
    words: z
      .array(Stretch.extend({ word: z.string().describe('The word.') }))
      .optional()
      .describe('What is said, word by word; missing unless asked for.'),
    usage: Usage.describe('What was charged for.'),
  })
  .meta({ id: 'VerboseTranscription' });

const SUBTITLE = '00:00:00.000 --> 00:00:01.200\nGood morning.\n\n';

const TranscriptEvent = z
  .discriminatedUnion('type', [
    z.strictObject({
      type: z.literal('transcript.text.delta').describe('What the event is.'),
      delta: z.string().describe('The next words.'),
    }),
    z.strictObject({
      type: z.literal('transcript.text.done').describe('What the event is.'),
      text: z.string().describe('All that is said: the words of all events before.'),
      usage: Usage.describe('What was charged for.'),
      cost: Cost.describe('What was charged.'),
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
    "What is said in an uploaded sound or video, in OpenAI's form. The same formats, lengths and prices as `/video/transcriptions`, which takes a URL instead.",
  request: [
    formContent(['file'], {
      file: fileField('The file of the sound or video.'),
      ...FIELDS,
      stream: {
        type: 'boolean',
        description:
          'Sends the text as events while it is written, with `json` and `text`: `transcript.text.delta`, and at the end `transcript.text.done`.',
      },
      'timestamp_granularities[]': TIMES,
    }),
  ],
  response: {
    status: 200,
    about: 'The transcript, as `response_format` asks.',
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
