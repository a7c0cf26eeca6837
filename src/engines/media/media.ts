/**
 * The public file of media work: reads the properties of a file, extracts its sound for a speech
 * model, enlarges a video, makes a video from an image. Untrusted media is decoded in a sandboxed
 * process only; every call ends in bounded time with a result or a Fault.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { access, constants, mkdir, rm, stat, writeFile } from 'node:fs/promises';
import { delimiter, isAbsolute, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import type { Clock } from '../../core/clock.ts';
import { Fault } from '../../core/faults.ts';
import { type Log, reasonOf } from '../../core/log.ts';
import { JobQueue } from '../../core/job-queue.ts';
import { endsWhole, inspectMedia, videoTypeOf } from './container.ts';
import { isSoundCut } from './sound-pieces.ts';
import { type VideoEncoder, ffmpegTool } from './ffmpeg.ts';
import type { MediaFacts } from './media-facts.ts';
import {
  type EncodeTask,
  type MediaTool,
  type ReadTask,
  SPEECH_BYTES_PER_SECOND,
  SPEECH_RATE,
  type StillShot,
  type TaskContext,
  ToolFailure,
  type WriteTask,
  scaleFilter,
  stillFilter,
} from './media-task.ts';
import { nodeAvTool } from './node-av.ts';
import { type RunSandboxed, runSandboxed } from './sandbox.ts';
import { copySamples, speechWavBytes } from './wav.ts';

export { CONTAINER_TYPES, inspectMedia } from './container.ts';
export { removeJob, stateOf } from './engine-job.ts';
export type { MediaFacts } from './media-facts.ts';
export { SILENCE_PEAK, SPEECH_BYTES_PER_SECOND } from './media-task.ts';
export { RemoteSandbox } from './remote-sandbox.ts';
export type { DownloadOptions } from './video-url.ts';
export type * from './videos-client.ts';
export { VideosClient } from './videos-client.ts';
export { type AudioPiece, audioPieces } from './wav.ts';

export interface MediaOptions {
  /** Path of the program; `undefined` searches `ffmpeg` in `searchPath`. */
  readonly ffmpeg?: string | undefined;
  /** Default: beside `ffmpeg`. */
  readonly ffprobe?: string | undefined;
  readonly searchPath: string;
  /** Folders in which node-av may be installed, in addition to the folder of the program. */
  readonly dataFolder?: string | undefined;
  readonly limits?: Partial<MediaLimits>;
  /** Runs the programs; a large process delegates this to a small one. Default: in this process. */
  readonly run?: RunSandboxed;
  readonly log: Log;
  readonly clock: Clock;
}

export interface MediaLimits {
  readonly readTimeoutMs: number;
  readonly writeTimeoutMs: number;
  readonly memoryBytes: number;
  readonly fileBytes: number;
}

/** Limits of the embedded engine; the server sets its own. */
const DEFAULT_LIMITS: MediaLimits = {
  readTimeoutMs: 120_000,
  writeTimeoutMs: 3_600_000,
  memoryBytes: 1_500_000_000,
  fileBytes: 2_000_000_000,
};
/** CPU time limit as a multiple of the time limit, since a process may use several cores. */
const CPU_FACTOR = 2;
const VERSION_TIMEOUT_MS = 10_000;
/** A check uses several cores; the queue exceeds the number of workers of a process. */
const CHECKS = { running: 2, waiting: 256, retryAfterSeconds: 10 };
/** Tolerance for the duration in a FLAC header beyond its last sample. */
const CLAIM_SLACK_SECONDS = 0.5;
/** Added to the read limit per second of video: the time to decode 4K on a small machine. */
const CHECK_MS_PER_SECOND = 6_000;

const TRIAL_IMAGE =
  'iVBORw0KGgoAAAANSUhEUgAAABAAAAAQCAAAAAA6mKC9AAAADUlEQVR4nGNgGAXIAAABEAABoJMRpQAAAABJRU5ErkJggg==';
const TRIAL = { width: 32, height: 32, seconds: 0.2, framesPerSecond: 10, move: 'in' } as const;

/** Limits of concurrent processes, of which each may use `memoryBytes`. */
const PROCESSES = {
  running: 4,
  runningOfCaller: 2,
  waiting: 128,
  waitingOfCaller: 32,
  retryAfterSeconds: 10,
};

export interface MediaCall {
  readonly signal: AbortSignal;
  /** The owner of the media: files of one caller do not block those of others. */
  readonly caller?: string;
  /** From 0 to 1. */
  readonly onProgress?: (fraction: number) => void;
}

export interface StillRequest extends StillShot {
  readonly imagePath: string;
  readonly audioPath: string | undefined;
  readonly outputPath: string;
}

