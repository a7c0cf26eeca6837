/**
 * Engines that nobody configured: the embedded llama.cpp process with the demo model, models that
 * were downloaded, and engines found on local ports. Started in the background; the server never
 * waits for them.
 */
import { availableParallelism } from 'node:os';
import type { DiscoveredModel } from '../catalog/catalog.ts';
import type { Config } from '../config/config.ts';
import type { EngineSettings } from '../engines/engines.ts';
import { demoModels } from '../engines/llama/demo-model.ts';
import { LlamaEngine, llamaAvailable } from '../engines/llama/llama-engine.ts';
import type { LoadedLlamaModel } from '../engines/llama/llama-wire.ts';
import type { Clock } from '../kernel/clock.ts';
import type { Ids } from '../kernel/ids.ts';
import { type Log, reasonOf } from '../kernel/log.ts';

export interface LocalEnginesParts {
  readonly config: Config;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  /** Called when engines or models came or went. */
  readonly onChange: () => void;
}

const LLAMA_ENGINE = 'embedded';
const KEY_BYTES = 16;
const DEMO_DESCRIPTION =
  'A demo: word statistics of a short text. It babbles, and proves that everything works.';

export class LocalEngines {
  readonly #parts: LocalEnginesParts;
  readonly #apiKey: string;
  #llama: LlamaEngine | undefined;
  #problem: string | undefined;

  constructor(parts: LocalEnginesParts) {
    this.#parts = parts;
    this.#apiKey = parts.ids.hex(KEY_BYTES);
  }

  /** Why there is no embedded engine, in words for the operator. */
  get problem(): string | undefined {
    return this.#problem;
  }

  /** Starts what the configuration allows; resolves when the embedded engine is up or has failed. */
  async start(): Promise<void> {
    const { embedded } = this.#parts.config;
    if (!embedded.enabled || !embedded.demo) return;
    const available = llamaAvailable();
    if (!available.ok) {
      this.#problem = available.reason;
      return;
    }
    const llama = new LlamaEngine({
      clock: this.#parts.clock,
      log: this.#parts.log,
      threads: embedded.threads ?? Math.max(1, availableParallelism() - 1),
      models: demoModels(),
      apiKey: this.#apiKey,
      onChange: () => this.#parts.onChange(),
    });
    this.#llama = llama;
    try {
      await llama.start();
    } catch (error) {
      // The engine tries again by itself; the operator hears why it is not there yet.
      this.#problem = reasonOf(error);
      this.#parts.log.warn({ reason: this.#problem }, 'The embedded engine did not start');
    }
  }

  engines(): EngineSettings[] {
    const url = this.#llama?.url;
    if (url === undefined) return [];
    return [{ id: LLAMA_ENGINE, protocol: 'openai', url, apiKey: this.#apiKey }];
  }

  models(): DiscoveredModel[] {
    return (this.#llama?.models() ?? []).map((model) => ({
      id: model.id,
      origin: model.isDemo ? 'demo' : 'downloaded',
      replicas: [{ engine: LLAMA_ENGINE, model: model.id }],
      context: model.contextTokens,
      ...(model.isDemo ? { description: DEMO_DESCRIPTION } : {}),
      ...workOf(model),
    }));
  }

  async stop(): Promise<void> {
    await this.#llama?.stop();
  }
}

function workOf(
  model: LoadedLlamaModel,
): Pick<DiscoveredModel, 'type' | 'capabilities' | 'embedding'> {
  if (model.work === 'embeddings') {
    const { dimensions, contextTokens } = model;
    const embedding = { dimensions, maxInputTokens: contextTokens, customDimensions: true };
    return { type: 'embedding', embedding };
  }
  const reasoning = model.canReason ? (['reasoning', 'reasoningEffort'] as const) : [];
  return {
    type: 'text',
    capabilities: ['functionCalling', 'responseSchema', 'logProbs', ...reasoning],
  };
}
