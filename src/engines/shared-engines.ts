/**
 * Local engines that another process runs: a worker is told by the first process of its machine
 * which engines and models there are, and calls them over HTTP like any other.
 */
import type { DiscoveredModel } from '../catalog/catalog.ts';
import type { EngineSettings } from './engines.ts';
import type { LocalEngineSource } from './embedded/embedded.ts';
import type { EngineProbe } from './embedded/media-engines.ts';

/** What the first process tells. */
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

  /** Whom to tell when engines or models came or went. */
  onChange(listener: () => void): this {
    this.#onChange = listener;
    return this;
  }

  take(news: EngineNews): void {
    this.#news = news;
    this.#first.resolve(undefined);
    this.#onChange();
  }

  /** Resolves when the first process has told what there is. */
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
