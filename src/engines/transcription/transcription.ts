/**
 * The embedded transcription engine, as the parent sees it: one child process that speaks OpenAI's
 * `/v1/audio/transcriptions`, and the speech model that is fetched on first use. Until it is there
 * the child answers 503 with how far the fetch is.
 */
import type { Clock } from '../../core/clock.ts';
import { SECOND_MS } from '../../core/clock.ts';
import type { Ids } from '../../core/ids.ts';
import type { Log } from '../../core/log.ts';
import { type LocalAddress, LocalChild, entryBeside } from '../local/local-child.ts';
import {
  type FetchModel,
  ModelFetch,
  type ModelFile,
  type ModelProgress,
} from '../local/model-fetch.ts';
import type { SpeechModel } from './recognizer.ts';

export type { SpeechModel } from './recognizer.ts';

const HUB = 'https://huggingface.co/csukuangfj/sherpa-onnx-whisper-base/resolve';
/** The revision to which sizes and checksums belong. */
const REVISION = 'bb53ee204431c90d314c1cc08d28d23e5b7927cc';

function whisperFile(name: string, sizeBytes: number, sha256: string): ModelFile {
  return {
    name: `whisper-${name}`,
    url: `${HUB}/${REVISION}/${name}`,
    sizeBytes,
    sha256,
    license: 'MIT',
  };
}

/** Whisper base, 8-bit weights, 99 languages; and the detector of speech. */
const WHISPER_BASE: readonly ModelFile[] = [
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

/** The files that are fetched when no model of the operator's own is named. */
export const SPEECH_MODEL_FILES: readonly ModelFile[] = WHISPER_BASE;

/** What the child gets when the files are there. */
interface ReadyModel {
  readonly model: SpeechModel;
  readonly vadPath?: string;
}

export interface TranscriptionOptions {
  /** Model files of the operator's own; `undefined` fetches Whisper base on first use. */
  readonly model?: SpeechModel | undefined;
  readonly vadPath?: string | undefined;
  readonly threads: number;
  /** Longer sound is cut off here; the flow refuses it before. */
  readonly maxSeconds: number;
  /** A folder of its own; what is in it is deleted at each start of the child. */
  readonly directory: string;
  readonly ffmpeg?: string | undefined;
  readonly ffprobe?: string | undefined;
  /** The `PATH` of the machine. */
  readonly searchPath: string;
  readonly fetchModel: FetchModel;
  readonly log: Log;
  readonly clock: Clock;
  readonly ids: Ids;
}

export class TranscriptionEngine {
  readonly #child: LocalChild;
  readonly #fetch: ModelFetch | undefined;
  readonly #log: Log;
  #ready: ReadyModel | undefined;
  #stopTelling: (() => void) | undefined;

  constructor(options: TranscriptionOptions) {
    const { model, vadPath, fetchModel, log, clock, ids, ...settings } = options;
    this.#log = log;
    if (model !== undefined) this.#ready = { model, ...(vadPath !== undefined && { vadPath }) };
    else this.#fetch = this.#createFetch(fetchModel, log, clock);
    this.#child = new LocalChild({
      name: 'transcription',
      entry: entryBeside(import.meta.url, 'transcription-process'),
      settings: () => ({ ...settings, ...this.#ready }),
      onMessage: (message) => this.#onMessage(message),
      log,
      clock,
      ids,
    });
    this.#stopTelling = this.#fetch && clock.every(SECOND_MS, () => this.#tell());
  }

  /** Starts the child when it does not run; the engine's base is `url` + `/v1`. */
  async address(): Promise<LocalAddress> {
    return await this.#child.address();
  }

  /** The child's process id, `undefined` while it does not run. */
  get pid(): number | undefined {
    return this.#child.pid;
  }

  /** How far the speech model is; `undefined` when it is the operator's own. */
  progress(): ModelProgress | undefined {
    return this.#fetch?.progress();
  }

  /** Starts the fetch of the model before the first use asks for it. */
  prefetch(): void {
    this.#fetch?.want();
  }

  async close(): Promise<void> {
    this.#stopTelling?.();
    this.#fetch?.close();
    await this.#child.close();
  }

  #createFetch(fetchModel: FetchModel, log: Log, clock: Clock): ModelFetch {
    const onReady = ([
      encoder = '',
      decoder = '',
      tokens = '',
      vad = '',
    ]: readonly string[]): void => {
      this.#stopTelling?.();
      this.#ready = { model: { kind: 'whisper', encoder, decoder, tokens }, vadPath: vad };
      this.#child.send({ type: 'model', ...this.#ready });
    };
    return new ModelFetch({
      name: 'whisper-base',
      files: WHISPER_BASE,
      fetchModel,
      onReady,
      log,
      clock,
    });
  }

  /** The child tells waiting callers how far the fetch is. */
  #tell(): void {
    const progress = this.#fetch?.progress();
    if (progress?.state !== 'fetching') return;
    const { fraction, remainingMs = null } = progress;
    this.#child.send({ type: 'progress', fraction, remainingMs });
  }

  #onMessage(message: unknown): void {
    const { type, error } = message as { type?: string; error?: string }; // from our own child
    if (type === 'used') this.#fetch?.want();
    if (type === 'model-failed') {
      this.#log.warn({ reason: error }, 'The speech model does not load');
    }
  }
}
