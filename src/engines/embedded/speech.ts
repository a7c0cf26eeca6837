/**
 * Starts the embedded transcription engine: a child process that serves `/v1/audio/transcriptions`,
 * and whose speech model is fetched when the engine starts. Until the model is available, callers
 * receive 503 with the progress of the fetch.
 */
import type { Config } from '../../config/config.ts';
import { EngineProcess, type EngineProcessParts } from './supervisor.ts';
import type { FetchModel, ModelFile } from './model-files.ts';
import { programUrl } from './program.ts';

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

type MediaSettings = Config['media'];

export interface TranscriptionOptions extends EngineProcessParts {
  /**
   * May name model files of the operator; without them Whisper base is fetched. Sound beyond
   * `maxTranscriptionSeconds` is cut off; the endpoint rejects longer files before.
   */
  readonly media: Pick<MediaSettings, 'maxTranscriptionSeconds'> & Partial<MediaSettings>;
  readonly threads: number;
  /** A folder for this engine only; each start of the child empties it. */
  readonly directory: string;
  readonly searchPath: string;
  readonly fetchModel: FetchModel;
}

export function transcriptionEngine(options: TranscriptionOptions): EngineProcess {
  const { media, fetchModel, threads, directory, searchPath, ...parts } = options;
  const { ffmpeg, ffprobe, maxTranscriptionSeconds: maxSeconds, speechModel: model } = media;
  const settings = { directory, threads, maxSeconds, ffmpeg, ffprobe, searchPath };
  const own = model && { model, vadPath: media.vadModel };
  return new EngineProcess({
    ...parts,
    name: 'transcription',
    entry: programUrl('speech/main'),
    packages: 'speech',
    settings: () => ({ ...settings, ...own }),
    model: own
      ? undefined
      : {
          name: 'whisper-base',
          files: SPEECH_MODEL_FILES,
          fetchModel,
          settings: ([encoder, decoder, tokens, vadPath]) => ({
            model: { kind: 'whisper', encoder, decoder, tokens },
            vadPath,
          }),
        },
  });
}
