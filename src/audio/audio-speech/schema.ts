/** The JSON body of `/audio/speech`. */
import * as z from 'zod';
import { ModelName } from '../../http/read-request.ts';
import { SPEECH_FORMATS, SPEECH_SPEEDS } from '../../config/config.ts';

const MAX_VOICE_CHARACTERS = 256;
/** OpenAI's limit; instructions are not charged. */
const MAX_INSTRUCTIONS_CHARACTERS = 4_096;

const voiceName = z.string().min(1).max(MAX_VOICE_CHARACTERS);

export type SpeechRequest = z.infer<typeof SpeechRequest>;
export const SpeechRequest = z.looseObject({
  model: ModelName.nullish().describe(
    'Id, trait or compatibility name. Default: the default model of type `tts`.',
  ),
  input: z.string().min(1).describe('The text to speak; its characters are charged.'),
  voice: z
    .union(
      [voiceName, z.looseObject({ id: voiceName.describe('Name of the voice.') })],
      'Expected a name',
    )
    .nullish()
    .describe("One of the model's voices. Default: the `default_voice` of the model."),
  instructions: z
    .string()
    .max(MAX_INSTRUCTIONS_CHARACTERS)
    .nullish()
    .describe('Instructions for the voice, for engines that support them.'),
  response_format: z
    .enum(SPEECH_FORMATS)
    .nullish()
    .describe('Audio format; `pcm` is 16-bit little-endian.'),
  speed: z
    .number()
    .min(SPEECH_SPEEDS.min)
    .max(SPEECH_SPEEDS.max)
    .nullish()
    .describe('Speed; 1 is the normal speed.'),
  stream_format: z.enum(['audio', 'sse']).nullish().describe('`sse`: events with base64 audio.'),
  user: z.string().nullish().describe('Discarded.'),
});
