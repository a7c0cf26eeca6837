/**
 * The embedded engines that a configuration enables, and the models that each of them offers. If the
 * operator has configured a model for a kind of work, the embedded engine for it is not offered.
 */
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import type { DiscoveredModel } from '../../catalog/catalog.ts';
import {
  type Config,
  type ModelType,
  SpeechModelSettings,
  VideoModelSettings,
} from '../../config/config.ts';
import { HOUR_MS, MINUTE_MS } from '../../core/clock.ts';
import type { Ids } from '../../core/ids.ts';
import type { EngineSettings } from '../engines.ts';
import { Media } from '../media/media.ts';
import type { EngineOffer } from './embedded-engine.ts';
import { LlamaEngine } from './llama-engine.ts';
import { type FetchModel, type FetchParts, hasModel, modelFetcher } from './model-files.ts';
import type { EngineSet } from './packages.ts';
import {
  DEMO_MODEL,
  type LlamaModelSpec,
  type LoadedLlamaModel,
  MAX_RERANKED,
  RERANK_MODEL,
  SENTENCE_DIMENSIONS,
  SENTENCE_MODEL,
  VOICE,
} from './program-contract.ts';
import {
  SPEECH_MODEL_FILES,
  VOICE_FILES,
  cutoutEngine,
  cutoutModelName,
  demoEngine,
  isFetchedCutout,
  sentenceEngine,
  speechEngine,
  videoEngine,
  voiceName,
} from './programs.ts';
import type { EngineProcessParts } from './supervisor.ts';

export interface LocalEnginesParts extends FetchParts {
  readonly ids: Ids;
  readonly onChange: () => void;
}

/** Describes an engine; `onChange` is called when its process starts and when it has ended. */
export type DescribeEngine = (onChange: () => void) => EngineOffer;

const CUTOUT_LIMIT_MS = 5 * MINUTE_MS;
/** Enough for a piece of ten minutes on a small machine, behind others in the queue. */
const SPEECH_LIMIT_MS = HOUR_MS;
const VIDEO_LIMIT_MS = 10 * MINUTE_MS;

/** Threads of each embedded engine: all cores except one, which is left to the server. */
function threadsOf({ embedded }: Config): number {
  return embedded.threads ?? Math.max(1, availableParallelism() - 1);
}

function processParts(parts: LocalEnginesParts, onChange: () => void): EngineProcessParts {
  const { config, log, clock, ids } = parts;
  return { dataFolder: config.dataFolder, log, clock, ids, onChange };
}

function hasType({ models }: Config, type: ModelType): boolean {
  return models.some((model) => model.type === type);
}

function mediaCalls(protocol: EngineSettings['protocol'], limitMs: number): EngineOffer['calls'] {
  const timeLimits = { firstByteMs: limitMs, idleMs: limitMs, totalMs: limitMs };
  return { protocol, timeLimits, isOwn: true, takesTurns: true };
}

/** Fetches the files of a model; `kind` is shown with the name of each file. */
function fetcher(parts: LocalEnginesParts, kind: string): FetchModel {
  return modelFetcher(parts, ({ name }) => `${kind} (${name})`);
}

const LLAMA_ENGINE = 'embedded';
const DEMO_CONTEXT_TOKENS = 8_192;
const DEMO_DESCRIPTION =
  'A demo model with the word statistics of a short text. Its output has no meaning; it shows that the API works.';

export function llamaEngine(
  parts: LocalEnginesParts,
  models: readonly LlamaModelSpec[],
  onChange: () => void,
): LlamaEngine {
  const threads = threadsOf(parts.config);
  return new LlamaEngine({ threads, models, ...processParts(parts, onChange) });
}

export function llamaOffer(llama: LlamaEngine): EngineOffer {
  return {
    id: LLAMA_ENGINE,
    needs: ['llama'],
    process: llama.process,
    calls: { protocol: 'openai', takesTurns: true },
    models: () => llama.models().map(llamaModel),
  };
}

function llamaModel(model: LoadedLlamaModel): DiscoveredModel {
  const { id, isDemo, contextTokens, dimensions } = model;
  const common = {
    id,
    origin: isDemo ? 'demo' : 'downloaded',
    replicas: [{ engine: LLAMA_ENGINE, model: id }],
    context: contextTokens,
    ...(isDemo && { description: DEMO_DESCRIPTION }),
  } as const;
  if (model.work === 'embeddings') {
    const embedding = { dimensions, maxInputTokens: contextTokens, customDimensions: true };
    // Demo vectors carry no meaning: they are free, and never a default.
    return { ...common, type: 'embedding', embedding, ...(isDemo && { price: { input: '0' } }) };
  }
  const reasoning = model.canReason ? (['reasoning', 'reasoningEffort'] as const) : [];
  const capabilities = ['functionCalling', 'responseSchema', 'logProbs', ...reasoning] as const;
  return { ...common, type: 'text', capabilities };
}