export class Media {
  readonly #tool: MediaTool;
  readonly #checks = new JobQueue(CHECKS);
  readonly #limits: MediaLimits;
  readonly #options: MediaOptions;
  readonly #processes = new JobQueue(PROCESSES);

  private constructor(tool: MediaTool, options: MediaOptions) {
    this.#tool = tool;
    this.#options = options;
    this.#limits = { ...DEFAULT_LIMITS, ...options.limits };
  }

  /** Finds the tool. Without one, the first task fails and names the program to install. */
  static async open(options: MediaOptions): Promise<Media> {
    const tool = (await findPrograms(options)) ?? nodeAvTool(process.execPath, options.dataFolder);
    options.log.debug({ tool: tool.name }, 'Media tool chosen');
    return new Media(tool, options);
  }

  get tool(): 'ffmpeg' | 'node-av' {
    return this.#tool.name;
  }

  /**
   * Makes a video in `directory` and deletes it, to check that this machine can do it. Faults:
   * SERVICE_UNAVAILABLE with the missing part.
   */
  async tryOut(directory: string): Promise<void> {
    const imagePath = join(directory, 'trial.png');
    const outputPath = join(directory, 'trial.mp4');
    await mkdir(directory, { recursive: true });
    await writeFile(imagePath, Buffer.from(TRIAL_IMAGE, 'base64'));
    try {
      const { signal } = new AbortController();
      await this.stillToVideo(
        { imagePath, outputPath, audioPath: undefined, ...TRIAL },
        { signal },
      );
    } catch (error) {
      // The image is bundled, so any failure is caused by the machine.
      if (error instanceof Fault && error.code === 'SERVICE_UNAVAILABLE') throw error;
      const cause = error instanceof Fault ? error.options.cause : error;
      const message = `Media work fails with ${this.tool} on this machine: ${reasonOf(cause ?? error)}`;
      throw new Fault('SERVICE_UNAVAILABLE', { message, cause, canRetry: false });
    } finally {
      await Promise.all([imagePath, outputPath].map((path) => rm(path, { force: true })));
    }
  }

  /** Properties of a file. Faults: INVALID_VIDEO_FORMAT, SERVICE_UNAVAILABLE. */
  async probe(path: string, call: MediaCall): Promise<MediaFacts> {
    const bytes = await speechWavBytes(path);
    if (bytes !== undefined) {
      return { durationSeconds: bytes / SPEECH_BYTES_PER_SECOND, video: null, hasAudio: true };
    }
    const input = await inspectMedia(path, 'av');
    return await this.#read({ kind: 'probe', input }, 'file', call);
  }

