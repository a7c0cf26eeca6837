/**
 * Engines without configuration: the embedded engines, the models that are fetched for llama.cpp,
 * and engines found on local ports. Everything happens in the background; the server never waits for
 * a download.
 *
 * A small open model is fetched only if no other model serves its kind of work.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import type { DiscoveredModel, ModelOutage } from '../../catalog/catalog.ts';
import type { Config } from '../../config/config.ts';
import { SECOND_MS } from '../../core/clock.ts';
import { reasonOf } from '../../core/log.ts';
import {
  type FoundEngine,
  LOOK_LIMIT_MS,
  discoverEngines,
  probeTargets,
  withFreeIds,
} from '../discovery.ts';
import { Engines, type EngineSettings, type ProbeResult } from '../engines.ts';
import { type WorkFolder, openWorkFolder } from '../work-folder.ts';
import { EmbeddedEngine, type EngineProbe } from './embedded-engine.ts';
import type { LlamaEngine } from './llama-engine.ts';
import {
  type LibraryModel,
  MODEL_LIBRARY,
  demoModels,
  librarySpec,
  ownSpec,
} from './llama-models.ts';
import { fetchingOutage, hasModel, hostOf, modelFetcher } from './model-files.ts';
import {
  type DescribeEngine,
  type LocalEnginesParts,
  demoOffer,
  llamaEngine,
  llamaOffer,
  mediaOffers,
  sentenceOffers,
} from './offers.ts';
import { providerOffer } from './provider-engine.ts';
import { requirePackages } from './package-fetch.ts';
import { type EngineSet, findPackages, missingPackages, packageSet } from './packages.ts';

export type { EngineProbe } from './embedded-engine.ts';

export interface LocalEngineSource {
  /** Resolves when the first engines have started or failed. Never rejects. */
  start(): Promise<void>;
  engines(): EngineSettings[];
  models(): DiscoveredModel[];
  /** Applies a change of the engines that run provider packages. */
  configure(config: Config): void;
  /** State of the embedded engines, as recorded by the running server. */
  probes(): readonly EngineProbe[];
  /** `true` until every engine has started or failed once; more models may follow. */
  readonly areStarting: boolean;
  stop(): Promise<void>;
}

interface ProviderEngine {
  readonly settings: Config['engines'][string];
  readonly engine: EmbeddedEngine;
  /** Serves until `engine` has started. */
  readonly old?: Omit<ProviderEngine, 'old'> | undefined;
}

/** Time for running calls of the demo without weights, which take milliseconds. */
const DEMO_GRACE_MS = 10 * SECOND_MS;
/** Interval of progress reports of a fetched model. */
const REPORT_MS = 5 * SECOND_MS;

export class LocalEngines implements LocalEngineSource {
  readonly #parts: LocalEnginesParts;
  readonly #abort = new AbortController();
  /** The first is llama.cpp, if embedded engines are enabled. */
  readonly #engines: EmbeddedEngine[] = [];
  /** The engines that run provider packages, by their name in the configuration. */
  readonly #providers = new Map<string, ProviderEngine>();
  /** Replaced or removed ones that may have running calls, and how to cancel their timer. */
  readonly #draining = new Map<EmbeddedEngine, () => void>();
  #config: Config;
  /** Offered until another text model is available, and not again in this process. */
  #demo: EmbeddedEngine | undefined;
  #demoStart: Promise<void> | undefined;
  readonly #packageFetches = new Map<EngineSet, Promise<void>>();
  /** Models of the library that are being fetched or loaded, or could not be. */
  readonly #awaited = new Map<string, DiscoveredModel>();
  #found: readonly FoundEngine[] = [];
  #firstLook: Promise<void> | undefined;
  #stopLooking: (() => void) | undefined;
  #background: Promise<void> | undefined;
  #mediaStart: Promise<void> | undefined;
  #work: WorkFolder | undefined;
  #isStarted = false;
  areStarting: boolean;

