/**
 * Entry file of the speech engine. It implements `POST /v1/audio/transcriptions` and
 * `/v1/audio/translations` (into English) of the OpenAI API, with multipart `file`, `model`,
 * `language`, `response_format` (json, text, verbose_json) and `stream`, and `POST
 * /v1/audio/speech`.
 *
 * It accepts any media format: the sandbox extracts the sound, and each range of speech is
 * recognised separately, so that memory use does not grow with the length.
 */
import { mkdir, mkdtemp, open, rm } from 'node:fs/promises';
import type { ServerResponse } from 'node:http';
import { join } from 'node:path';
import * as z from 'zod';
import { systemClock } from '../../src/core/clock.ts';
import { Fault } from '../../src/core/faults.ts';
import { engineQueue } from '../server/engine-queue.ts';
import { reasonOf } from '../../src/core/log.ts';
import {
  type EngineRequest,
  childLog,
  nativePackage,
  sendBytes,
  sendJson,
  serveEngine,
  writeEvent,
} from '../server/server.ts';
import { fieldsIn, filePathOf, readUpload } from '../server/request-body.ts';
import { VOICE } from '../../src/engines/embedded/program-contract.ts';
import { Media } from '../../src/engines/media/media.ts';
import {
  type RecognitionOptions,
  Recognizer,
  type Segment,
  type Sherpa,
  SpeechModel,
} from './recognizer.ts';
import { RuntimePackages, Speaker } from './speaker.ts';
import { VoiceFiles } from './voice.ts';

const MAX_UPLOAD_BYTES = 500_000_000;
const RETRY_AFTER_SECONDS = 10;
const TURNS = { running: 1, waiting: 16, retryAfterSeconds: RETRY_AFTER_SECONDS };

const ReadyModel = z.object({ model: SpeechModel, vadPath: z.string().optional() });
const ReadyModels = ReadyModel.partial().extend({ voice: VoiceFiles.optional() });
const Settings = ReadyModels.extend({
  directory: z.string(),
  threads: z.int().min(1),
  maxSeconds: z.number().min(1),
  ffmpeg: z.string().optional(),
  ffprobe: z.string().optional(),
  searchPath: z.string(),
  runtime: RuntimePackages.optional(),
});
const ModelMessage = ReadyModels.extend({ type: z.literal('model') });
const Fields = z.object({
  language: z
    .string()
    .regex(/^[a-z]{2,3}$/, 'Must be a language code such as en')
    .or(z.literal(''))
    .default(''),
  response_format: z.enum(['json', 'text', 'verbose_json']).default('json'),
  stream: z.enum(['true', 'false']).default('false'),
  // The last of repeated fields counts; clients that request words send `word` last.
  'timestamp_granularities[]': z.enum(['segment', 'word']).optional(),
});

