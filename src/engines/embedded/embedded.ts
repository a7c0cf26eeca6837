/**
 * Engines without configuration: the embedded llama.cpp process with the demo model and downloaded
 * models, and engines found on local ports. Everything happens in the background; the server never
 * waits for a download.
 *
 * A small open model is fetched only if no other model serves its kind of work.
 */
import type { DiscoveredModel, ModelOutage } from '../../catalog/catalog.ts';
import { MINUTE_MS, SECOND_MS } from '../../core/clock.ts';
import { reasonOf } from '../../core/log.ts';
import { type FoundEngine, LOOK_LIMIT_MS, discoverEngines, probeTargets } from '../discovery.ts';
import type { EngineSettings } from '../engines.ts';
import { LlamaEngine } from './llama-engine.ts';
import {
  type LibraryModel,
  type LoadedLlamaModel,
  MODEL_LIBRARY,
  demoModels,
  librarySpec,
  ownSpec,
} from './llama-models.ts';
import { type EngineSet, findPackages, packageSet } from './packages.ts';
import { FetchPace, fetchingOutage, hasModel, hostOf, modelFetcher } from './model-files.ts';
import type { EngineAddress, EngineProcess } from './supervisor.ts';
import { requirePackages } from './package-fetch.ts';
import {
  type EngineProbe,
  type LocalEnginesParts,
  MediaEngines,
  probeOf,
  threadsOf,
} from './media-engines.ts';
import {
  MAX_RERANKED,
  RERANK_MODEL,
  SENTENCE_DIMENSIONS,
  SENTENCE_MODEL,
  sentenceEngine,
} from './sentences.ts';

export interface LocalEngineSource {
  /** Resolves when the first engines have started or failed. Never rejects. */
  start(): Promise<void>;
  engines(): EngineSettings[];
  models(): DiscoveredModel[];
  /** State of the embedded engines, as recorded by the running server. */
  probes(): readonly EngineProbe[];
  /** `true` until every engine has started or failed once; more models may follow. */
  readonly areStarting: boolean;
  stop(): Promise<void>;
}

const LLAMA_ENGINE = 'embedded';
const FREE = { input: '0' };
const TELL_MS = 5 * SECOND_MS;
const SENTENCE_ENGINE = 'embedded-sentences';
/** Bundled, and preferred over the demo model. */
const SENTENCES: DiscoveredModel = {
  id: SENTENCE_MODEL,
  type: 'embedding',
  origin: 'downloaded',
  description: 'Vectors of English sentences: what means the same in other words is near.',
  replicas: [{ engine: SENTENCE_ENGINE, model: SENTENCE_MODEL }],
  embedding: { dimensions: SENTENCE_DIMENSIONS, maxInputTokens: 8_192, customDimensions: false },
};
const RERANK: DiscoveredModel = {
  id: RERANK_MODEL,
  type: 'rerank',
  origin: 'downloaded',
  description: 'Ranks English texts by how near their vectors are to that of the query.',
  replicas: [{ engine: SENTENCE_ENGINE, model: RERANK_MODEL }],
  rerank: { maxDocuments: MAX_RERANKED },
};
/** Delay before packages that could not be fetched are requested again. */
const RETRY_MS = 10 * MINUTE_MS;
const DEMO_DESCRIPTION =
  'A demo: word statistics of a short text. It babbles, and proves that everything works.';

export class LocalEngines implements LocalEngineSource {
  readonly #parts: LocalEnginesParts;
  readonly #abort = new AbortController();
  readonly #media: MediaEngines;
  #llama: LlamaEngine | undefined;
  #sentences: EngineProcess | undefined;
  #found: readonly FoundEngine[] = [];
  #stopLooking: (() => void) | undefined;
  #stopTrying: (() => void) | undefined;
  readonly #problems = new Map<string, string>();
  readonly #awaited = new Map<string, DiscoveredModel>();
  areStarting: boolean;

  constructor(parts: LocalEnginesParts) {
    const { embedded, discovery } = parts.config;
    this.#parts = parts;
    this.#media = new MediaEngines(parts);
    this.areStarting = embedded.enabled || discovery.enabled;
  }

