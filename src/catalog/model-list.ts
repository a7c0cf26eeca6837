/**
 * The bodies of `GET /models`, `/models/traits` and `/models/compatibility_mapping`. All keys are
 * those of the protocol.
 */
import type {
  Capability,
  ModelSettings,
  ModelType,
  PriceSettings,
  ServiceTier,
  TokenPrice,
  VideoModelSettings,
} from '../config/config.ts';
import { CAPABILITIES, MODEL_TYPES, SPEECH_SPEEDS, stepsOf } from '../config/config.ts';
import type { CatalogModel } from './model.ts';
import type { Price } from './compile-price.ts';

/** Values of `?type=`: `code` lists text models made for code, `all` lists everything. */
export const LIST_TYPES = [...MODEL_TYPES, 'all', 'code'] as const;
export type ListType = (typeof LIST_TYPES)[number];

interface ListedModel {
  readonly model: CatalogModel;
  readonly traits: readonly string[];
  readonly offline: boolean;
}

export type VideoConstraints = (model: VideoModelSettings) => object;

export interface ListOptions {
  readonly webSearch: boolean;
  readonly videoConstraints: VideoConstraints | undefined;
}

export function isOnList(model: CatalogModel, type: ListType): boolean {
  if (type === 'all') return true;
  if (type === 'code') return model.type === 'text' && model.capabilities.has('optimizedForCode');
  return model.type === type;
}

/** One item of the list; undefined members are omitted. */
export function modelItem({ model, traits, offline }: ListedModel, options: ListOptions): object {
  return {
    id: model.id,
    object: 'model',
    created: model.createdSeconds,
    owned_by: model.ownedBy,
    type: model.type,
    context_length: model.type === 'text' ? model.context : undefined,
    model_spec: {
      name: model.name,
      description: model.description,
      privacy: model.privacy,
      offline,
      offlineReason: model.outage && `The model ${model.outage.reason}`,
      beta: model.beta,
      betaModel: model.beta,
      uncensored: model.uncensored,
      traits,
      modelSource: model.source,
      regionRestrictions: model.regionRestrictions,
      deprecation: deprecationOf(model),
      pricing: pricingOf(model),
      ...extrasOf(model, options),
    },
  };
}

function deprecationOf({ deprecation }: CatalogModel): object | undefined {
  if (deprecation === undefined) return undefined;
  const { date, startsAt, removesAt = date, autoRemap, replacement } = deprecation;
  return {
    date,
    startsAt,
    removesAt,
    autoRemap: autoRemap && replacement !== undefined,
    replacementModelId: replacement,
  };
}

/** One unit of daily credit (`diem`) is one USD, so both numbers are equal. */
function amount(usd: string | undefined): object | undefined {
  return usd === undefined ? undefined : { usd: Number(usd), diem: Number(usd) };
}

function pricingOf({ price, batchPrice, type }: CatalogModel): object | undefined {
  if (price === undefined || type === 'video') return undefined;
  return {
    ...rowPrices(price.row, type),
    batch: batchPrice && rowPrices(batchPrice.row, type),
    ...variantPrices(price, type),
  };
}

function variantPrices({ variants }: Price, type: ModelType): object {
  const { flex, priority } = variants?.settings.serviceTiers ?? {};
  const prices = (tier: ServiceTier) =>
    variants && rowPrices(variants.of(undefined, tier).row, type);
  return {
    flex: flex && prices('flex'),
    priority: priority && prices('priority'),
    windows: variants?.settings.windows?.map((window) => {
      const { row } = variants.of(window, undefined);
      return { from: window.from, to: window.to, ...rowPrices(row, type) };
    }),
  };
}

function rowPrices(row: PriceSettings, type: ModelType): object {
  const [first, ...further] = stepsOf(row).map(({ above, ...prices }) => {
    return { context_token_threshold: above, ...tokenPrices(prices) };
  });
  return {
    ...tokenPrices(row),
    input: amount(row.perMillionCharacters ?? row.input),
    output: amount(row.output ?? (type === 'embedding' ? row.input : undefined)),
    extended: first && { ...first, further: further.length > 0 ? further : undefined },
    generation: amount(row.perImage),
    ...imagePrices(row),
    per_audio_second: amount(row.perSecond),
    per_search: amount(row.perSearch),
    per_request: amount(row.perRequest),
  };
}