  /**
   * Decodes a video completely and returns its declared and its decoded duration. `expectedSeconds`
   * bounds the time. Faults: INVALID_VIDEO_FORMAT unless it is a complete MP4, MOV or WebM with
   * video; SERVICE_UNAVAILABLE.
   */
  async checkVideo(path: string, expectedSeconds: number, call: MediaCall) {
    const type = await videoTypeOf(path);
    if (type === undefined) throw unusable('The file is not MP4, MOV or WebM');
    if (!(await endsWhole(path, type))) throw unusable('The file is cut off or damaged');
    const input = await inspectMedia(path, 'av');
    const { video, decoded, durationSeconds, hasAudio, isBlack, isSilent } = await this.#checks.run(
      () => this.#read({ kind: 'check', input }, 'video', call, expectedSeconds),
      call.signal,
    );
    if (!video || !decoded) throw unusable('The file has no video');
    const { width, height } = video;
    const claims = { claimedSeconds: durationSeconds, hasSound: hasAudio };
    const seen = { isBlack: isBlack === true, isSilent: isSilent === true };
    return { type, ...claims, ...decoded, width, height, ...seen };
  }

  /** Decodes a JPEG, PNG or WebP completely. Faults: INVALID_VIDEO_FORMAT, SERVICE_UNAVAILABLE. */
  async checkImage(path: string, call: MediaCall): Promise<void> {
    const input = await inspectMedia(path, 'image');
    const { decoded } = await this.#read({ kind: 'check', input }, 'image', call);
    if (!decoded?.frames) throw unusable('The file has no image');
  }

  /**
   * Decodes a sound file completely: its duration, and whether it is silent. Damaged parts are
   * skipped, as players do. Faults: INVALID_VIDEO_FORMAT for a file without sound or one that is cut off;
   * SERVICE_UNAVAILABLE.
   */
  async checkSound(
    path: string,
    call: MediaCall,
  ): Promise<{ readonly seconds: number; readonly isSilent: boolean }> {
    const input = await inspectMedia(path, 'av');
    if (await isSoundCut(input)) throw unusable('The sound is cut off');
    const facts = await this.#read({ kind: 'sound', input }, 'sound', call);
    const seconds = facts.decoded?.seconds ?? 0;
    // FLAC frames have no length; the header contains the number of samples.
    const isShort = facts.durationSeconds > seconds + CLAIM_SLACK_SECONDS;
    if (input.format === 'flac' && isShort) throw unusable('The sound is cut off');
    return { seconds, isSilent: facts.isSilent === true };
  }

  /**
   * Writes the sound of `path` to `outputPath` as raw signed 16-bit samples, 16 kHz, one channel,
   * at most `maxSeconds`. Returns its duration. Faults: INVALID_VIDEO_FORMAT (also if there is no
   * sound).
   */
  async extractAudio(
    path: string,
    outputPath: string,
    maxSeconds: number,
    call: MediaCall,
  ): Promise<{ durationMs: number }> {
    const bytes = await speechWavBytes(path);
    if (bytes === undefined) {
      const input = await inspectMedia(path, 'av');
      await this.#write(
        { video: null, audio: input, output: outputPath, maxSeconds },
        'sound of the file',
        call,
      );
    } else {
      // The server sends this format to its own engine.
      const mostBytes = Math.floor(maxSeconds * SPEECH_RATE) * 2;
      await copySamples(path, outputPath, Math.min(bytes, mostBytes), call.signal);
    }
    const { size } = await stat(outputPath);
    if (size === 0) throw unusable('The file has no sound');
    return { durationMs: Math.round((size / SPEECH_BYTES_PER_SECOND) * 1000) };
  }

  /**
   * Writes an MP4 that is `factor` times as wide and high as `path`. `facts` are the result of
   * `probe`; content beyond their duration is cut off.
   */
  async upscale(
    request: { path: string; outputPath: string; factor: number; facts: MediaFacts },
    call: MediaCall,
  ): Promise<void> {
    const { facts, factor, outputPath } = request;
    if (facts.video === null) throw unusable('The file has no video');
    const { width, height, rotation } = facts.video;
    const input = await inspectMedia(request.path, 'av');
    const even = (pixels: number): number => Math.max(2, Math.round((pixels * factor) / 2) * 2);
    const video = { input, rotation, filter: scaleFilter(even(width), even(height)) };
    const audio = facts.hasAudio ? input : null;
    const maxSeconds = facts.durationSeconds;
    await this.#write({ video, audio, output: outputPath, maxSeconds }, 'video', call);
  }

  /** Writes an MP4 that moves over an image, with the sound of `audioPath` if given. */
  async stillToVideo(request: StillRequest, call: MediaCall): Promise<void> {
    const { imagePath, audioPath, outputPath: output, seconds: maxSeconds } = request;
    const input = await inspectMedia(imagePath, 'image');
    const audio = audioPath === undefined ? null : await inspectMedia(audioPath, 'av');
    const video = { input, rotation: 0, filter: stillFilter(request) } as const;
    await this.#write({ video, audio, output, maxSeconds }, 'image or its sound', call);
  }

  /**
   * Encodes raw samples (signed 16-bit, one channel) while they arrive. Rejects with the reason if
   * `samples` fails or `signal` aborts; the encoder has been killed then. Faults:
   * SERVICE_UNAVAILABLE without a tool.
   */
  async *encodeSpeech(
    samples: AsyncIterable<Buffer>,
    sound: Omit<EncodeTask, 'kind'>,
    signal: AbortSignal,
  ): AsyncGenerator<Buffer> {
    const { command, args, env = {} } = this.#encoder({ kind: 'encode', ...sound });
    const child = spawn(command, args, { env, stdio: ['pipe', 'pipe', 'ignore'] });
    const closed = once(child, 'close');
    const fed = pipeline(samples, child.stdin, { signal });
    // Both are awaited below; until then a rejection only ends the output.
    closed.catch(() => undefined);
    fed.catch(() => child.kill('SIGKILL'));
    try {
      yield* child.stdout as AsyncIterable<Buffer>;
      await fed;
      const [code] = (await closed) as [number | null];
      if (code !== 0) throw new Error(`The encoder of ${sound.format} ended with ${code}`);
    } finally {
      child.kill('SIGKILL');
    }
  }

  #encoder(task: EncodeTask) {
    try {
      return this.#tool.encoder(task);
    } catch (error) {
      if (error instanceof ToolFailure) throw toolFault(error, 'speech');
      throw error;
    }
  }

  /** A check takes longer for a longer video. */
  async #read(
    task: ReadTask,
    what: string,
    call: MediaCall,
    checkedSeconds = 0,
  ): Promise<MediaFacts> {
    const timeoutMs = this.#limits.readTimeoutMs + checkedSeconds * CHECK_MS_PER_SECOND;
    const bounds = { timeoutMs, seconds: checkedSeconds || 1 };
    return await this.#run((context) => this.#tool.read(task, context), bounds, what, call);
  }

  async #write(given: Omit<WriteTask, 'kind'>, what: string, call: MediaCall): Promise<void> {
    const task: WriteTask = { kind: 'write', ...given };
    const { readTimeoutMs, writeTimeoutMs } = this.#limits;
    const timeoutMs = task.video === null ? readTimeoutMs : writeTimeoutMs;
    const bounds = { timeoutMs, seconds: task.maxSeconds };
    await this.#run((context) => this.#tool.write(task, context), bounds, what, call);
  }

  /** Runs a task that is expected to process `seconds` of media. */
  async #run<T>(
    work: (context: TaskContext) => Promise<T>,
    { timeoutMs, seconds }: { timeoutMs: number; seconds: number },
    what: string,
    { signal, caller, onProgress }: MediaCall,
  ): Promise<T> {
    const { clock, log, run = runSandboxed } = this.#options;
    const { memoryBytes, fileBytes } = this.#limits;
    const cpuSeconds = (timeoutMs / 1000) * CPU_FACTOR;
    const limits = { timeoutMs, cpuSeconds, memoryBytes, fileBytes };
    const onSeconds = (done: number): void => {
      if (seconds > 0) onProgress?.(Math.max(0, Math.min(done / seconds, 1)));
    };
    const context = { run, limits, signal, clock, onSeconds };
    try {
      return await this.#processes.run(() => work(context), signal, caller);
    } catch (error) {
      if (!(error instanceof ToolFailure)) throw error;
      const { reason, message: detail } = error;
      log.info({ what, reason, detail }, 'Media work failed');
      throw toolFault(error, what);
    }
  }
}

