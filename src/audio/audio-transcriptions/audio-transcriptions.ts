/**
 * `POST /audio/transcriptions` transcribes an uploaded file, `POST /audio/translations` translates
 * its speech into English; both in OpenAI's format.
 */
import { readFile } from '../../http/multipart.ts';
import { checked } from '../../http/read-request.ts';
import type { RequestContext } from '../../http/request-context.ts';
import { FORM_BODY, type Route } from '../../http/route.ts';
import { type TranscriptionsParts, sellTranscription } from '../sell-transcription.ts';
import type { Granularity } from '../transcription-engine.ts';
import { formatTranscript } from '../transcript-formats.ts';
import { AUDIO_TRANSCRIPTION, AUDIO_TRANSLATION } from './describe.ts';
import { TranscriptionFields, TranslationFields } from './schema.ts';

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

export function audioTranslationsRoute(parts: AudioTranscriptionsParts): Route {
  return {
    ...audioTranscriptionsRoute(parts),
    path: '/audio/translations',
    sells: 'translation',
    describe: AUDIO_TRANSLATION,
    handle: (context) => translateFile(parts, context),
  };
}

async function transcribeFile(
  parts: AudioTranscriptionsParts,
  context: RequestContext,
): Promise<void> {
  const { bytes, fields } = await readFile(context, 'file', parts.maxFileBytes);
  const form = fieldsOf(fields);
  const { response_format: format, language, temperature, prompt } = form;
  const times = timesOf(form);
  await sellTranscription(parts, context, {
    model: form.model,
    task: 'transcribe',
    options: { language: language || undefined, temperature, prompt: prompt || undefined, times },
    saveMedia: (workspace) => workspace.write(bytes),
    write: (transcript) => formatTranscript(format, times, transcript),
    asEvents: form.stream === 'true',
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

async function translateFile(
  parts: AudioTranscriptionsParts,
  context: RequestContext,
): Promise<void> {
  const { bytes, fields } = await readFile(context, 'file', parts.maxFileBytes);
  const form = checked(TranslationFields, Object.fromEntries(fields));
  const { response_format: format, temperature, prompt } = form;
  const times = format === 'json' || format === 'text' ? [] : (['segment'] as const);
  await sellTranscription(parts, context, {
    model: form.model,
    task: 'translate',
    options: { temperature, prompt: prompt || undefined, times },
    saveMedia: (workspace) => workspace.write(bytes),
    write: (transcript) => formatTranscript(format, times, transcript),
  });
}
