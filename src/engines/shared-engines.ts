/**
 * Local engines that another process runs: the first process of a machine sends a worker the list
 * of engines and models, and the worker calls them over HTTP.
 */
import type { DiscoveredModel } from '../catalog/catalog.ts';
import type { EngineSettings } from './engines.ts';
import type { EngineProbe, LocalEngineSource } from './embedded/embedded.ts';

export interface EngineNews {
  readonly engines: readonly EngineSettings[];
  readonly models: readonly DiscoveredModel[];
  readonly probes: readonly EngineProbe[];
  readonly areStarting: boolean;
}

export class SharedEngines implements LocalEngineSource {
  readonly #first = Promise.withResolvers<undefined>();
  #news: EngineNews = { engines: [], models: [], probes: [], areStarting: true };
  #onChange: () => void = () => undefined;
  readonly #onConfigure: () => void;

  /** `onConfigure` is called after a change of the configuration. */
  constructor(onConfigure: () => void) {
    this.#onConfigure = onConfigure;
  }

  onChange(listener: () => void): this {
    this.#onChange = listener;
    return this;
  }

  /** The other process reads the changed configuration itself. */
  configure(): void {
    this.#onConfigure();
  }

  take(news: EngineNews): void {
    this.#news = news;
    this.#first.resolve(undefined);
    this.#onChange();
  }

  /** Resolves when the first list has arrived. */
  start(): Promise<void> {
    return this.#first.promise;
  }

  engines(): EngineSettings[] {
    return [...this.#news.engines];
  }

  models(): DiscoveredModel[] {
    return [...this.#news.models];
  }

  probes(): readonly EngineProbe[] {
    return this.#news.probes;
  }

  get areStarting(): boolean {
    return this.#news.areStarting;
  }

  async stop(): Promise<void> {
    this.#onChange = () => undefined;
  }
}