/** The demo without weights, which works on a machine without a network. */
export function demoOffer(parts: LocalEnginesParts): DescribeEngine {
  const id = 'embedded-demo';
  return (onChange) => ({
    id,
    needs: [],
    process: demoEngine(processParts(parts, onChange)),
    calls: { protocol: 'openai', isOwn: true },
    models: () => [
      {
        id: DEMO_MODEL,
        type: 'text',
        origin: 'demo',
        description:
          'Responds with a fixed text. It shows that the API works, until there is a model.',
        replicas: [{ engine: id, model: DEMO_MODEL }],
        context: DEMO_CONTEXT_TOKENS,
        price: { input: '0', output: '0' },
      },
    ],
  });
}

export function sentenceOffers(parts: LocalEnginesParts): DescribeEngine[] {
  const { config } = parts;
  if (!config.embedded.sentences || hasType(config, 'embedding')) return [];
  const id = 'embedded-sentences';
  const maxInputTokens = 8_192;
  const sentences: DiscoveredModel = {
    id: SENTENCE_MODEL,
    type: 'embedding',
    origin: 'downloaded',
    description:
      'Embeddings of English sentences: sentences with similar meaning have close vectors.',
    replicas: [{ engine: id, model: SENTENCE_MODEL }],
    embedding: { dimensions: SENTENCE_DIMENSIONS, maxInputTokens, customDimensions: false },
  };
  const rerank: DiscoveredModel = {
    id: RERANK_MODEL,
    type: 'rerank',
    origin: 'downloaded',
    description: 'Ranks English texts by the similarity of their embeddings to that of the query.',
    replicas: [{ engine: id, model: RERANK_MODEL }],
    rerank: { maxDocuments: MAX_RERANKED },
  };
  return [
    (onChange) => ({
      id,
      needs: ['sentences'],
      process: sentenceEngine(processParts(parts, onChange)),
      calls: { protocol: 'openai', isOwn: true, takesTurns: true },
      models: () => (hasType(config, 'rerank') ? [sentences] : [sentences, rerank]),
    }),
  ];
}

/** Returns the media engines that the configuration does not replace. Each works in a folder inside `work`. */
export async function mediaOffers(
  parts: LocalEnginesParts,
  work: string,
): Promise<DescribeEngine[]> {
  const { config } = parts;
  if (!config.embedded.media) return [];
  const needs = await mediaNeeds(parts);
  const hasSpeech = !hasType(config, 'asr') && (await hasSpeechModel(config));
  return [
    ...(hasType(config, 'inpaint') ? [] : [cutoutOffer(parts)]),
    videoOffer(parts, join(work, 'video'), needs),
    ...(hasSpeech ? [speechOffer(parts, join(work, 'speech'), needs, await hasVoice(config))] : []),
  ];
}

/** The packages for media work; empty if the machine has the programs. */
async function mediaNeeds(parts: LocalEnginesParts): Promise<readonly EngineSet[]> {
  const { config, clock, log } = parts;
  const { media, searchPath } = config;
  const { ffmpeg, ffprobe } = media;
  try {
    const { tool } = await Media.open({ ffmpeg, ffprobe, searchPath, log, clock });
    return tool === 'ffmpeg' ? [] : ['media'];
  } catch {
    // A configured program is missing: its engines report that when they start.
    return [];
  }
}

/** Whether a speech model is available or may be fetched. */
async function hasSpeechModel({ embedded, media, dataFolder }: Config): Promise<boolean> {
  if (embedded.download || media.speechModel !== undefined) return true;
  const files = SPEECH_MODEL_FILES.map((file) => hasModel(dataFolder, file));
  return (await Promise.all(files)).every(Boolean);
}

/**
 * Whether the speech engine can speak, and the operator has no voice at another engine. On Windows
 * the two ONNX runtimes of the engine have the same file name and cannot be loaded together.
 */
async function hasVoice(config: Config): Promise<boolean> {
  const { embedded, media, dataFolder } = config;
  if (hasType(config, 'tts') || process.platform === 'win32') return false;
  if (embedded.download || media.voiceModel !== undefined) return true;
  const files = VOICE_FILES.map((file) => hasModel(dataFolder, file));
  return (await Promise.all(files)).every(Boolean);
}

