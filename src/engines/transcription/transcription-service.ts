/**
 * Transcription over HTTP as OpenAI speaks it: `POST /v1/audio/transcriptions` with multipart
 * `file`, `model`, `language`, `response_format` (json, text, verbose_json).
 *
 * Any media goes in: its sound is extracted in the sandbox, speech is found, and each piece is
 * recognised by itself, so that length costs time and not memory.
 */
import { type FileHandle, mkdir, mkdtemp, open, rm } from 'node:fs/promises';
import type { ServerResponse } from 'node:http';
import { join } from 'node:path';
import { z } from 'zod';
import { Fault } from '../../core/faults.ts';
import { reasonOf } from '../../core/log.ts';
import {
  type LocalRequest,
  type LocalService,
  answerBytes,
  answerJson,
} from '../local/local-server.ts';
import { JobQueue } from '../../core/job-queue.ts';
import { isMultipart, readUpload } from '../local/upload.ts';
import { SPEECH_RATE } from '../media/media-task.ts';
import type { Media } from '../media/media.ts';
import { Recognizer, type Sherpa, SpeechModel } from './recognizer.ts';
import { readSamples } from './speech-ranges.ts';

const MAX_UPLOAD_BYTES = 500_000_000;
const MAX_WAITING = 16;
const RETRY_AFTER_SECONDS = 10;
const PERCENT = 100;

const Fields = z.object({
  language: z
    .string()
    .regex(/^[a-z]{2,3}$/, 'Must be a language code such as en')
    .or(z.literal(''))
    .default(''),
  response_format: z.enum(['json', 'text', 'verbose_json']).default('json'),
});

const ModelMessage = z.object({
  type: z.literal('model'),
  model: SpeechModel,
  vadPath: z.string().optional(),
});
const ProgressMessage = z.object({
  type: z.literal('progress'),
  fraction: z.number(),
  remainingMs: z.number().nullable(),
});

interface Segment {
  readonly id: number;
  readonly start: number;
  readonly end: number;
  readonly text: string;
  readonly language: string;
}

export interface TranscriptionParts {
  readonly sherpa: Sherpa;
  readonly media: Media;
  readonly directory: string;
  readonly threads: number;
  readonly maxSeconds: number;
  readonly report: (message: object) => void;
}