  constructor(parts: LocalEnginesParts) {
    const { embedded, discovery, models } = parts.config;
    this.#parts = parts;
    this.#config = parts.config;
    this.areStarting = embedded.enabled || discovery.enabled;
    if (!embedded.enabled) return;
    const specs = [...(embedded.demo ? demoModels() : []), ...models.flatMap(ownSpec)];
    this.#add((onChange) => {
      const llama = llamaEngine(parts, specs, onChange);
      return { ...llamaOffer(llama), onInstalled: () => void this.#fillLibrary(llama) };
    });
    for (const describe of sentenceOffers(parts)) this.#add(describe);
  }

  /**
   * Finds engines and starts the embedded ones for text; resolves when both are done, or when the
   * demo without weights serves. A download may still run then, and media engines start. Never
   * rejects.
   */
  async start(): Promise<void> {
    this.#firstLook = this.#look();
    const hasPackages = this.#hasLlamaPackages();
    const wantsLlama = hasPackages || this.#needsLlama();
    const engines = wantsLlama ? this.#engines : this.#engines.slice(1);
    const starts = Promise.all([
      this.#firstLook,
      ...engines.map((engine) => engine.start()),
      this.#startProviders(),
    ]);
    this.#background = starts.then(() => this.#continueStart());
    if (hasPackages) return await this.#background;
    await this.#firstLook;
    await (this.#startDemo() ?? this.#background);
  }

  /** Runs after the engines for text have started or failed. */
  async #continueStart(): Promise<void> {
    if (this.#abort.signal.aborted) return;
    this.#lookLater();
    await this.#startDemo();
    this.#mediaStart = this.#startMedia().then(() => {
      if (this.#abort.signal.aborted) return;
      this.areStarting = false;
      this.#changed();
    });
  }

  /** Starts the demo without weights if there is no text model; `undefined` if it is not offered. */
  #startDemo(): Promise<void> | undefined {
    const { enabled, demo } = this.#config.embedded;
    if (!enabled || !demo || this.#hasTextModel() || this.#abort.signal.aborted) return undefined;
    if (this.#demoStart !== undefined) return this.#demoStart;
    this.#demo = this.#newEngine(demoOffer(this.#parts));
    this.#demoStart = this.#demo.start();
    return this.#demoStart;
  }

  /** Whether a text model other than the demo without weights is configured or serves. */
  #hasTextModel(): boolean {
    if (this.#config.models.some(({ type }) => type === 'text')) return true;
    return this.#offered().some(({ type, outage }) => type === 'text' && outage === undefined);
  }

  /**
   * Removes the demo without weights when another text model is available, and engines of provider
   * packages whose changed one serves.
   */
  #changed(): void {
    for (const [id, { settings, engine, old }] of this.#providers) {
      if (old === undefined || engine.settings().length === 0) continue;
      this.#providers.set(id, { settings, engine });
      this.#drain(old.engine, old.settings.totalTimeoutMs);
    }
    if (this.#demo !== undefined && this.#hasTextModel()) {
      this.#drain(this.#demo, DEMO_GRACE_MS);
      this.#demo = undefined;
    }
    this.#parts.onChange();
  }

  configure(config: Config): void {
    const { discovery } = this.#config;
    const names = this.#named().map(({ id }) => id);
    this.#config = config;
    // Before the start, the start applies it.
    if (this.#firstLook !== undefined && !isDeepStrictEqual(discovery, config.discovery))
      void this.#lookAgain();
    const isRenamed = this.#named().some(({ id }, at) => id !== names[at]);
    if (isRenamed || this.#demo !== undefined) this.#changed();
    // Before the start, the start applies it.
    if (this.#isStarted) void this.#startProviders();
  }

  /** Starts the provider engines that are new or changed. A changed one replaces the old one when it runs. */
  async #startProviders(): Promise<void> {
    if (this.#abort.signal.aborted) return;
    this.#isStarted = true;
    const { engines, proxies } = this.#config;
    for (const [id, { settings, engine, old }] of this.#providers) {
      if (engines[id]?.provider !== undefined) continue;
      this.#providers.delete(id);
      this.#drain(engine, settings.totalTimeoutMs);
      if (old !== undefined) this.#drain(old.engine, old.settings.totalTimeoutMs);
    }
    const starts = Object.entries(engines).map(async ([id, settings]) => {
      const before = this.#providers.get(id);
      if (settings.provider === undefined || isDeepStrictEqual(settings, before?.settings)) return;
      const isServing = before !== undefined && before.engine.settings().length > 0;
      if (!isServing) void before?.engine.close();
      const engine = this.#newEngine(providerOffer(this.#parts, { id, settings, proxies }));
      this.#providers.set(id, { settings, engine, old: isServing ? before : before?.old });
      await engine.start();
    });
    await Promise.all(starts);
  }

  /** Ends the process when its last call must have ended. */
  #drain(engine: EmbeddedEngine, afterMs: number): void {
    if (this.#abort.signal.aborted) return void engine.close();
    const cancel = this.#parts.clock.after(afterMs, () => {
      this.#draining.delete(engine);
      void engine.close();
    });
    this.#draining.set(engine, cancel);
  }

  engines(): EngineSettings[] {
    return [
      ...[...this.#providers.values()].flatMap(({ engine, old }) => {
        const settings = engine.settings();
        return settings.length > 0 ? settings : (old?.engine.settings() ?? []);
      }),
      ...this.#named().map(({ id, url }) => ({ id, protocol: 'openai' as const, url })),
      ...this.#engines.flatMap((engine) => engine.settings()),
      ...(this.#demo?.settings() ?? []),
    ];
  }

  models(): DiscoveredModel[] {
    const offered = [...this.#offered(), ...(this.#demo?.models() ?? [])];
    const ids = new Set(offered.map(({ id }) => id));
    return [...offered, ...[...this.#awaited.values()].filter(({ id }) => !ids.has(id))];
  }

  /** The found engines, with other ids than those of the configuration. */
  #named(): ReturnType<typeof withFreeIds> {
    return withFreeIds(this.#found, Object.keys(this.#config.engines));
  }

  #offered(): DiscoveredModel[] {
    const found = this.#named().flatMap(({ models }) => models);
    return [...found, ...this.#engines.flatMap((engine) => engine.models())];
  }

  probes(): EngineProbe[] {
    const providers = [...this.#providers.values()].map(({ engine }) => engine);
    return [...this.#engines, ...providers].map((engine) => engine.probe());
  }

  async stop(): Promise<void> {
    this.#stopLooking?.();
    this.#abort.abort();
    for (const cancel of this.#draining.values()) cancel();
    const providers = [...this.#providers.values()].flatMap(({ engine, old }) => {
      return old === undefined ? [engine] : [engine, old.engine];
    });
    const demo = this.#demo === undefined ? [] : [this.#demo];
    const all = new Set([...this.#engines, ...providers, ...demo, ...this.#draining.keys()]);
    await Promise.all([...all].map((engine) => engine.close()));
    await this.#background;
    await this.#mediaStart;
    await this.#work?.remove();
  }

  #add(describe: DescribeEngine): EmbeddedEngine {
    const engine = this.#newEngine(describe);
    this.#engines.push(engine);
    return engine;
  }

  #newEngine(describe: DescribeEngine): EmbeddedEngine {
    const { config, clock, log } = this.#parts;
    const { dataFolder } = config;
    const onChange = (): void => this.#changed();
    const fetchOnce = (set: EngineSet): Promise<void> => this.#requirePackages(set);
    const parts = { dataFolder, requirePackages: fetchOnce, onChange, clock, log };
    return new EmbeddedEngine(parts, describe);
  }

  /** Engines that need the same packages share one fetch. */
  #requirePackages(set: EngineSet): Promise<void> {
    const { signal } = this.#abort;
    const running = this.#packageFetches.get(set);
    if (running !== undefined) return running;
    const fetched = requirePackages(set, { ...this.#parts, signal }).finally(() => {
      this.#packageFetches.delete(set);
    });
    this.#packageFetches.set(set, fetched);
    return fetched;
  }

  #hasLlamaPackages(): boolean {
    return findPackages(packageSet('llama'), this.#parts.config.dataFolder) !== undefined;
  }

  /** A server with a configured text model needs no demo, so that no packages are fetched for it. */
  #needsLlama(): boolean {
    const { models } = this.#parts.config;
    return models.flatMap(ownSpec).length > 0 || !models.some((m) => m.type === 'text');
  }

  /** Starts the media engines in turn. */
  async #startMedia(): Promise<void> {
    const { config, log } = this.#parts;
    const { signal } = this.#abort;
    if (!config.embedded.enabled || !config.embedded.media || signal.aborted) return;
    try {
      this.#work = await openWorkFolder(join(config.dataFolder, 'work'), this.#parts);
    } catch (error) {
      // The media engines need a work folder; everything else continues without them.
      log.warn({ reason: reasonOf(error) }, 'The media engines have no work folder');
      return;
    }
    const offers = await mediaOffers(this.#parts, this.#work.path);
    if (signal.aborted) return;
    for (const engine of offers.map((describe) => this.#add(describe))) {
      if (!signal.aborted) await engine.start();
    }
  }

  #lookLater(): void {
    const { enabled, everySeconds } = this.#config.discovery;
    this.#stopLooking?.();
    if (!enabled || this.#abort.signal.aborted) return;
    this.#stopLooking = this.#parts.clock.after(everySeconds * SECOND_MS, () => {
      void this.#lookAgain();
    });
  }

  async #lookAgain(): Promise<void> {
    await this.#look(LOOK_LIMIT_MS);
    this.#lookLater();
  }

  async #look(limitMs?: number): Promise<void> {
    const { discovery } = this.#config;
    const targets = discovery.enabled ? probeTargets(discovery.urls) : [];
    const found = await discoverEngines(targets, limitMs, this.#found);
    // The change has begun another search.
    if (!isDeepStrictEqual(discovery, this.#config.discovery)) return;
    for (const { engine, url, models } of found) {
      if (this.#found.some((known) => known.url === url)) continue;
      this.#parts.log.info({ engine, models: models.length }, 'Found an engine on this machine');
    }
    this.#found = found;
    this.#changed();
  }

  /** Loads models fetched earlier, then fetches missing ones. */
  async #fillLibrary(llama: LlamaEngine): Promise<void> {
    const { config, log, clock } = this.#parts;
    const { dataFolder, embedded } = config;
    const { signal } = this.#abort;
    await this.#firstLook;
    for (const model of MODEL_LIBRARY) {
      try {
        if (!(await hasModel(dataFolder, model.file))) {
          if (!embedded.download || this.#isServed(model)) continue;
          const bytes = model.file.sizeBytes;
          log.info({ model: model.id, bytes }, 'Downloading a model in the background');
          const fetchModel = modelFetcher(this.#parts, () => model.title);
          await fetchModel(model.file, this.#progressOf(model), signal);
        }
        this.#await(model, { reason: 'is being loaded', backAtMs: clock.monotonicMs() });
        await llama.load(librarySpec(dataFolder, model));
        this.#awaited.delete(model.id);
        this.#changed();
      } catch (error) {
        // Without internet the demo model stays in use; the next start retries.
        if (signal.aborted) return;
        this.#await(model, { reason: `could not be downloaded from ${hostOf(model.file.url)}` });
        log.warn({ model: model.id, reason: reasonOf(error) }, 'A model could not be downloaded');
      }
    }
  }

  #progressOf(model: LibraryModel) {
    const { clock } = this.#parts;
    const { sizeBytes } = model.file;
    let reportedMs = clock.monotonicMs();
    const nothing = { bytesDone: 0, bytesPerSecond: 0 };
    this.#await(model, fetchingOutage(sizeBytes, nothing, reportedMs));
    return (fetched: typeof nothing): void => {
      const nowMs = clock.monotonicMs();
      if (nowMs - reportedMs < REPORT_MS) return;
      reportedMs = nowMs;
      this.#await(model, fetchingOutage(sizeBytes, fetched, nowMs));
    };
  }

  #await(model: LibraryModel, outage: ModelOutage): void {
    const { id, contextTokens: context } = model;
    const type = typeOf(model);
    const awaited = { id, type, context, origin: 'downloaded', replicas: [], outage } as const;
    this.#awaited.set(id, awaited);
    this.#changed();
  }

  /** Whether a model of the operator or of this machine already serves this kind of work. */
  #isServed(model: LibraryModel): boolean {
    const type = typeOf(model);
    if (this.#parts.config.models.some((configured) => configured.type === type)) return true;
    return this.#found.some(({ models }) => models.some((found) => found.type === type));
  }
}

function typeOf({ work }: LibraryModel): 'text' | 'embedding' {
  return work === 'chat' ? 'text' : 'embedding';
}

/**
 * Starts every enabled embedded engine, as the server would, and stops it again, to check the setup
 * before serving callers. Fetches nothing, and leaves nothing in the data folder. Returns the states
 * in the order of a start.
 */
export async function probeEmbedded(parts: LocalEnginesParts): Promise<readonly EngineProbe[]> {
  const { config, clock, log } = parts;
  const { embedded, dataFolder } = config;
  const providers = Object.entries(config.engines)
    .filter(([, { provider }]) => provider !== undefined)
    .map(([id, settings]) => providerOffer(parts, { id, settings, proxies: config.proxies }));
  const work = await mkdtemp(join(tmpdir(), 'farebox-check-'));
  const probes: EngineProbe[] = [];
  try {
    const local: DescribeEngine[] = embedded.enabled
      ? [
          (onChange) => llamaOffer(llamaEngine(parts, demoModels(), onChange)),
          ...sentenceOffers(parts),
          ...(await mediaOffers(parts, work)),
        ]
      : [];
    const offers = [...providers, ...local];
    const onChange = (): void => undefined;
    const noFetch = (): Promise<void> => Promise.resolve();
    const engineParts = { dataFolder, requirePackages: noFetch, onChange, clock, log };
    for (const describe of offers) {
      probes.push(await new EmbeddedEngine(engineParts, describe).tryOut());
    }
    return probes;
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

/**
 * Starts the process of the configured provider package `id`, lists the models of the provider, and
 * stops the process. Fetches nothing. Returns the reason as a text if the process does not start.
 */
export async function probeProvider(
  parts: LocalEnginesParts,
  id: string,
): Promise<ProbeResult | string> {
  const { config, clock, ids, log } = parts;
  const settings = config.engines[id];
  if (settings === undefined) return `There is no engine "${id}"`;
  const { dataFolder, proxies } = config;
  const onChange = (): void => undefined;
  const noFetch = (): Promise<void> => Promise.resolve();
  const engine = new EmbeddedEngine(
    { dataFolder, requirePackages: noFetch, onChange, clock, log },
    providerOffer(parts, { id, settings, proxies }),
  );
  const calls = new Engines({ clock, ids, log });
  try {
    await engine.start();
    const { problem, missing } = engine.probe();
    if (problem !== undefined || missing.length > 0) {
      return problem ?? missing.map(missingPackages).join('; ');
    }
    calls.update(engine.settings());
    return await calls.probe(id);
  } finally {
    await calls.close();
    await engine.close();
  }
}