/** 400 if the media is the cause, 503 if the machine is. */
export function toolFault(cause: ToolFailure, what: string): Fault {
  const message = {
    unusable: `The ${what} cannot be decoded: it is damaged or of a kind that is not supported`,
    'too-much': `The ${what} takes too much time or memory to decode: send a smaller one`,
    missing:
      'Media work needs ffmpeg: install it, name it in the configuration as media.ffmpeg, or fetch node-av with "farebox engines pull media"',
  }[cause.reason];
  return cause.reason === 'missing'
    ? new Fault('SERVICE_UNAVAILABLE', { message, cause, canRetry: false })
    : new Fault('INVALID_VIDEO_FORMAT', { message, cause });
}

function unusable(message: string): Fault {
  return new Fault('INVALID_VIDEO_FORMAT', { message });
}

async function isProgram(path: string): Promise<boolean> {
  return await access(path, constants.X_OK).then(
    () => true,
    () => false,
  );
}

const SUFFIX = process.platform === 'win32' ? '.exe' : '';

async function findProgram(name: string, searchPath: string): Promise<string | undefined> {
  for (const folder of searchPath.split(delimiter)) {
    const path = join(folder, name + SUFFIX);
    if (isAbsolute(folder) && (await isProgram(path))) return path;
  }
  return undefined;
}

/** Both programs, configured or found. Throws if a configured one does not exist. */
async function findPrograms(options: MediaOptions): Promise<MediaTool | undefined> {
  const ffmpeg = options.ffmpeg ?? (await findProgram('ffmpeg', options.searchPath));
  if (ffmpeg === undefined) return undefined;
  const ffprobe = options.ffprobe ?? join(ffmpeg, '..', `ffprobe${SUFFIX}`);
  for (const path of [ffmpeg, ffprobe]) {
    if (await isProgram(path)) continue;
    if (options.ffmpeg === undefined && options.ffprobe === undefined) return undefined;
    throw new Error(`media: ${path} is not a program: correct media.ffmpeg or media.ffprobe`);
  }
  return ffmpegTool({ ffmpeg, ffprobe }, await bestEncoder(ffmpeg, options));
}

async function bestEncoder(ffmpeg: string, options: MediaOptions): Promise<VideoEncoder> {
  let hasH264 = false;
  const { run = runSandboxed } = options;
  await run({
    command: ffmpeg,
    args: ['-hide_banner', '-encoders'],
    limits: {
      timeoutMs: VERSION_TIMEOUT_MS,
      cpuSeconds: VERSION_TIMEOUT_MS / 1000,
      memoryBytes: DEFAULT_LIMITS.memoryBytes,
      fileBytes: 0,
    },
    signal: new AbortController().signal,
    clock: options.clock,
    onLine: (line) => {
      hasH264 ||= / libx264 /.test(line);
    },
  }).catch((error: unknown) => {
    options.log.warn({ reason: reasonOf(error) }, 'ffmpeg does not list its encoders');
  });
  return hasH264 ? 'libx264' : 'mpeg4';
}
