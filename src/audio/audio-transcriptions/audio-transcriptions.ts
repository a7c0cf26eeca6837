/** `POST /audio/transcriptions`: transcribes an uploaded file, in OpenAI's format. */
import { readFile } from '../../http/multipart.ts';
import { checked } from '../../http/read-request.ts';
import type { RequestContext } from '../../http/request-context.ts';
import { FORM_BODY, type Route } from '../../http/route.ts';
import { type TranscriptionsParts, sellTranscription } from '../sell-transcription.ts';
import type { Granularity } from '../transcription-engine.ts';
import { writtenAs } from '../transcript-forms.ts';
import { AUDIO_TRANSCRIPTION } from './describe.ts';
import { TranscriptionFields } from './schema.ts';

export interface AudioTranscriptionsParts extends TranscriptionsParts {
  readonly maxFileBytes: number;
}

export function audioTranscriptionsRoute(parts: AudioTranscriptionsParts): Route {
  return {
    method: 'POST',
    path: '/audio/transcriptions',
    auth: 'key-or-wallet',
    body: FORM_BODY,
    sells: 'transcription',
    describe: AUDIO_TRANSCRIPTION,
    handle: (context) => transcribeFile(parts, context),
  };
}

async function transcribeFile(
  parts: AudioTranscriptionsParts,
  context: RequestContext,
): Promise<void> {
  const { bytes, fields } = await readFile(context, 'file', parts.maxFileBytes);
  const asked = fieldsOf(fields);
  const { response_format: format, language, temperature, prompt } = asked;
  const times = timesOf(asked);
  await sellTranscription(parts, context, {
    model: asked.model,
    task: 'transcribe',
    options: { language: language || undefined, temperature, prompt: prompt || undefined, times },
    take: (workspace) => workspace.write(bytes),
    write: (transcript) => writtenAs(format, times, transcript),
    asEvents: asked.stream === 'true',
  });
}

/** SDKs send a list as repeated fields with `[]` after the name. */
function fieldsOf(fields: URLSearchParams): TranscriptionFields {
  const name = 'timestamp_granularities';
  const times = [...fields.getAll(`${name}[]`), ...fields.getAll(name)];
  return checked(TranscriptionFields, { ...Object.fromEntries(fields), [name]: times });
}

/** The time granularities that the response format needs; segments before words. */
function timesOf(fields: TranscriptionFields): Granularity[] {
  const { response_format: format, timestamp_granularities: named } = fields;
  if (format === 'json' || format === 'text') return [];
  return named.length === 0 ? ['segment'] : [...new Set(named)].toSorted();
}
