/**
 * The embedded media engines: background removal, transcription and video in child processes, and
 * the models that they offer. If the operator has configured a model for a kind of work, the
 * embedded engine for it is not started.
 *
 * Everything happens in the background. An engine that cannot start is logged and offers no models.
 */
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import type { DiscoveredModel, ModelOutage } from '../../catalog/catalog.ts';
import { type Config, type ModelType, VideoModelSettings } from '../../config/config.ts';
import { HOUR_MS, MINUTE_MS, SECOND_MS } from '../../core/clock.ts';
import { Fault } from '../../core/faults.ts';
import type { Ids } from '../../core/ids.ts';
import { reasonOf } from '../../core/log.ts';
import { cutoutEngine, cutoutModelName } from './cutout.ts';
import type { EngineSettings } from '../engines.ts';
import type { EngineAddress, EngineProcess, EngineProcessParts } from './supervisor.ts';
import {
  type FetchParts,
  type ModelFile,
  hasModel,
  modelFetcher,
  outageOfFetch,
} from './model-files.ts';
import { type EngineSet, findPackages, packageSet } from './packages.ts';
import { requirePackages } from './package-fetch.ts';
import { Media, videoEngine } from '../media/media.ts';
import { SPEECH_MODEL_FILES, transcriptionEngine } from './speech.ts';
import { type WorkFolder, openWorkFolder } from '../work-folder.ts';

export interface LocalEnginesParts extends FetchParts {
  readonly ids: Ids;
  readonly onChange: () => void;
}

interface Offer {
  readonly engine: string;
  readonly needs: readonly EngineSet[];
  readonly protocol: EngineSettings['protocol'];
  readonly child: EngineProcess;
  readonly limitMs: number;
  readonly models: readonly Omit<DiscoveredModel, 'origin'>[];
  readonly needsFetch?: true;
  /** Set while the model is not available. */
  outage?: ModelOutage | undefined;
  problem?: string | undefined;
  /** The last known address; a child usually restarts before the next call. */
  address?: EngineAddress;
}

const LOOK_MS = 2 * SECOND_MS;
/** Delay before packages that could not be fetched are requested again. */
const RETRY_MS = 10 * MINUTE_MS;
const CUTOUT_LIMIT_MS = 5 * MINUTE_MS;
/** Enough for a piece of ten minutes on a small machine, behind others in the queue. */
const SPEECH_LIMIT_MS = HOUR_MS;
const VIDEO_LIMIT_MS = 10 * MINUTE_MS;

export interface EngineProbe {
  readonly engine: string;
  /** The packages that it uses; empty if it uses programs of the machine. */
  readonly needs: readonly EngineSet[];
  readonly missing: readonly EngineSet[];
  /** Why it does not start although its packages are available. */
  readonly problem: string | undefined;
  readonly isStarting?: true;
}

/** The state of an engine that has been started; `address` is where it runs. */
export function probeOf(
  { engine, needs }: Pick<EngineProbe, 'engine' | 'needs'>,
  now: { dataFolder: string; address: unknown; problem: string | undefined },
): EngineProbe {
  if (now.address !== undefined) return { engine, needs, missing: [], problem: undefined };
  const missing = missingOf(needs, now.dataFolder);
  if (missing.length > 0) return { engine, needs, missing, problem: undefined };
  const { problem } = now;
  return { engine, needs, missing, problem, ...(problem === undefined && { isStarting: true }) };
}

function missingOf(needs: readonly EngineSet[], dataFolder: string): EngineSet[] {
  return needs.filter((set) => findPackages(packageSet(set), dataFolder) === undefined);
}

export async function startProblem(child: {
  address(): Promise<unknown>;
}): Promise<string | undefined> {
  try {
    await child.address();
    return undefined;
  } catch (error) {
    // The message is the result.
    return reasonOf(error);
  }
}

export class MediaEngines {
  readonly #parts: LocalEnginesParts;
  #offers: readonly Offer[] = [];
  #work: WorkFolder | undefined;
  #isStopped = false;
  readonly #stopLooks: (() => void)[] = [];
  #starting: Promise<void> | undefined;
  #stopTrying: (() => void) | undefined;
  readonly #abort = new AbortController();

  constructor(parts: LocalEnginesParts) {
    this.#parts = parts;
  }

  /** Starts the enabled engines in turn; resolves when each is started or failed. Never rejects. */
  start(): Promise<void> {
    const { enabled, media } = this.#parts.config.embedded;
    if (enabled && media) this.#starting = this.#start();
    return this.#starting ?? Promise.resolve();
  }

