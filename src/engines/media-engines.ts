/**
 * The embedded media engines: background removal, transcription and video work in child processes,
 * and the models that they offer. A kind of work that the operator has configured a model for is
 * left to that model.
 *
 * All of it happens in the background; an engine that cannot start is told in the log and offers
 * nothing.
 */
import { stat } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import type { DiscoveredModel } from '../catalog/catalog.ts';
import { type Config, type ModelType, VideoModelSettings } from '../config/config.ts';
import { CutoutEngine } from './cutout/cutout.ts';
import type { EngineSettings } from './engines.ts';
import { type DownloadProgress, downloadFile } from './llama/llama.ts';
import type { FetchModel, LocalAddress, ModelFile } from './local/local.ts';
import { videoEngine } from './media/media.ts';
import { SPEECH_MODEL_FILES, TranscriptionEngine } from './transcription/transcription.ts';
import { type Clock, HOUR_MS, MINUTE_MS, SECOND_MS } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import { type Log, reasonOf } from '../core/log.ts';
import type { DownloadView } from './download-view.ts';
import { type WorkFolder, openWorkFolder } from './work-folder.ts';

export interface MediaEnginesParts {
  readonly config: Config;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  /** Called when engines or models came or went. */
  readonly onChange: () => void;
  readonly viewOf?: ((title: string) => DownloadView) | undefined;
}

/** What the three engines have in common. */
interface Child {
  address(): Promise<LocalAddress>;
  close(): Promise<void>;
}

interface Offer {
  readonly engine: string;
  readonly child: Child;
  /** Appended to the child's address. */
  readonly basePath: string;
  readonly protocol: EngineSettings['protocol'];
  readonly limitMs: number;
  readonly models: readonly DiscoveredModel[];
}

/** A restarted child may have another port. */
const LOOK_AGAIN_MS = 10 * SECOND_MS;
const CUTOUT_LIMIT_MS = 5 * MINUTE_MS;
/** A piece of ten minutes on a small machine, behind others in the line. */
const SPEECH_LIMIT_MS = HOUR_MS;
const VIDEO_LIMIT_MS = 10 * MINUTE_MS;

export class MediaEngines {
  readonly #parts: MediaEnginesParts;
  readonly #addresses = new Map<string, LocalAddress>();
  #offers: readonly Offer[] = [];
  #work: WorkFolder | undefined;
  #stopLooking: (() => void) | undefined;
  #isStopped = false;
  #starting: Promise<void> | undefined;

  constructor(parts: MediaEnginesParts) {
    this.#parts = parts;
  }

  /** Starts what is wanted in the background, one after the other. */
  start(): void {
    this.#starting = this.#start();
  }