function cutoutOffer(parts: LocalEnginesParts): DescribeEngine {
  const { config } = parts;
  const { cutoutModel } = config.media;
  const canFetch = config.embedded.download || !isFetchedCutout(cutoutModel);
  const model = canFetch ? cutoutModel : 'person';
  const threads = threadsOf(config);
  const fetchModel = fetcher(parts, 'Background removal model');
  const id = 'embedded-cutout';
  return (onChange) => ({
    id,
    needs: ['cutout'],
    process: cutoutEngine({ model, threads, fetchModel }, processParts(parts, onChange)),
    calls: mediaCalls('rembg', CUTOUT_LIMIT_MS),
    models: () => [
      {
        id: 'farebox-cutout',
        type: 'inpaint',
        origin: 'downloaded',
        description: 'Removes the background of a photograph.',
        replicas: [{ engine: id, model: cutoutModelName(model) }],
      },
    ],
  });
}

const STILL_TO_VIDEO = VideoModelSettings.parse({
  task: 'image-to-video',
  pricing: {
    kind: 'duration-resolution',
    rates: { '360p': '0.001', '480p': '0.002', '720p': '0.004', '1080p': '0.008' },
  },
  durations: Array.from({ length: 30 }, (_, index) => `${index + 1}s`),
  resolutions: ['360p', '480p', '720p', '1080p'],
  defaultResolution: '720p',
  aspectRatios: ['16:9', '9:16', '1:1', '4:3', '3:4', '3:2', '2:3'],
  expectedSeconds: 20,
});

const UPSCALE = VideoModelSettings.parse({
  task: 'upscale',
  pricing: {
    kind: 'upscale',
    tiers: [
      { maxHeight: 720, perSecond: '0.001' },
      { maxHeight: 1_080, perSecond: '0.002' },
      { maxHeight: 2_160, perSecond: '0.008' },
    ],
  },
  expectedSeconds: 60,
});

function videoOffer(
  parts: LocalEnginesParts,
  directory: string,
  needs: readonly EngineSet[],
): DescribeEngine {
  const { media, searchPath } = parts.config;
  const { ffmpeg, ffprobe } = media;
  const settings = { directory, ffmpeg, ffprobe, searchPath };
  const id = 'embedded-video';
  return (onChange) => ({
    id,
    needs,
    process: videoEngine(settings, processParts(parts, onChange)),
    calls: mediaCalls('openai', VIDEO_LIMIT_MS),
    models: () => [
      {
        id: 'farebox-still-to-video',
        type: 'video',
        origin: 'downloaded',
        description:
          'Moves a camera over an image: zooms, pans or tilts as described in the prompt.',
        replicas: [{ engine: id, model: 'still-to-video' }],
        video: STILL_TO_VIDEO,
      },
      {
        id: 'farebox-upscale',
        type: 'video',
        origin: 'downloaded',
        description: 'Enlarges a video two or four times.',
        replicas: [{ engine: id, model: 'upscale' }],
        video: UPSCALE,
      },
    ],
  });
}

function speechOffer(
  parts: LocalEnginesParts,
  directory: string,
  mediaPackages: readonly EngineSet[],
  speaks: boolean,
): DescribeEngine {
  const { config } = parts;
  const { media, searchPath } = config;
  const fetchModel = fetcher(parts, 'Speech model');
  const transcription = 'farebox-transcription';
  const options = { media, searchPath, directory, threads: threadsOf(config), fetchModel };
  const id = 'embedded-speech';
  return (onChange) => ({
    id,
    // The voice runs with the ONNX runtime of background removal.
    needs: ['speech', ...(speaks ? (['cutout'] as const) : []), ...mediaPackages],
    process: speechEngine(options, processParts(parts, onChange)),
    calls: mediaCalls('openai', SPEECH_LIMIT_MS),
    models: () => [
      {
        id: transcription,
        type: 'asr',
        origin: 'downloaded',
        description: 'Transcribes the speech of a video or audio file.',
        replicas: [{ engine: id, model: media.speechModel?.kind ?? 'whisper' }],
      },
      ...(speaks ? [voiceModel(id, media.voiceModel)] : []),
    ],
    needsFetch: media.speechModel === undefined ? transcription : undefined,
  });
}

function voiceModel(engine: string, path: string | undefined): DiscoveredModel {
  const voice = voiceName(path ?? VOICE_FILES[0]?.name ?? VOICE);
  return {
    id: 'farebox-voice',
    type: 'tts',
    origin: 'downloaded',
    description: 'Reads English text aloud.',
    replicas: [{ engine, model: VOICE }],
    speech: SpeechModelSettings.parse({ voices: [voice] }),
  };
}
