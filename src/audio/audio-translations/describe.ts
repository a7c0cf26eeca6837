/** The description of `/audio/translations` in the API document. */
import { z } from 'zod';
import { type RouteDescription, fileField, formContent } from '../../http/describe.ts';
import { AUDIO_TRANSCRIPTION } from '../audio-transcriptions/describe.ts';
import { TranslationFields } from './schema.ts';

const { properties: FIELDS } = z.toJSONSchema(TranslationFields, { io: 'input' });

export const AUDIO_TRANSLATION: RouteDescription = {
  ...AUDIO_TRANSCRIPTION,
  summary: 'Translate speech to English',
  about:
    "What is said in an uploaded sound or video, in English, whatever the language of the speech; in OpenAI's form. The same formats, lengths and prices as `/audio/transcriptions`. The embedded speech model (Whisper) translates; of others it depends on the engine.",
  request: [
    formContent(['file'], {
      file: fileField('The sound or the video.'),
      ...FIELDS,
    }),
  ],
};