  /**
   * Finds engines and starts the embedded one; resolves when both are done. A download may still
   * run then. Never rejects.
   */
  async start(): Promise<void> {
    const { discovery, embedded } = this.#parts.config;
    const looking = discovery.enabled ? this.#look() : Promise.resolve();
    if (embedded.enabled) await Promise.all([this.#startLlama(), this.#startSentences()]);
    await looking;
    if (discovery.enabled) {
      const everyMs = discovery.everySeconds * SECOND_MS;
      this.#stopLooking = this.#parts.clock.every(everyMs, () => void this.#look(LOOK_LIMIT_MS));
    }
    if (this.#llama !== undefined) void this.#fillLibrary(this.#llama);
    void this.#media.start().then(() => {
      if (this.#abort.signal.aborted) return;
      this.areStarting = false;
      this.#parts.onChange();
    });
  }

  engines(): EngineSettings[] {
    const settings = (id: string, address: EngineAddress | undefined): EngineSettings[] => {
      if (address === undefined) return [];
      const { url, apiKey } = address;
      return [{ id, protocol: 'openai', url: `${url}/v1`, apiKey, takesTurns: true }];
    };
    const sentences = settings(SENTENCE_ENGINE, this.#sentences?.runningAt);
    return [
      ...settings(LLAMA_ENGINE, this.#llama?.address),
      ...sentences.map((engine) => ({ ...engine, isOwn: true })),
      ...this.#found.map(({ engine: id, url }) => ({ id, protocol: 'openai' as const, url })),
      ...this.#media.engines(),
    ];
  }

  models(): DiscoveredModel[] {
    const own = (this.#llama?.models() ?? []).map(embeddedModel);
    const found = this.#found.flatMap(({ models }) => models);
    const { models } = this.#parts.config;
    const ranks = models.every(({ type }) => type !== 'rerank');
    const ofSentences = ranks ? [SENTENCES, RERANK] : [SENTENCES];
    const sentences = this.#sentences?.runningAt === undefined ? [] : ofSentences;
    const ids = new Set([...found, ...own].map(({ id }) => id));
    const awaited = [...this.#awaited.values()].filter(({ id }) => !ids.has(id));
    return [...found, ...own, ...sentences, ...this.#media.models(), ...awaited];
  }

  probes(): EngineProbe[] {
    const { dataFolder, embedded } = this.#parts.config;
    if (!embedded.enabled) return [];
    const probe = (engine: string, set: EngineSet, address: unknown): EngineProbe => {
      const problem = this.#problems.get(engine);
      return probeOf({ engine, needs: [set] }, { dataFolder, address, problem });
    };
    const own = [probe(LLAMA_ENGINE, 'llama', this.#llama?.address)];
    if (this.#wantsSentences()) {
      own.push(probe(SENTENCE_ENGINE, 'sentences', this.#sentences?.runningAt));
    }
    return [...own, ...this.#media.probes()];
  }

  async stop(): Promise<void> {
    this.#stopLooking?.();
    this.#stopTrying?.();
    this.#abort.abort();
    await Promise.all([this.#llama?.stop(), this.#sentences?.close(), this.#media.stop()]);
  }

  async #look(limitMs?: number): Promise<void> {
    const { urls } = this.#parts.config.discovery;
    const found = await discoverEngines(probeTargets(urls), limitMs);
    for (const { engine, models } of found) {
      if (this.#found.some((known) => known.engine === engine)) continue;
      this.#parts.log.info({ engine, models: models.length }, 'Found an engine on this machine');
    }
    this.#found = found;
    this.#parts.onChange();
  }

  async #startLlama(): Promise<void> {
    const { config, clock, ids, log, onChange } = this.#parts;
    const { embedded, dataFolder, models } = config;
    const isHere = findPackages(packageSet('llama'), dataFolder) !== undefined;
    const own = models.flatMap(ownSpec);
    // A server with a configured text model needs no demo.
    if (!isHere && own.length === 0 && models.some(({ type }) => type === 'text')) return;
    try {
      await requirePackages('llama', { ...this.#parts, signal: this.#abort.signal });
    } catch (error) {
      // The network may be available later.
      if (this.#abort.signal.aborted) return;
      this.#problems.set(LLAMA_ENGINE, reasonOf(error));
      log.warn({ reason: reasonOf(error) }, 'There is no embedded engine');
      if (embedded.download) this.#stopTrying = clock.after(RETRY_MS, () => void this.#tryLlama());
      return;
    }
    if (this.#abort.signal.aborted) return;
    const llama = new LlamaEngine({
      dataFolder,
      clock,
      ids,
      log,
      onChange,
      threads: threadsOf(config),
      models: [...(embedded.demo ? demoModels() : []), ...own],
    });
    this.#llama = llama;
    try {
      await llama.start();
    } catch (error) {
      // The engine retries by itself; the operator can read the reason meanwhile.
      this.#problems.set(LLAMA_ENGINE, reasonOf(error));
      log.warn({ reason: reasonOf(error) }, 'The embedded engine did not start');
    }
  }

  #wantsSentences(): boolean {
    const { embedded, models } = this.#parts.config;
    return embedded.sentences && models.every(({ type }) => type !== 'embedding');
  }

  async #startSentences(): Promise<void> {
    const { config, clock, ids, log, onChange } = this.#parts;
    const { dataFolder } = config;
    if (!this.#wantsSentences()) return;
    try {
      await requirePackages('sentences', { ...this.#parts, signal: this.#abort.signal });
      if (this.#abort.signal.aborted) return;
      this.#sentences = sentenceEngine({ dataFolder, clock, ids, log, onChange });
      await this.#sentences.address();
    } catch (error) {
      // The reason names the missing package; the demo model stays in use.
      this.#problems.set(SENTENCE_ENGINE, reasonOf(error));
      if (!this.#abort.signal.aborted) {
        log.warn({ reason: reasonOf(error) }, 'There is no sentence encoder');
      }
    }
  }

  async #tryLlama(): Promise<void> {
    await this.#startLlama();
    if (this.#llama !== undefined) await this.#fillLibrary(this.#llama);
  }

  /** Loads models fetched earlier, then fetches missing ones. */
  async #fillLibrary(llama: LlamaEngine): Promise<void> {
    const { config, log } = this.#parts;
    const { dataFolder, embedded } = config;
    const { signal } = this.#abort;
    for (const model of MODEL_LIBRARY) {
      try {
        if (!(await hasModel(dataFolder, model.file))) {
          if (!embedded.download || this.#isServed(model)) continue;
          log.info(
            { model: model.id, bytes: model.file.sizeBytes },
            'Fetching a model in the background',
          );
          const fetchModel = modelFetcher(this.#parts, () => model.title);
          await fetchModel(model.file, this.#awaiting(model), signal);
        }
        this.#await(model, {
          reason: 'is being loaded',
          backAtMs: this.#parts.clock.monotonicMs(),
        });
        await llama.load(librarySpec(dataFolder, model));
        this.#awaited.delete(model.id);
        this.#parts.onChange();
      } catch (error) {
        // Without internet the demo model stays in use; the next start retries.
        if (signal.aborted) return;
        this.#await(model, { reason: `could not be fetched from ${hostOf(model.file.url)}` });
        log.warn({ model: model.id, reason: reasonOf(error) }, 'A model could not be fetched');
      }
    }
  }

  #awaiting(model: LibraryModel): (receivedBytes: number) => void {
    const { clock } = this.#parts;
    const pace = new FetchPace(model.file.sizeBytes, clock);
    let toldMs = 0;
    this.#await(model, fetchingOutage(pace, clock.monotonicMs()));
    return (receivedBytes) => {
      pace.saw(receivedBytes);
      const nowMs = clock.monotonicMs();
      if (nowMs - toldMs < TELL_MS) return;
      toldMs = nowMs;
      this.#await(model, fetchingOutage(pace, clock.monotonicMs()));
    };
  }

  #await(model: LibraryModel, outage: ModelOutage): void {
    const { id, work, contextTokens } = model;
    const type = work === 'chat' ? 'text' : 'embedding';
    const known = { id, type, context: contextTokens, origin: 'downloaded', replicas: [] } as const;
    this.#awaited.set(id, { ...known, outage });
    this.#parts.onChange();
  }

  /** Whether a model of the operator or of this machine already serves this kind of work. */
  #isServed(model: LibraryModel): boolean {
    const type = model.work === 'chat' ? 'text' : 'embedding';
    if (this.#parts.config.models.some((configured) => configured.type === type)) return true;
    return this.#found.some(({ models }) => models.some((found) => found.type === type));
  }
}

function embeddedModel(model: LoadedLlamaModel): DiscoveredModel {
  const { id, isDemo, contextTokens, dimensions } = model;
  const common = {
    id,
    origin: isDemo ? 'demo' : 'downloaded',
    replicas: [{ engine: LLAMA_ENGINE, model: id }],
    context: contextTokens,
    ...(isDemo && { description: DEMO_DESCRIPTION }),
  } as const;
  if (model.work === 'embeddings') {
    const embedding = { dimensions, maxInputTokens: contextTokens, customDimensions: true };
    // Demo vectors carry no meaning: they are free, and never a default.
    return { ...common, type: 'embedding', embedding, ...(isDemo && { price: FREE }) };
  }
  const reasoning = model.canReason ? (['reasoning', 'reasoningEffort'] as const) : [];
  const capabilities = ['functionCalling', 'responseSchema', 'logProbs', ...reasoning] as const;
  return { ...common, type: 'text', capabilities };
}
