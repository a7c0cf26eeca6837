/** `POST /audio/translations`: translates speech in a file into English, in OpenAI's format. */
import { readFile } from '../../http/multipart.ts';
import { checked } from '../../http/read-request.ts';
import type { RequestContext } from '../../http/request-context.ts';
import { FORM_BODY, type Route } from '../../http/route.ts';
import type { AudioTranscriptionsParts } from '../audio-transcriptions/audio-transcriptions.ts';
import { sellTranscription } from '../sell-transcription.ts';
import { writtenAs } from '../transcript-forms.ts';
import { AUDIO_TRANSLATION } from './describe.ts';
import { TranslationFields } from './schema.ts';

export function audioTranslationsRoute(parts: AudioTranscriptionsParts): Route {
  return {
    method: 'POST',
    path: '/audio/translations',
    auth: 'key-or-wallet',
    body: FORM_BODY,
    sells: 'translation',
    describe: AUDIO_TRANSLATION,
    handle: (context) => translateFile(parts, context),
  };
}

async function translateFile(
  parts: AudioTranscriptionsParts,
  context: RequestContext,
): Promise<void> {
  const { bytes, fields } = await readFile(context, 'file', parts.maxFileBytes);
  const asked = checked(TranslationFields, Object.fromEntries(fields));
  const { response_format: format, temperature, prompt } = asked;
  const times = format === 'json' || format === 'text' ? [] : (['segment'] as const);
  await sellTranscription(parts, context, {
    model: asked.model,
    task: 'translate',
    options: { temperature, prompt: prompt || undefined, times },
    take: (workspace) => workspace.write(bytes),
    write: (transcript) => writtenAs(format, times, transcript),
  });
}
