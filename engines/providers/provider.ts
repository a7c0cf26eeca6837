/**
 * The provider package of this process: its factory, its models by kind of work, and the options of
 * the provider that every call has.
 */
import type {
  EmbeddingModelV4,
  Experimental_VideoModelV4,
  ImageModelV4,
  LanguageModelV4,
  RerankingModelV4,
  SharedV4ProviderOptions,
  SpeechModelV4,
  TranscriptionModelV4,
} from '@ai-sdk/provider';
import type { ProviderSettings } from '../../src/engines/embedded/program-contract.ts';
import { type JsonObject, isJsonObject } from '../../src/json/json-scan.ts';
import { Downloads } from './downloads.ts';
import { ProviderFailure } from './failure.ts';
import { createTaskProvider, isTaskApi } from './video-tasks.ts';

interface Models {
  readonly language: LanguageModelV4;
  readonly embedding: EmbeddingModelV4;
  readonly image: ImageModelV4;
  readonly speech: SpeechModelV4;
  readonly transcription: TranscriptionModelV4;
  readonly reranking: RerankingModelV4;
  readonly video: Experimental_VideoModelV4;
}

/** Members of a provider that return a model of the kind, the current name first. */
const GETTERS: Readonly<Record<keyof Models, readonly string[]>> = {
  language: ['languageModel'],
  embedding: ['embeddingModel', 'textEmbeddingModel'],
  image: ['imageModel', 'image'],
  speech: ['speechModel', 'speech'],
  transcription: ['transcriptionModel', 'transcription'],
  reranking: ['rerankingModel', 'reranking'],
  video: ['videoModel', 'video'],
};

/** Names under which a package reads its options, if they are other than its own name. */
const OPTION_NAMES: Readonly<Record<string, readonly string[]>> = {
  'amazon-bedrock': ['amazonBedrock', 'bedrock', 'anthropic'],
  azure: ['azure', 'openai'],
  'black-forest-labs': ['blackForestLabs'],
  gateway: ['gateway', 'anthropic', 'google', 'openai'],
  'google-vertex': ['googleVertex', 'vertex', 'google', 'anthropic', 'xai'],
  moonshotai: ['moonshotai'],
};
/** Their Responses API stores every response unless a call declines it. */
const STORING = ['openai', 'azure', 'huggingface', 'xai'];

/** Hosts of packages without a setting for them; `baseURL` replaces them. */
const FIXED_HOSTS: Readonly<Record<string, readonly string[]>> = {
  '@ai-sdk/assemblyai': ['api.assemblyai.com'],
  '@ai-sdk/deepgram': ['api.deepgram.com'],
  '@ai-sdk/elevenlabs': ['api.elevenlabs.io'],
  '@ai-sdk/fal': ['queue.fal.run', 'fal.run'],
  '@ai-sdk/gladia': ['api.gladia.io'],
  '@ai-sdk/hume': ['api.hume.ai'],
  '@ai-sdk/lmnt': ['api.lmnt.com'],
  '@ai-sdk/revai': ['api.rev.ai'],
};

/**
 * Packages that cannot cancel a video job, whose provider can: the member of the operation with the
 * URL of the job, the method for `/cancel` below it, the key, and the usual origin.
 */
const CANCELS: Readonly<Record<string, readonly [string, string, string, string, string]>> = {
  '@ai-sdk/fal': ['responseUrl', 'PUT', 'Key', 'apiKey', 'https://queue.fal.run'],
  '@ai-sdk/replicate': ['getUrl', 'POST', 'Bearer', 'apiToken', 'https://api.replicate.com'],
};
const CANCEL_TIMEOUT_MS = 20_000;

/** Other hosts are those of files that the provider returned. */
function movedFetch(hosts: readonly string[], baseURL: string, downloads: Downloads): typeof fetch {
  return async (input, init) => {
    const url = new URL(input instanceof Request ? input.url : input);
    if (hosts.includes(url.host)) {
      return await fetch(baseURL.replace(/\/$/, '') + url.pathname + url.search, init);
    }
    const isDownload = (init?.method ?? 'GET') === 'GET' && url.origin !== new URL(baseURL).origin;
    if (!isDownload) return await fetch(input, init);
    const signal = init?.signal ?? new AbortController().signal;
    return new Response(await downloads.fetch(url.href, signal));
  };
}

type Getter = (this: unknown, modelId: string) => unknown;
type Factory = (settings: object) => unknown;

export class Provider {
  readonly #provider: JsonObject;
  readonly #names: readonly string[];
  readonly #given: ProviderSettings;
  readonly #fetch: typeof fetch;
  readonly #always: ProviderSettings['providerOptions'];
  readonly downloads: Downloads;

