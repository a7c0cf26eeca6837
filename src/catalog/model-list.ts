/**
 * The bodies of `GET /models`, `/models/traits` and `/models/compatibility_mapping`. Their shapes
 * are wire shapes: the spelling of every key is the protocol's.
 */
import type { Capability, ModelType, PriceSettings, VideoModelSettings } from '../config/config.ts';
import { CAPABILITIES, MODEL_TYPES } from '../config/config.ts';
import type { CatalogModel } from './model.ts';

/** What `?type=` of the list takes: `code` is text made for code, `all` is everything. */
export const LIST_TYPES = [...MODEL_TYPES, 'all', 'code'] as const;
export type ListType = (typeof LIST_TYPES)[number];

export interface ListedModel {
  readonly model: CatalogModel;
  /** Traits it holds now. */
  readonly traits: readonly string[];
  readonly offline: boolean;
}

/** Shows what a video model allows, in wire words; the video folder knows them. */
export type VideoConstraints = (model: VideoModelSettings) => object;

export interface ListOptions {
  /** Web search is configured, so every text model can be asked to use it. */
  readonly webSearch: boolean;
  readonly videoConstraints: VideoConstraints | undefined;
}

/** Whether a model belongs on the list of a type. */
export function isOnList(model: CatalogModel, type: ListType): boolean {
  if (type === 'all') return true;
  if (type === 'code') return model.type === 'text' && model.capabilities.has('optimizedForCode');
  return model.type === type;
}

/** One item of the list. */
export function modelItem(listed: ListedModel, options: ListOptions): Record<string, unknown> {
  const { model } = listed;
  return {
    id: model.id,
    object: 'model',
    created: model.createdSeconds,
    owned_by: model.ownedBy,
    type: model.type,
    ...(model.type === 'text' ? { context_length: model.context } : {}),
    model_spec: {
      name: model.name,
      description: model.description,
      privacy: model.privacy,
      offline: listed.offline,
      beta: model.beta,
      betaModel: model.beta,
      uncensored: model.uncensored,
      traits: listed.traits,
      modelSource: model.source,
      regionRestrictions: model.regionRestrictions,
      ...deprecationOf(model),
      ...pricingOf(model),
      ...extrasOf(model, options),
    },
  };
}

function deprecationOf(model: CatalogModel): object {
  const { deprecation } = model;
  if (deprecation === undefined) return {};
  const { date, startsAt, removesAt, autoRemap, replacement } = deprecation;
  return {
    deprecation: {
      date,
      ...(startsAt === undefined ? {} : { startsAt }),
      removesAt: removesAt ?? date,
      autoRemap: autoRemap && replacement !== undefined,
      ...(replacement === undefined ? {} : { replacementModelId: replacement }),
    },
  };
}

interface Amount {
  readonly usd: number;
  readonly diem: number;
}

/** One unit of daily credit is one USD, so both figures are the same. */
function amount(usd: string): Amount {
  return { usd: Number(usd), diem: Number(usd) };
}

function amounts(row: Readonly<Record<string, string | undefined>>): Record<string, Amount> {
  const given = Object.entries(row).flatMap(([key, usd]) =>
    usd === undefined ? [] : [[key, amount(usd)] as const],
  );
  return Object.fromEntries(given);
}

function pricingOf(model: CatalogModel): object {
  const row = model.price?.row;
  if (row === undefined || model.type === 'video') return {};
  return { pricing: { ...tokenPricing(row, model.type), ...unitPricing(row) } };
}

function tokenPricing(row: PriceSettings, type: ModelType): object {
  const { extended } = row;
  const flat = amounts({
    input: row.input,
    output: row.output ?? (type === 'embedding' ? row.input : undefined),
    cache_input: row.cacheInput,
    cache_write: row.cacheWrite,
  });
  if (extended === undefined) return flat;
  const { above, input, output, cacheInput, cacheWrite } = extended;
  const long = amounts({ input, output, cache_input: cacheInput, cache_write: cacheWrite });
  return { ...flat, extended: { context_token_threshold: above, ...long } };
}

function unitPricing(row: PriceSettings): object {
  return amounts({
    generation: row.perImage,
    per_audio_second: row.perSecond,
    per_search: row.perSearch,
    per_request: row.perRequest,
  });
}

function extrasOf(model: CatalogModel, options: ListOptions): object {
  if (model.type === 'text') return textExtras(model, options);
  if (model.type === 'embedding') return embeddingExtras(model);
  const { constraints, video } = model;
  const ofVideo = video === undefined ? undefined : options.videoConstraints?.(video);
  if (constraints === undefined && ofVideo === undefined) return {};
  return { constraints: { ...ofVideo, ...constraints } };
}

function textExtras(model: CatalogModel, options: ListOptions): object {
  const { temperature, topP, frequencyPenalty, presencePenalty, repetitionPenalty } =
    model.sampling;
  const constraint = (key: string, value: number | undefined): object =>
    value === undefined ? {} : { [key]: { default: value } };
  return {
    availableContextTokens: model.context,
    maxCompletionTokens: model.maxCompletionTokens,
    capabilities: capabilitiesOf(model, options),
    constraints: {
      ...constraint('temperature', temperature),
      ...constraint('top_p', topP),
      ...constraint('frequency_penalty', frequencyPenalty),
      ...constraint('presence_penalty', presencePenalty),
      ...constraint('repetition_penalty', repetitionPenalty),
      ...model.constraints,
    },
  };
}

/** What `GET /models` calls each capability. */
export const WIRE_CAPABILITIES: Readonly<Record<Capability, string>> = {
  optimizedForCode: 'optimizedForCode',
  functionCalling: 'supportsFunctionCalling',
  audioInput: 'supportsAudioInput',
  reasoning: 'supportsReasoning',
  reasoningEffort: 'supportsReasoningEffort',
  responseSchema: 'supportsResponseSchema',
  multipleImages: 'supportsMultipleImages',
  vision: 'supportsVision',
  videoInput: 'supportsVideoInput',
  webSearch: 'supportsWebSearch',
  xSearch: 'supportsXSearch',
  logProbs: 'supportsLogProbs',
  teeAttestation: 'supportsTeeAttestation',
  e2ee: 'supportsE2EE',
};

function capabilitiesOf(model: CatalogModel, options: ListOptions): object {
  const has = (capability: Capability): boolean =>
    model.capabilities.has(capability) || (capability === 'webSearch' && options.webSearch);
  return {
    ...Object.fromEntries(CAPABILITIES.map((name) => [WIRE_CAPABILITIES[name], has(name)])),
    quantization: model.quantization,
    ...(model.reasoningEfforts === undefined
      ? {}
      : { reasoningEffortOptions: model.reasoningEfforts }),
    ...(model.defaultReasoningEffort === undefined
      ? {}
      : { defaultReasoningEffort: model.defaultReasoningEffort }),
    ...(model.maxImages === undefined ? {} : { maxImages: model.maxImages }),
    ...(model.maxVideos === undefined ? {} : { maxVideos: model.maxVideos }),
  };
}

function embeddingExtras(model: CatalogModel): object {
  const { embedding } = model;
  if (embedding === undefined) return {};
  return {
    embeddingDimensions: embedding.dimensions,
    maxInputTokens: embedding.maxInputTokens,
    ...(embedding.customDimensions ? { supportsCustomDimensions: true } : {}),
  };
}

/** The envelope of every list, as bytes that are sent again and again. */
export function listBody(type: ListType, data: unknown): Buffer {
  return Buffer.from(JSON.stringify({ object: 'list', type, data }));
}