  async #start(): Promise<void> {
    const { config, log } = this.#parts;
    try {
      this.#work = await openWorkFolder(join(config.dataFolder, 'work'), this.#parts);
    } catch (error) {
      // The media engines need a work folder; everything else continues without them.
      log.warn({ reason: reasonOf(error) }, 'The media engines have no folder to work in');
      return;
    }
    const hasSpeech = await this.#hasSpeech();
    if (this.#isStopped) return;
    this.#offers = this.#offersIn(this.#work.path, hasSpeech, await this.#mediaNeeds());
    await this.#startOffers(this.#offers);
  }

  /** Starts engines in turn; retries later those whose packages cannot be fetched. */
  async #startOffers(offers: readonly Offer[]): Promise<void> {
    const { config, clock, log } = this.#parts;
    const { signal } = this.#abort;
    const waiting: Offer[] = [];
    for (const offer of offers) {
      try {
        for (const set of offer.needs) await requirePackages(set, { ...this.#parts, signal });
        await offer.child.address();
        offer.outage = undefined;
        offer.problem = undefined;
        this.#followFetch(offer);
      } catch (error) {
        // The reason names the missing package or program.
        if (this.#isStopped) return;
        offer.problem = reasonOf(error);
        log.warn({ engine: offer.engine, reason: offer.problem }, 'There is no such engine here');
        if (!(error instanceof Fault) || error.code !== 'FETCH_FAILED') continue;
        waiting.push(offer);
        offer.outage = { reason: 'needs packages that could not be fetched, which is tried again' };
        this.#parts.onChange();
      }
    }
    if (waiting.length === 0 || !config.embedded.download) return;
    this.#stopTrying = clock.after(RETRY_MS, () => {
      this.#starting = this.#startOffers(waiting);
    });
  }

  /** The packages for media work; empty if the machine has the programs. */
  async #mediaNeeds(): Promise<readonly EngineSet[]> {
    const { config, clock, log } = this.#parts;
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

  /**
   * Starts each engine whose packages are available, with `work` as its folder, and returns the
   * states. Fetches nothing.
   */
  async probe(work: string): Promise<readonly EngineProbe[]> {
    const { dataFolder } = this.#parts.config;
    this.#offers = this.#offersIn(work, await this.#hasSpeech(), await this.#mediaNeeds());
    const probes: EngineProbe[] = [];
    for (const { engine, needs, child } of this.#offers) {
      const missing = missingOf(needs, dataFolder);
      const problem = missing.length > 0 ? undefined : await startProblem(child);
      probes.push({ engine, needs, missing, problem });
    }
    return probes;
  }

