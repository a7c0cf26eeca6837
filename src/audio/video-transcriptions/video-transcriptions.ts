/** `POST /video/transcriptions`: transcribes media of a public URL, fetched through the guard. */
import { Fault } from '../../core/faults.ts';
import type { MediaWorkspace, MediaFile } from '../../documents/media-files.ts';
import { type ReadLargeJson, readJson } from '../../http/read-request.ts';
import type { RequestContext } from '../../http/request-context.ts';
import { JSON_BODY, type Route } from '../../http/route.ts';
import {
  type Transcript,
  type TranscriptionsParts,
  sellTranscription,
} from '../sell-transcription.ts';
import { NO_OPTIONS } from '../transcription-engine.ts';
import { jsonBody, textBody } from '../transcript-formats.ts';
import { TRANSCRIPTION } from './describe.ts';
import { TranscriptionRequest } from './schema.ts';

export interface VideoTranscriptionsParts extends TranscriptionsParts {
  /** Size limit of the fetched media. */
  readonly maxBytes: number;
  readonly readLargeJson: ReadLargeJson;
}

export function videoTranscriptionsRoute(parts: VideoTranscriptionsParts): Route {
  return {
    method: 'POST',
    path: '/video/transcriptions',
    auth: 'key-or-wallet',
    body: JSON_BODY,
    sells: 'transcription',
    describe: TRANSCRIPTION,
    handle: (context) => transcribeUrl(parts, context),
  };
}

async function transcribeUrl(
  parts: VideoTranscriptionsParts,
  context: RequestContext,
): Promise<void> {
  const request = await readJson(context, TranscriptionRequest, parts.readLargeJson);
  const { maxBytes } = parts;
  await sellTranscription(parts, context, {
    model: request.model ?? undefined,
    task: 'transcribe',
    options: NO_OPTIONS,
    saveMedia: (workspace: MediaWorkspace, signal: AbortSignal): Promise<MediaFile> =>
      workspace.fetch(request.url, { maxBytes, signal }).catch(asTooLong),
    write: (transcript) =>
      request.response_format === 'text' ? textBody(transcript.text) : asJson(transcript),
  });
}

function asJson({ text, language = 'und' }: Transcript) {
  return jsonBody({ transcript: text, lang: language });
}

/** A download above its limit is 422, because 413 is for request bodies. */
function asTooLong(error: unknown): never {
  if (error instanceof Fault && error.code === 'PAYLOAD_TOO_LARGE') {
    const { message } = error;
    throw new Fault('ASR_UPSTREAM_VALIDATION_FAILED', { message });
  }
  throw error;
}
