/**
 * The engines and their models: from the configuration and from this machine. Both follow changes
 * of the configuration and of local engines.
 */
import { Catalog, type VideoConstraints, isLoss, lossText, marginsOf } from '../catalog/catalog.ts';
import type { Config, ConfigInForce } from '../config/config.ts';
import { type CallObserver, Engines, type EngineSettings, type Replica } from './engines.ts';
import type { Clock } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import type { Log } from '../core/log.ts';
import type { DownloadView } from './embedded/model-files.ts';
import { type LocalEngineSource, LocalEngines } from './embedded/embedded.ts';
import { engineLimits } from './engine-limits.ts';

type ConfiguredEngine = Config['engines'][string];

export interface EngineRegistryParts {
  readonly config: ConfigInForce;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly canSearch: boolean;
  readonly videoConstraints: VideoConstraints;
  /** Called for every engine call; `undefined` without tracing. */
  readonly observe: CallObserver | undefined;
  /** Local engines of another process; default: this process runs its own. */
  readonly localEngines?: (onChange: () => void) => LocalEngineSource;
  readonly downloadView?: ((title: string) => DownloadView) | undefined;
}

/** Time for which a closing server waits for running calls whose callers have left. */
const ENGINE_GRACE_MS = 1_000;

export class EngineRegistry {
  readonly engines: Engines;
  readonly catalog: Catalog;
  readonly localEngines: LocalEngineSource;
  readonly #config: ConfigInForce;
  readonly #log: Log;

  constructor(parts: EngineRegistryParts) {
    const { config, clock, ids, log, canSearch, videoConstraints, observe } = parts;
    this.#config = config;
    this.engines = new Engines({ clock, ids, log, observe });
    const settings = config.current;
    this.catalog = new Catalog({ settings, clock, webSearch: canSearch, videoConstraints });
    this.#log = log;
    this.#warnOfLosses();
    const onChange = (): void => this.#refresh();
    this.localEngines =
      parts.localEngines?.(onChange) ??
      new LocalEngines({ config: settings, clock, ids, log, onChange, viewOf: parts.downloadView });
    this.#refresh();
  }

  configure(): void {
    this.localEngines.configure(this.#config.current);
    this.catalog.configure(this.#config.current);
    this.#warnOfLosses();
    this.#refresh();
  }

  #warnOfLosses(): void {
    for (const model of this.catalog.models()) {
      const [loss, ...more] = marginsOf(model).filter(isLoss);
      if (loss === undefined) continue;
      const fields = { model: model.id, loss: lossText(loss), more: more.length };
      this.#log.warn(fields, 'A model is sold below its cost');
    }
  }

  async close(): Promise<void> {
    try {
      await this.engines.close(ENGINE_GRACE_MS);
    } finally {
      await this.localEngines.stop();
    }
  }

  #refresh(): void {
    const { localEngines } = this;
    const configured = configuredEngines(this.#config.current);
    const ids = new Set(configured.map(({ id }) => id));
    // The process that runs the local engines may not have read a new name of the configuration yet.
    const local = localEngines.engines().filter(({ id }) => !ids.has(id));
    this.engines.update([...configured, ...local]);
    const isLocal = ({ engine }: Replica): boolean => !ids.has(engine);
    const models = localEngines.models().filter(({ replicas }) => replicas.every(isLocal));
    this.catalog.setDiscovered(models, localEngines.areStarting);
  }
}

export function configuredEngines(config: Config): EngineSettings[] {
  return Object.entries(config.engines)
    .filter(([, { provider }]) => provider === undefined)
    .map(([id, engine]) => settingsOf(id, engine));
}

function settingsOf(id: string, engine: ConfiguredEngine): EngineSettings {
  return {
    id,
    ...engineLimits(engine),
    protocol: engine.protocol,
    url: baseOf(engine),
    headers: engine.headers,
    apiKey: engine.apiKey,
    proxy: engine.proxy,
    tls: engine.tls,
  };
}

/** The URL of a rembg server often contains the path of its only endpoint. */
function baseOf({ protocol, url }: ConfiguredEngine): string {
  return protocol === 'rembg' ? url.replace(/\/(?:api\/remove\/?)?$/, '') : url;
}