function tokenPrices(row: Pick<PriceSettings, TokenPrice>): object {
  return {
    input: amount(row.input),
    output: amount(row.output),
    cache_input: amount(row.cacheInput),
    cache_write: amount(row.cacheWrite),
    cache_write_1h: amount(row.cacheWrite1h),
    audio_input: amount(row.audioInput),
    image_input: amount(row.imageInput),
    reasoning: amount(row.reasoning),
    audio_output: amount(row.audioOutput),
    image_output: amount(row.imageOutput),
  };
}

/** Prices by size, and by quality for one size or all sizes. */
function imagePrices({ imageRates = [] }: PriceSettings): object {
  const resolutions: Record<string, object | undefined> = {};
  const quality: Record<string, Record<string, object | undefined>> = {};
  for (const { size = 'any', quality: named, perImage } of imageRates) {
    if (named === undefined) resolutions[size] ??= amount(perImage);
    else (quality[size] ??= {})[named] ??= amount(perImage);
  }
  return {
    resolutions: Object.keys(resolutions).length > 0 ? resolutions : undefined,
    quality: Object.keys(quality).length > 0 ? quality : undefined,
  };
}

function extrasOf(model: CatalogModel, options: ListOptions): object {
  if (model.type === 'text') return textExtras(model, options);
  const { constraints, video, embedding, image, speech, rerank } = model;
  if (model.type === 'embedding') {
    return {
      embeddingDimensions: embedding?.dimensions,
      maxInputTokens: embedding?.maxInputTokens,
      supportsCustomDimensions: embedding?.customDimensions === true ? true : undefined,
    };
  }
  if (speech !== undefined) return { ...speechExtras(speech), constraints };
  if (rerank !== undefined) return { maxDocuments: rerank.maxDocuments, constraints };
  const ofVideo = video === undefined ? undefined : options.videoConstraints?.(video);
  const ofImage = image === undefined ? undefined : imageConstraints(image);
  if (constraints === undefined && ofVideo === undefined && ofImage === undefined) return {};
  return { constraints: { ...ofVideo, ...ofImage, ...constraints } };
}

function imageConstraints(image: NonNullable<ModelSettings['image']>): object {
  const { sizes, qualities, promptCharacterLimit, maxImages, edits, maxInputImages } = image;
  return {
    promptCharacterLimit,
    resolutions: sizes,
    defaultResolution: sizes?.[0],
    qualities,
    defaultQuality: qualities?.[0],
    maxImages,
    edits,
    maxInputImages: edits ? maxInputImages : undefined,
  };
}

function speechExtras(speech: NonNullable<ModelSettings['speech']>): object {
  const { voices, defaultVoice, formats, maxCharacters } = speech;
  return {
    voices,
    default_voice: defaultVoice ?? voices?.[0],
    supported_formats: formats,
    default_format: formats.includes('mp3') ? 'mp3' : formats[0],
    min_speed: SPEECH_SPEEDS.min,
    max_speed: SPEECH_SPEEDS.max,
    promptCharacterLimit: maxCharacters,
  };
}

function textExtras(model: CatalogModel, options: ListOptions): object {
  const { temperature, topP, frequencyPenalty, presencePenalty, repetitionPenalty } =
    model.sampling;
  const usual = (value: number | undefined): object | undefined =>
    value === undefined ? undefined : { default: value };
  const has = (capability: Capability): boolean =>
    model.capabilities.has(capability) || (capability === 'webSearch' && options.webSearch);
  return {
    availableContextTokens: model.context,
    maxCompletionTokens: model.maxCompletionTokens,
    capabilities: {
      ...capabilities(has),
      quantization: model.quantization,
      reasoningEffortOptions: model.reasoningEfforts,
      defaultReasoningEffort: model.defaultReasoningEffort,
      maxImages: model.maxImages,
      maxVideos: model.maxVideos,
    },
    constraints: {
      temperature: usual(temperature),
      top_p: usual(topP),
      frequency_penalty: usual(frequencyPenalty),
      presence_penalty: usual(presencePenalty),
      repetition_penalty: usual(repetitionPenalty),
      ...model.constraints,
    },
  };
}

/** An object with one member per capability, under its name in `GET /models`. */
export function capabilities<T>(valueOf: (capability: Capability) => T): Record<string, T> {
  return Object.fromEntries(CAPABILITIES.map((name) => [WIRE_CAPABILITIES[name], valueOf(name)]));
}

const WIRE_CAPABILITIES: Readonly<Record<Capability, string>> = {
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

/** The envelope of every list, as bytes that can be cached. */
export function listBody(type: ListType, data: unknown): Buffer {
  return Buffer.from(JSON.stringify({ object: 'list', type, data }));
}