  static async load(given: ProviderSettings): Promise<Provider> {
    if (isTaskApi(given.provider)) {
      const made = createTaskProvider(given.provider, given.settings);
      return new Provider(made, given, new Downloads(given.settings['baseURL'], given.proxy));
    }
    const module = (await import(given.provider)) as JsonObject; // a module is an object
    const [, factory] = Object.entries(module).find(([name]) => /^create[A-Z]/.test(name)) ?? [];
    if (typeof factory !== 'function') throw new Error(`${given.provider} has no factory`);
    const { settings, provider } = given;
    const hosts = FIXED_HOSTS[provider] ?? [];
    const { baseURL } = settings;
    const downloads = new Downloads(baseURL, given.proxy);
    const isMoved = typeof baseURL === 'string' && hosts.length > 0;
    const moved = isMoved ? movedFetch(hosts, baseURL, downloads) : undefined;
    // All provider packages have factories of this type.
    const made = (factory as Factory)({ ...settings, ...(moved && { fetch: moved }) });
    return new Provider(made, given, downloads, moved);
  }

  private constructor(
    provider: unknown,
    given: ProviderSettings,
    downloads: Downloads,
    moved: typeof fetch = fetch,
  ) {
    this.downloads = downloads;
    this.#given = given;
    this.#fetch = moved;
    // A provider is a function with members, or an object.
    this.#provider = provider as JsonObject;
    const [, name = given.provider] = given.provider.split('/');
    this.#names = OPTION_NAMES[name] ?? [name];
    this.#always = given.providerOptions;
  }

  /** Throws a `ProviderFailure` if the provider has no models of this kind. */
  model<Kind extends keyof Models>(kind: Kind, id: string): Models[Kind] {
    const name = GETTERS[kind].find((one) => typeof this.#provider[one] === 'function');
    if (name === undefined) throw new ProviderFailure(501, `The provider has no ${kind} models`);
    const getter = this.#provider[name] as Getter; // checked above
    const model = getter.call(this.#provider, id);
    if (!isJsonObject(model) || model['specificationVersion'] !== 'v4') {
      throw new ProviderFailure(501, `The ${kind} models of the provider have another interface`);
    }
    return model as unknown as Models[Kind]; // of this kind, by the getter and the version
  }

  /** Cancels a video job at the provider. Throws a `ProviderFailure` if that is not possible. */
  async cancelVideo(modelId: string, operation: JsonObject): Promise<void> {
    const model = this.model('video', modelId) as { doCancel?: (one: JsonObject) => Promise<void> }; // own models
    if (model.doCancel !== undefined) return await model.doCancel(operation);
    const { provider, settings } = this.#given;
    const [member, method, scheme, key, usual] = CANCELS[provider] ?? [];
    const url = URL.parse(`${String(operation[member ?? ''])}/cancel`);
    const own =
      typeof settings['baseURL'] === 'string' ? URL.parse(settings['baseURL'])?.origin : '';
    // The key is sent to the provider only.
    if (method === undefined || url === null || ![usual, own].includes(url.origin)) {
      throw new ProviderFailure(501, 'The provider cannot cancel a video');
    }
    const response = await this.#fetch(url.href, {
      method,
      redirect: 'error',
      signal: AbortSignal.timeout(CANCEL_TIMEOUT_MS),
      headers: { authorization: `${scheme} ${String(settings[key ?? ''])}` },
    });
    await response.body?.cancel();
    if (!response.ok) throw new ProviderFailure(response.status, 'The provider did not cancel it');
  }

  /** The options under every name that the package reads; `undefined` if there are none. */
  named(options: JsonObject): SharedV4ProviderOptions | undefined {
    const set = Object.entries(options).filter(([, value]) => value !== undefined);
    if (set.length === 0) return undefined;
    const values = Object.fromEntries(set);
    // From JSON, or written by this program.
    return Object.fromEntries(this.#names.map((name) => [name, values])) as SharedV4ProviderOptions;
  }

  /** The options of a call: those of the configuration, and those of the request. */
  callOptions(options: JsonObject = {}): SharedV4ProviderOptions {
    const requested = this.named(options) ?? {};
    const stored = this.#names.filter((name) => STORING.includes(name));
    const names = new Set([...stored, ...Object.keys(this.#always), ...Object.keys(requested)]);
    const merged = [...names].map((name) => [
      name,
      { ...(stored.includes(name) && { store: false }), ...this.#always[name], ...requested[name] },
    ]);
    return Object.fromEntries(merged) as SharedV4ProviderOptions; // from the configuration, JSON
  }
}

/** The members of all providers in metadata of a response. */
export function metadataOf(metadata: object | undefined): JsonObject {
  return Object.assign({}, ...Object.values(metadata ?? {}).filter(isJsonObject)) as JsonObject;
}