  async #start(): Promise<void> {
    const { config, clock, ids, log } = this.#parts;
    if (!config.embedded.enabled || !config.embedded.media) return;
    try {
      this.#work = await openWorkFolder(join(config.dataFolder, 'work'), { ids, clock, log });
    } catch (error) {
      // Without a place to work there are no engines; everything else goes on.
      log.warn({ reason: reasonOf(error) }, 'The media engines have no folder to work in');
      return;
    }
    if (this.#isStopped) return;
    const hasSpeech = await this.#hasSpeech();
    this.#offers = this.#offersIn(this.#work.path, hasSpeech);
    for (const offer of this.#offers) await this.#look(offer, true);
    if (this.#isStopped) return;
    this.#stopLooking = clock.every(LOOK_AGAIN_MS, () => {
      for (const offer of this.#offers) if (this.#isUp(offer)) void this.#look(offer, false);
    });
  }

  engines(): EngineSettings[] {
    return this.#offers.flatMap((offer) => {
      const address = this.#addresses.get(offer.engine);
      if (address === undefined) return [];
      const { engine: id, protocol, limitMs } = offer;
      const timeLimits = { firstByteMs: limitMs, idleMs: limitMs, totalMs: limitMs };
      const url = address.url + offer.basePath;
      return [{ id, protocol, url, apiKey: address.apiKey, timeLimits, isOwn: true }];
    });
  }

  models(): DiscoveredModel[] {
    return this.#offers.flatMap((offer) => (this.#isUp(offer) ? offer.models : []));
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#stopLooking?.();
    await Promise.all(this.#offers.map(({ child }) => child.close()));
    await this.#starting;
    await this.#work?.remove();
  }

  #isUp(offer: Offer): boolean {
    return this.#addresses.has(offer.engine);
  }

  async #look(offer: Offer, isFirst: boolean): Promise<void> {
    if (this.#isStopped) return;
    try {
      const address = await offer.child.address();
      if (this.#addresses.get(offer.engine)?.url === address.url) return;
      this.#addresses.set(offer.engine, address);
      this.#parts.onChange();
    } catch (error) {
      // The reason names the missing package or program; a running server tries again by itself.
      const fields = { engine: offer.engine, reason: reasonOf(error) };
      if (isFirst && !this.#isStopped) this.#parts.log.warn(fields, 'There is no such engine here');
    }
  }

  /** Whether a speech model is there, or may be fetched when it is wanted. */
  async #hasSpeech(): Promise<boolean> {
    const { embedded, media, dataFolder } = this.#parts.config;
    if (embedded.download || media.speechModel !== undefined) return true;
    const files = SPEECH_MODEL_FILES.map((file) => isWhole(modelPath(dataFolder, file), file));
    return (await Promise.all(files)).every(Boolean);
  }

  /** What is offered for work that no configured model does. */
  #offersIn(work: string, hasSpeech: boolean): Offer[] {
    const { config } = this.#parts;
    const has = (type: ModelType): boolean => config.models.some((model) => model.type === type);
    return [
      ...(has('inpaint') ? [] : [this.#cutout()]),
      this.#video(join(work, 'video')),
      ...(has('asr') || !hasSpeech ? [] : [this.#transcription(join(work, 'speech'))]),
    ];
  }

  #cutout(): Offer {
    const { config, clock, ids, log } = this.#parts;
    const model = config.embedded.download ? config.media.cutoutModel : 'person';
    const engine = 'embedded-cutout';
    return {
      engine,
      child: new CutoutEngine({
        model,
        threads: this.#threads,
        fetchModel: this.#fetchModel('Background removal model'),
        log,
        clock,
        ids,
      }),
      basePath: '',
      protocol: 'rembg',
      limitMs: CUTOUT_LIMIT_MS,
      models: [
        {
          id: 'farebox-cutout',
          type: 'inpaint',
          origin: 'downloaded',
          description: 'Removes the background of a photograph.',
          replicas: [{ engine, model }],
          price: config.defaults.price.image,
        },
      ],
    };
  }

  #video(directory: string): Offer {
    const { config, clock, ids, log } = this.#parts;
    const { ffmpeg, ffprobe } = config.media;
    const { searchPath } = config;
    const engine = 'embedded-video';
    return {
      engine,
      child: videoEngine({ directory, ffmpeg, ffprobe, searchPath, log, clock, ids }),
      basePath: '/v1',
      protocol: 'openai',
      limitMs: VIDEO_LIMIT_MS,
      models: [
        {
          id: 'farebox-still-to-video',
          type: 'video',
          origin: 'downloaded',
          description: 'Moves over a picture: zooms, pans and tilts as the prompt says.',
          replicas: [{ engine, model: 'still-to-video' }],
          video: STILL_TO_VIDEO,
        },
        {
          id: 'farebox-upscale',
          type: 'video',
          origin: 'downloaded',
          description: 'Makes a video two or four times as large.',
          replicas: [{ engine, model: 'upscale' }],
          video: UPSCALE,
        },
      ],
    };
  }

  #transcription(directory: string): Offer {
    const { config, clock, ids, log } = this.#parts;
    const { ffmpeg, ffprobe, speechModel, vadModel, maxTranscriptionSeconds } = config.media;
    const engine = 'embedded-speech';
    return {
      engine,
      child: new TranscriptionEngine({
        model: speechModel,
        vadPath: vadModel,
        threads: this.#threads,
        maxSeconds: maxTranscriptionSeconds,
        directory,
        ffmpeg,
        ffprobe,
        searchPath: config.searchPath,
        fetchModel: this.#fetchModel('Speech model'),
        log,
        clock,
        ids,
      }),
      basePath: '/v1',
      protocol: 'openai',
      limitMs: SPEECH_LIMIT_MS,
      models: [
        {
          id: 'farebox-transcription',
          type: 'asr',
          origin: 'downloaded',
          description: 'Writes down what is said in a video or a sound.',
          replicas: [{ engine, model: speechModel?.kind ?? 'whisper' }],
        },
      ],
    };
  }

  get #threads(): number {
    return this.#parts.config.embedded.threads ?? Math.max(1, availableParallelism() - 1);
  }

  /** Fetches into the data folder, once, with its progress on the terminal and in the log. */
  #fetchModel(title: string): FetchModel {
    const { config, clock, log, viewOf } = this.#parts;
    return async (file, onProgress, signal) => {
      const path = modelPath(config.dataFolder, file);
      if (await isWhole(path, file)) return path;
      if (!config.embedded.download) {
        throw new Error('Fetching models is switched off (embedded.download)');
      }
      const view = viewOf?.(`${title} (${file.name})`);
      const tell = tenths(log, file.name);
      try {
        await downloadFile({
          url: file.url,
          path,
          sha256: file.sha256,
          maxBytes: file.sizeBytes,
          clock,
          log,
          signal,
          onProgress: (progress) => {
            onProgress(progress.bytesDone);
            view?.update(progress);
            tell(progress);
          },
        });
      } finally {
        view?.end();
      }
      return path;
    };
  }
}

function modelPath(dataFolder: string, file: ModelFile): string {
  return join(dataFolder, 'models', file.name);
}

/** A file gets its name only after its checksum was right. */
async function isWhole(path: string, file: ModelFile): Promise<boolean> {
  try {
    return (await stat(path)).size === file.sizeBytes;
  } catch {
    // Not fetched yet.
    return false;
  }
}

/** Logs each tenth of a download once. */
function tenths(log: Log, model: string): (progress: DownloadProgress) => void {
  let told = 0;
  return ({ fraction, secondsLeft }) => {
    const tenth = Math.floor(fraction * 10);
    if (tenth <= told) return;
    told = tenth;
    log.info({ model, percent: tenth * 10, secondsLeft }, 'A model is being fetched');
  };
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
