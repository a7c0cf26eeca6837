/**
 * The embedded background removal engine, as the parent sees it: one child process that speaks
 * rembg's protocol, and the general model that is fetched on first use and then takes over.
 */
import type { Clock } from '../../core/clock.ts';
import type { Ids } from '../../core/ids.ts';
import type { Log } from '../../core/log.ts';
import { type LocalAddress, LocalChild, entryBeside } from '../local/local-child.ts';
import {
  type FetchModel,
  ModelFetch,
  type ModelFile,
  type ModelProgress,
} from '../local/model-fetch.ts';

export { imageFormat } from './image-format.ts';
export { imageSize } from './image-size.ts';

interface GeneralModel {
  readonly recipe: 'u2net' | 'isnet';
  readonly file: ModelFile;
}

const RELEASE = 'https://github.com/danielgatis/rembg/releases/download/v0.0.0';

/** General models by the name that the configuration uses. */
const GENERAL_MODELS = {
  u2netp: {
    recipe: 'u2net',
    file: {
      name: 'u2netp.onnx',
      url: `${RELEASE}/u2netp.onnx`,
      sizeBytes: 4_574_861,
      sha256: '309c8469258dda742793dce0ebea8e6dd393174f89934733ecc8b14c76f4ddd8',
      license: 'Apache-2.0',
    },
  },
  isnet: {
    recipe: 'isnet',
    file: {
      name: 'isnet-general-use.onnx',
      url: `${RELEASE}/isnet-general-use.onnx`,
      sizeBytes: 178_648_008,
      sha256: '60920e99c45464f2ba57bee2ad08c919a52bbf852739e96947fbb4358c0d964a',
      license: 'Apache-2.0',
    },
  },
} as const satisfies Record<string, GeneralModel>;

export interface CutoutOptions {
  /** `person` stays with the model of the box and never fetches anything. */
  readonly model: 'person' | keyof typeof GENERAL_MODELS;
  /** Of the model and of the image library, each. */
  readonly threads: number;
  readonly fetchModel: FetchModel;
  readonly log: Log;
  readonly clock: Clock;
  readonly ids: Ids;
}

export class CutoutEngine {
  readonly #child: LocalChild;
  readonly #fetch: ModelFetch | undefined;
  /** Set once the general model is on this disk; a restarted child starts with it. */
  #general: { path: string; recipe: 'u2net' | 'isnet' } | undefined;

  constructor(options: CutoutOptions) {
    const { log, clock, ids, threads, fetchModel } = options;
    this.#child = new LocalChild({
      name: 'cutout',
      entry: entryBeside(import.meta.url, 'cutout-process'),
      settings: () => ({ threads, ...(this.#general && { general: this.#general }) }),
      onMessage: (message) => this.#onMessage(message, log),
      log,
      clock,
      ids,
    });
    if (options.model === 'person') return;
    const { recipe, file } = GENERAL_MODELS[options.model];
    const onReady = ([path = '']: readonly string[]): void => {
      this.#general = { path, recipe };
      this.#child.send({ type: 'model', general: this.#general });
    };
    this.#fetch = new ModelFetch({
      name: file.name,
      files: [file],
      fetchModel,
      onReady,
      log,
      clock,
    });
  }

  /** Starts the child when it does not run. Faults: SERVICE_UNAVAILABLE. */
  async address(): Promise<LocalAddress> {
    return await this.#child.address();
  }

  /** The child's process id, `undefined` while it does not run. */
  get pid(): number | undefined {
    return this.#child.pid;
  }

  /** How far the general model is; `undefined` when none is wanted. */
  progress(): ModelProgress | undefined {
    return this.#fetch?.progress();
  }

  /** Starts the fetch of the general model before the first use asks for it. */
  prefetch(): void {
    this.#fetch?.want();
  }

  async close(): Promise<void> {
    this.#fetch?.close();
    await this.#child.close();
  }

  #onMessage(message: unknown, log: Log): void {
    const { type, error, name } = message as { type?: string; error?: string; name?: string }; // from our own child
    if (type === 'used') this.#fetch?.want();
    if (type === 'model-loaded') log.info({ model: name }, 'A better cutout model took over');
    if (type === 'model-failed') {
      // A model that does not load is not tried again at the next start of the child.
      this.#general = undefined;
      log.warn({ reason: error }, 'The general cutout model does not load');
    }
  }
}