serveEngine(async (given, report, dataFolder) => {
  const settings = Settings.parse(given);
  const { directory: root, threads, maxSeconds, ffmpeg, ffprobe, searchPath, runtime } = settings;
  const loaded = await nativePackage<{ default: Sherpa }>('sherpa-onnx-node', 'Transcription');
  await rm(root, { recursive: true, force: true });
  const programs = { ffmpeg, ffprobe, searchPath, dataFolder };
  const media = await Media.open({ ...programs, log: childLog(), clock: systemClock() });
  await media.tryOut(root);
  // Long recordings take turns in steps; short recordings and the pieces of speech run beside them.
  const [short, long] = [engineQueue(TURNS), engineQueue(TURNS)];
  let recognizer: Recognizer | undefined;
  const requestVoice = (): void => report({ type: 'used', model: VOICE });
  const speaker = new Speaker({ media, threads, runtime, queue: short, requestVoice });

  /** Switches to models; running requests keep the previous ones. */
  async function load({ model, vadPath, voice }: z.infer<typeof ReadyModels>): Promise<void> {
    if (voice !== undefined) speaker.use(voice);
    if (model === undefined) return;
    recognizer = await Recognizer.load(loaded.default, { model, threads, vadPath, cpuMs });
  }
  await load(settings);

  async function transcribe(
    { raw, caller, signal }: EngineRequest,
    response: ServerResponse,
    task: RecognitionOptions['task'],
    directory: string,
  ): Promise<void> {
    const used = recognizer;
    if (used === undefined) {
      report({ type: 'used' });
      throw new Fault('MODEL_OFFLINE', {
        message: 'The speech model is being downloaded',
        retryAfterSeconds: RETRY_AFTER_SECONDS,
      });
    }
    const upload = await readUpload(raw, { maxFileBytes: MAX_UPLOAD_BYTES, directory });
    const path = filePathOf(upload, 'file');
    const { language, response_format: format, stream, ...form } = fieldsIn(upload, Fields);
    const needsWords = form['timestamp_granularities[]'] === 'word';
    const options = { language, task, needsWords };
    used.requireSupported(options);
    const pcm = join(directory, 'speech.pcm');
    const call = { signal, caller };
    const { durationMs } = await media.extractAudio(path, pcm, maxSeconds, call);
    const file = await open(pcm, 'r');
    try {
      const isStream = stream === 'true';
      const onSegment = isStream ? segmentEvents(response) : undefined;
      const turns = { short: short.turnsOf(caller, signal), long: long.turnsOf(caller, signal) };
      const segments = await used.recognizeFile(file, options, turns, onSegment);
      if (isStream) endEvents(response, segments);
      else sendTranscript(response, { format, task, durationMs, needsWords }, segments);
    } finally {
      await file.close();
    }
  }

  const handlerOf =
    (task: RecognitionOptions['task']) =>
    async (request: EngineRequest, response: ServerResponse): Promise<void> => {
      await mkdir(root, { recursive: true });
      const directory = await mkdtemp(join(root, 'audio-'));
      try {
        await transcribe(request, response, task, directory);
      } finally {
        await rm(directory, { recursive: true, force: true });
      }
    };

  return {
    models: ['whisper', VOICE],
    routes: {
      'POST /v1/audio/transcriptions': handlerOf('transcribe'),
      'POST /v1/audio/translations': handlerOf('translate'),
      'POST /v1/audio/speech': (request, response) => speaker.speak(request, response),
    },
    onMessage(message) {
      const parsed = ModelMessage.safeParse(message);
      if (!parsed.success) return;
      load(parsed.data).catch((error: unknown) => {
        report({ type: 'model-failed', error: reasonOf(error) });
      });
    },
  };
});

function cpuMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1_000;
}

/** The language of most of the speech; empty if no segment has one. */
function mainLanguage(segments: readonly Segment[]): string {
  const seconds = new Map<string, number>();
  for (const { language, start, end } of segments) {
    if (language !== '') seconds.set(language, (seconds.get(language) ?? 0) + end - start);
  }
  const [best] = [...seconds].sort((a, b) => b[1] - a[1]);
  return best?.[0] ?? '';
}

/** Sends each segment as an event. */
function segmentEvents(response: ServerResponse): (segment: Segment) => void {
  return ({ id, text }) => {
    // No backpressure: a recording has few segments, and only their text is buffered.
    const delta = id === 0 ? text : ` ${text}`;
    writeEvent(response, { type: 'transcript.text.delta', delta });
  };
}

function endEvents(response: ServerResponse, segments: readonly Segment[]): void {
  writeEvent(response, { type: 'transcript.text.done', text: textOf(segments) });
  response.end();
}

function textOf(segments: readonly Segment[]): string {
  return segments.map(({ text }) => text).join(' ');
}

interface ResponseForm {
  readonly format: z.infer<typeof Fields>['response_format'];
  readonly task: RecognitionOptions['task'];
  readonly durationMs: number;
  readonly needsWords: boolean;
}

function sendTranscript(
  response: ServerResponse,
  { format, task, durationMs, needsWords }: ResponseForm,
  segments: readonly Segment[],
): void {
  const text = textOf(segments);
  if (format === 'text') {
    return sendBytes(response, 200, 'text/plain; charset=utf-8', Buffer.from(text));
  }
  // A translation is English, whatever the spoken language.
  const language = task === 'translate' ? 'en' : mainLanguage(segments);
  if (format === 'json') return sendJson(response, 200, { text, language });
  const shown = segments.map(({ id, start, end, text }) => ({ id, start, end, text }));
  const duration = durationMs / 1000;
  const words = segments.flatMap((segment) => segment.words);
  const timed = { segments: shown, ...(needsWords && { words }) };
  sendJson(response, 200, { task, language, duration, text, ...timed });
}