  probes(): EngineProbe[] {
    const { dataFolder } = this.#parts.config;
    return this.#offers.map((offer) => {
      const { problem, child } = offer;
      return probeOf(offer, { dataFolder, address: child.runningAt, problem });
    });
  }

  engines(): EngineSettings[] {
    return this.#offers.flatMap(({ engine: id, protocol, address, limitMs }) => {
      if (address === undefined) return [];
      const timeLimits = { firstByteMs: limitMs, idleMs: limitMs, totalMs: limitMs };
      const url = protocol === 'rembg' ? address.url : `${address.url}/v1`;
      const { apiKey } = address;
      return [{ id, protocol, url, apiKey, timeLimits, isOwn: true, takesTurns: true }];
    });
  }

  models(): DiscoveredModel[] {
    const up = this.#offers.filter(({ address, outage }) => (address ?? outage) !== undefined);
    return up.flatMap(({ models, outage }) =>
      models.map((one) => ({ ...one, origin: 'downloaded', ...(outage && { outage }) })),
    );
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    for (const stop of this.#stopLooks) stop();
    this.#stopTrying?.();
    this.#abort.abort();
    await Promise.all(this.#offers.map(({ child }) => child.close()));
    await this.#starting;
    await this.#work?.remove();
  }

  /**
   * For an engine that needs a fetched model: starts the fetch at once, so that calls fail before
   * the caller uploads media if the model is unavailable.
   */
  #followFetch(offer: Offer): void {
    if (offer.needsFetch !== true) return;
    const { clock, onChange } = this.#parts;
    const look = (): void => {
      const before = offer.outage?.reason;
      offer.child.fetchModel();
      offer.outage = outageOfFetch(offer.child.progress(), clock.monotonicMs());
      if (offer.outage === undefined) stop();
      if (offer.outage?.reason !== before && !this.#isStopped) onChange();
    };
    const stop = clock.every(LOOK_MS, look);
    this.#stopLooks.push(stop);
    look();
  }

  /** A restarted child may have another port. */
  #childChanged(engine: string): void {
    const offer = this.#offers.find((one) => one.engine === engine);
    const address = offer?.child.runningAt;
    if (offer === undefined || address === undefined || this.#isStopped) return;
    if (offer.address?.url === address.url) return;
    offer.address = address;
    this.#parts.onChange();
  }

  /** Whether a speech model is available or may be fetched. */
  async #hasSpeech(): Promise<boolean> {
    const { embedded, media, dataFolder } = this.#parts.config;
    if (embedded.download || media.speechModel !== undefined) return true;
    const files = SPEECH_MODEL_FILES.map((file) => hasModel(dataFolder, file));
    return (await Promise.all(files)).every(Boolean);
  }

  #offersIn(work: string, hasSpeech: boolean, film: readonly EngineSet[]): Offer[] {
    const { config } = this.#parts;
    const has = (type: ModelType): boolean => config.models.some((model) => model.type === type);
    return [
      ...(has('inpaint') ? [] : [this.#cutout()]),
      this.#video(join(work, 'video'), film),
      ...(has('asr') || !hasSpeech ? [] : [this.#transcription(join(work, 'speech'), film)]),
    ];
  }

  #cutout(): Offer {
    const { config } = this.#parts;
    const { cutoutModel } = config.media;
    const isFetched = cutoutModel === 'u2netp' || cutoutModel === 'isnet';
    const model = isFetched && !config.embedded.download ? 'person' : cutoutModel;
    const engine = 'embedded-cutout';
    const fetchModel = modelFetcher(this.#parts, titled('Background removal model'));
    const parts = { threads: threadsOf(config), fetchModel, ...this.#childParts(engine) };
    return {
      engine,
      needs: ['cutout'],
      protocol: 'rembg',
      child: cutoutEngine({ model, ...parts }),
      limitMs: CUTOUT_LIMIT_MS,
      models: [
        {
          id: 'farebox-cutout',
          type: 'inpaint',
          description: 'Removes the background of a photograph.',
          replicas: [{ engine, model: cutoutModelName(model) }],
          price: config.defaults.price.image,
        },
      ],
    };
  }

  #video(directory: string, needs: readonly EngineSet[]): Offer {
    const { media, searchPath } = this.#parts.config;
    const { ffmpeg, ffprobe } = media;
    const engine = 'embedded-video';
    const parts = { ffmpeg, ffprobe, searchPath, ...this.#childParts(engine) };
    return {
      engine,
      needs,
      protocol: 'openai',
      child: videoEngine({ directory, ...parts }),
      limitMs: VIDEO_LIMIT_MS,
      models: [
        {
          id: 'farebox-still-to-video',
          type: 'video',
          description: 'Moves over a picture: zooms, pans and tilts as the prompt says.',
          replicas: [{ engine, model: 'still-to-video' }],
          video: STILL_TO_VIDEO,
        },
        {
          id: 'farebox-upscale',
          type: 'video',
          description: 'Makes a video two or four times as large.',
          replicas: [{ engine, model: 'upscale' }],
          video: UPSCALE,
        },
      ],
    };
  }

  #transcription(directory: string, film: readonly EngineSet[]): Offer {
    const { config } = this.#parts;
    const { media, searchPath } = config;
    const engine = 'embedded-speech';
    const fetchModel = modelFetcher(this.#parts, titled('Speech model'));
    const parts = { threads: threadsOf(config), fetchModel, ...this.#childParts(engine) };
    return {
      engine,
      needs: ['speech', ...film],
      protocol: 'openai',
      child: transcriptionEngine({ media, searchPath, directory, ...parts }),
      ...(media.speechModel === undefined && { needsFetch: true as const }),
      limitMs: SPEECH_LIMIT_MS,
      models: [
        {
          id: 'farebox-transcription',
          type: 'asr',
          description: 'Writes down what is said in a video or a sound.',
          replicas: [{ engine, model: media.speechModel?.kind ?? 'whisper' }],
        },
      ],
    };
  }

  #childParts(engine: string): EngineProcessParts {
    const { config, log, clock, ids } = this.#parts;
    const { dataFolder } = config;
    return { dataFolder, log, clock, ids, onChange: () => this.#childChanged(engine) };
  }
}

function titled(kind: string): (file: ModelFile) => string {
  return ({ name }) => `${kind} (${name})`;
}

/** Threads of each embedded engine: all cores except one, which is left to the server. */
export function threadsOf({ embedded }: Config): number {
  return embedded.threads ?? Math.max(1, availableParallelism() - 1);
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