export class TranscriptionService implements LocalService {
  readonly #parts: TranscriptionParts;
  readonly #queue = new JobQueue({
    running: 1,
    waiting: MAX_WAITING,
    retryAfterSeconds: RETRY_AFTER_SECONDS,
  });
  #recognizer: Recognizer | undefined;
  #fetching: z.infer<typeof ProgressMessage> | undefined;

  constructor(parts: TranscriptionParts) {
    this.#parts = parts;
  }

  async handle(request: LocalRequest, response: ServerResponse): Promise<void> {
    if (request.path === '/v1/models' && request.method === 'GET') {
      const data = [{ id: 'whisper', object: 'model', owned_by: 'farebox' }];
      return answerJson(response, 200, { object: 'list', data });
    }
    if (request.path !== '/v1/audio/transcriptions') throw new Fault('NOT_FOUND');
    if (request.method !== 'POST') throw new Fault('METHOD_NOT_ALLOWED');
    const recognizer = this.#recognizer;
    if (recognizer === undefined) {
      this.#parts.report({ type: 'used' });
      throw this.#notThere();
    }
    await mkdir(this.#parts.directory, { recursive: true });
    const directory = await mkdtemp(join(this.#parts.directory, 'audio-'));
    try {
      await this.#transcribe(recognizer, directory, request, response);
    } finally {
      await rm(directory, { recursive: true, force: true });
    }
  }

  onMessage(message: unknown): void {
    const progress = ProgressMessage.safeParse(message);
    if (progress.success) this.#fetching = progress.data;
    const model = ModelMessage.safeParse(message);
    if (!model.success) return;
    this.load(model.data.model, model.data.vadPath).catch((error: unknown) => {
      this.#parts.report({ type: 'model-failed', error: reasonOf(error) });
    });
  }

  /** Takes a model into use; requests that run keep theirs. */
  async load(model: SpeechModel, vadPath: string | undefined): Promise<void> {
    const { sherpa, threads, report } = this.#parts;
    this.#recognizer = await Recognizer.load(sherpa, { model, threads, vadPath });
    report({ type: 'model-loaded', name: model.kind });
  }

  #notThere(): Fault {
    const { fraction = 0, remainingMs = null } = this.#fetching ?? {};
    const left = remainingMs === null ? '' : `, about ${Math.ceil(remainingMs / 1000)} s left`;
    return new Fault('MODEL_OFFLINE', {
      message: `The speech model is being fetched: ${Math.floor(fraction * PERCENT)} %${left}`,
      retryAfterSeconds: Math.max(RETRY_AFTER_SECONDS, Math.ceil((remainingMs ?? 0) / 1000)),
    });
  }

  async #transcribe(
    recognizer: Recognizer,
    directory: string,
    request: LocalRequest,
    response: ServerResponse,
  ): Promise<void> {
    if (!isMultipart(request.raw)) {
      throw new Fault('INVALID_CONTENT_TYPE', { message: 'Send multipart/form-data with a file' });
    }
    const upload = await readUpload(request.raw, { maxFileBytes: MAX_UPLOAD_BYTES, directory });
    const path = upload.files.get('file')?.path;
    if (path === undefined)
      throw new Fault('INVALID_REQUEST', { message: 'The field "file" is missing' });
    const fields = parseFields(Object.fromEntries(upload.fields));
    const { media, maxSeconds } = this.#parts;
    const pcm = join(directory, 'speech.pcm');
    const call = { signal: request.signal };
    const { durationMs } = await media.extractAudio(path, pcm, maxSeconds, call);
    const file = await open(pcm, 'r');
    try {
      const work = (): Promise<Segment[]> =>
        recognizeFile(recognizer, file, fields.language, request.signal);
      const segments = await this.#queue.run(work, request.signal);
      answer(response, fields.response_format, durationMs, segments);
    } finally {
      await file.close();
    }
  }
}

function parseFields(given: Record<string, string>): z.infer<typeof Fields> {
  const parsed = Fields.safeParse(given);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw new Fault('INVALID_REQUEST', {
    message: `Field "${issue?.path.join('.')}": ${issue?.message}`,
  });
}

async function recognizeFile(
  recognizer: Recognizer,
  file: FileHandle,
  language: string,
  signal: AbortSignal,
): Promise<Segment[]> {
  const { size } = await file.stat();
  const ranges = await recognizer.ranges(file, Math.floor(size / 2), signal);
  const segments: Segment[] = [];
  for (const range of ranges) {
    // Between pieces is where a caller that left is noticed.
    signal.throwIfAborted();
    const heard = await recognizer.recognize(await readSamples(file, range), language);
    if (heard.text === '') continue;
    segments.push({
      id: segments.length,
      start: range.start / SPEECH_RATE,
      end: range.end / SPEECH_RATE,
      ...heard,
    });
  }
  return segments;
}

/** The language of most of the speech; empty when no piece has one. */
function mainLanguage(segments: readonly Segment[]): string {
  const seconds = new Map<string, number>();
  for (const { language, start, end } of segments) {
    if (language !== '') seconds.set(language, (seconds.get(language) ?? 0) + end - start);
  }
  const [best] = [...seconds].sort((a, b) => b[1] - a[1]);
  return best?.[0] ?? '';
}

function answer(
  response: ServerResponse,
  format: z.infer<typeof Fields>['response_format'],
  durationMs: number,
  segments: readonly Segment[],
): void {
  const text = segments.map((segment) => segment.text).join(' ');
  if (format === 'text') {
    return answerBytes(response, 200, 'text/plain; charset=utf-8', Buffer.from(text));
  }
  const language = mainLanguage(segments);
  if (format === 'json') return answerJson(response, 200, { text, language });
  const shown = segments.map(({ id, start, end, text }) => ({ id, start, end, text }));
  const duration = durationMs / 1000;
  answerJson(response, 200, { task: 'transcribe', language, duration, text, segments: shown });
}
