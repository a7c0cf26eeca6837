/** The description of `/video/transcriptions` in the API document. */
import * as z from 'zod';
import { type RouteDescription, jsonContent, textContent } from '../../http/describe.ts';
import { MODEL_REFUSALS } from '../../http/openapi/refusals.ts';
import { TranscriptionRequest } from './schema.ts';

export const TRANSCRIPTION: RouteDescription = {
  tag: 'Video',
  summary: 'Transcribe a video',
  about: 'Transcribes the media of a public URL: up to two hours and 500 MB.',
  request: jsonContent(TranscriptionRequest, { url: 'https://example.com/talk.mp4' }),
  response: {
    status: 200,
    about: 'The transcript.',
    headers: ['model'],
    content: [
      ...jsonContent(
        z
          .strictObject({
            transcript: z.string().describe('The transcript.'),
            lang: z.string().describe('Language code.'),
          })
          .meta({ id: 'Transcript' }),
        { transcript: 'Good morning.', lang: 'en' },
      ),
      textContent('text/plain', 'Good morning.'),
    ],
  },
  refusals: [
    ...MODEL_REFUSALS,
    'UNSAFE_URL',
    'FETCH_FAILED',
    'INVALID_AUDIO_FORMAT',
    'INVALID_VIDEO_FORMAT',
    'VIDEO_DURATION_TOO_LONG',
    'VIDEO_DURATION_TOO_SHORT',
    'ASR_UPSTREAM_VALIDATION_FAILED',
    'ASR_UPSTREAM_FAILED',
  ],
};
