/** The responses and the description of `/audio/speech` in the API document. */
import * as z from 'zod';
import {
  type RouteDescription,
  bytesContent,
  eventContent,
  jsonContent,
} from '../../http/describe.ts';
import { Cost } from '../../http/openapi/cost.ts';
import { ErrorEvent } from '../../http/openapi/error-event.ts';
import { MODEL_REFUSALS } from '../../http/openapi/refusals.ts';
import { SpeechRequest } from './schema.ts';

const Count = z.int().min(0);

const SpeechEvent = z
  .discriminatedUnion('type', [
    z.strictObject({
      type: z.literal('speech.audio.delta').describe('Type of the event.'),
      audio: z.string().describe('The next bytes of the audio, as base64.'),
    }),
    z.strictObject({
      type: z.literal('speech.audio.done').describe('Type of the event.'),
      usage: z
        .strictObject({
          input_tokens: Count.describe('Estimate from the bytes of the text.'),
          output_tokens: Count.describe('Always 0: audio is not counted in tokens.'),
          total_tokens: Count.describe('Sum of both.'),
        })
        .describe('For compatibility; speech is charged by the character.'),
      cost: Cost.describe('The charge.'),
    }),
    ErrorEvent,
  ])
  .meta({ id: 'SpeechEvent' });

const DELTA = { type: 'speech.audio.delta', audio: 'SUQzBAA=' };
const DONE = {
  type: 'speech.audio.done',
  usage: { input_tokens: 4, output_tokens: 0, total_tokens: 4 },
  cost: { usd: 0.000195, diem: 0 },
};

export const SPEECH_TYPES = {
  mp3: 'audio/mpeg',
  opus: 'audio/opus',
  aac: 'audio/aac',
  flac: 'audio/flac',
  wav: 'audio/wav',
  pcm: 'audio/pcm',
} as const;

export const AUDIO_SPEECH: RouteDescription = {
  tag: 'Audio',
  summary: 'Speak a text',
  about:
    "Generates speech from text, in OpenAI's format. The audio is sent while it is generated and charged by the characters of the text. `GET /models?type=tts` lists the voices and formats of each model.",
  request: jsonContent(SpeechRequest.meta({ id: 'SpeechRequest' }), {
    model: 'default',
    input: 'Good morning.',
    voice: 'alloy',
  }),
  response: {
    status: 200,
    about: 'The audio in the requested `response_format`. Default: MP3.',
    headers: ['model', 'stream'],
    content: [
      ...Object.values(SPEECH_TYPES).map((type) => bytesContent(type)),
      eventContent(
        SpeechEvent,
        [DELTA, DONE].map((event) => `data: ${JSON.stringify(event)}\n\n`).join(''),
      ),
    ],
  },
  refusals: MODEL_REFUSALS,
};
