/**
 * The sections `models`, `defaults` and `priceFile`: models, their properties, prices and engines.
 * `cross-checks.ts` validates models after the price file (`import`) has filled in missing properties.
 */
import * as z from 'zod';
import { REASONING_EFFORTS } from '../core/reasoning-efforts.ts';

import {
  Text,
  Usd,
  count,
  distinct,
  flag,
  httpUrl,
  isoDate,
  usd,
  whole,
  group,
} from './setting-kinds.ts';
import { TIERS } from './limits-section.ts';
import {
  ImageModelSettings,
  RerankModelSettings,
  SpeechModelSettings,
} from './media-model-sections.ts';
import { VideoModelSettings, VideoPricing } from './video-model-section.ts';

/** Values of `GET /models?type=`. */
export const MODEL_TYPES = [
  'asr',
  'embedding',
  'image',
  'music',
  'text',
  'tts',
  'upscale',
  'inpaint',
  'video',
  'rerank',
  'moderation',
] as const;
export type ModelType = (typeof MODEL_TYPES)[number];

/** `GET /models` shows each as `supports…` (or `optimizedForCode`). */
export const CAPABILITIES = [
  'optimizedForCode',
  'functionCalling',
  'audioInput',
  'reasoning',
  'reasoningEffort',
  'responseSchema',
  'multipleImages',
  'vision',
  'videoInput',
  'webSearch',
  'xSearch',
  'logProbs',
  'teeAttestation',
  'e2ee',
] as const;
export type Capability = (typeof CAPABILITIES)[number];

export const QUANTIZATIONS = [
  'fp4',
  'fp8',
  'fp16',
  'bf16',
  'int8',
  'int4',
  'not-available',
] as const;

const perMillion = (what: string, fallback = '') =>
  Usd.optional().describe(`${what}, USD per 1,000,000 tokens.${fallback}`);

const TOKEN_PRICES = {
  cacheInput: perMillion('Prompt tokens read from a cache', ' Default: `input`.'),
  cacheWrite: perMillion('Prompt tokens written to a cache', ' Default: `input`.'),
  cacheWrite1h: perMillion(
    'Prompt tokens written to a cache for one hour',
    ' Default: the higher of `cacheWrite` and `input`.',
  ),
  audioInput: perMillion('Audio tokens of the prompt', ' Default: `input`.'),
  imageInput: perMillion('Image tokens of the prompt', ' Default: `input`.'),
  reasoning: perMillion('Reasoning tokens', ' Default: `output`.'),
  audioOutput: perMillion('Audio tokens of the completion', ' Default: `output`.'),
  imageOutput: perMillion('Image tokens of the completion', ' Default: `output`.'),
};
export type TokenPrice = 'input' | 'output' | keyof typeof TOKEN_PRICES;

/** A cache, audio, image or reasoning price that a step omits is the one without the step. */
type LongPrices = z.infer<typeof LongPrices>;
const LongPrices = z.strictObject({
  above: count().describe('Prompt tokens above which these prices apply to the whole request.'),
  input: Usd.describe('Prompt, USD per 1,000,000 tokens.'),
  output: Usd.describe('Completion, USD per 1,000,000 tokens.'),
  ...TOKEN_PRICES,
});

const ROW_PRICES = {
  input: perMillion('Prompt'),
  output: perMillion('Completion, reasoning included'),
  ...TOKEN_PRICES,
  extended: z
    .union([
      LongPrices,
      z
        .array(LongPrices)
        .min(1)
        .max(16)
        .superRefine(distinct('above', 'Another step has this threshold')),
    ])
    .optional()
    .describe(
      'Prices of long prompts: one step, or a list of steps. Prices that a step omits are the ordinary ones.',
    ),
  perImage: Usd.optional().describe(
    'USD per image. With token prices: for images without reported tokens, and the limit of the output of each image.',
  ),
  perSecond: Usd.optional().describe('USD per second of transcribed audio.'),
  perMillionCharacters: Usd.optional().describe('Speech, USD per 1,000,000 characters of text.'),
  perSearch: Usd.optional().describe(
    'Text models: USD per web search, instead of `search.usdPerSearch`. Rerank models: USD per search of up to 100 documents.',
  ),
  perRequest: Usd.optional().describe('USD per request, added to the other prices.'),
};

/** Prices that replace some of the ordinary ones. */
const VARIATION = {
  factor: Usd.optional().describe(
    'Multiplies the ordinary prices, except web searches of text models. Default: 1.',
  ),
  ...ROW_PRICES,
};
export const SERVICE_TIERS = ['flex', 'priority', 'batch'] as const;
export type ServiceTier = (typeof SERVICE_TIERS)[number];

const timeOfDay = () =>
  z.string().regex(/^([01]\d|2[0-3]):[0-5]\d$/, 'Must be a time of day in UTC, such as 16:30');

/** One row of prices. Token prices are USD per million, the others USD per unit. */
export type PriceSettings = z.infer<typeof PriceSettings>;
export const PriceSettings = z.strictObject({
  ...ROW_PRICES,
  imageRates: z
    .array(
      z.strictObject({
        size: Text.optional().describe(
          'Size that this price applies to, such as `1024x1024`. Default: any.',
        ),
        quality: Text.optional().describe('Quality that this price applies to. Default: any.'),
        perImage: Usd.describe('USD per image.'),
      }),
    )
    .max(64)
    .optional()
    .describe('Prices by size and quality. The first match applies, otherwise `perImage`.'),
  serviceTiers: z
    .strictObject({
      flex: z.strictObject(VARIATION).optional().describe('Requests with `service_tier: flex`.'),
      priority: z
        .strictObject(VARIATION)
        .optional()
        .describe('Requests with `service_tier: priority`.'),
      batch: z
        .strictObject(VARIATION)
        .optional()
        .describe('Requests in a batch, instead of `batches.priceFactor`.'),
    })
    .optional()
    .describe('Prices by service tier. A tier without a price is not requested from the engine.'),
  windows: z
    .array(
      z.strictObject({
        from: timeOfDay().describe('Start, UTC, such as `16:30`.'),
        to: timeOfDay().describe('End, UTC. An earlier time than `from` is on the next day.'),
        ...VARIATION,
      }),
    )
    .max(24)
    .optional()
    .describe(
      'Prices by time of day at the start of the request. The first match applies. A service tier applies to the prices of the window.',
    ),
});

/** The steps of long prompts, in ascending order. */
export function stepsOf({ extended = [] }: Pick<PriceSettings, 'extended'>): readonly LongPrices[] {
  return Array.isArray(extended) ? extended.toSorted((a, b) => a.above - b.above) : [extended];
}

export const ReplicaSettings = z.strictObject({
  engine: Text.describe('Name of an engine in `engines`.'),
  model: Text.optional().describe('Model id at the engine. Default: `id`.'),
  weight: whole(1).describe('Share of the requests among replicas of the same order.'),
  order: z
    .number()
    .int()
    .min(0)
    .default(0)
    .describe('Replicas of a higher order are used only if all lower ones are unavailable.'),
  cost: PriceSettings.optional().describe(
    'Prices that the supplier charges for this replica. Only the operator sees them.',
  ),
  videoCost: VideoPricing.optional().describe(
    'The same for a model of type video: pricing of the supplier, as `video.pricing`.',
  ),
});

const Deprecation = z.strictObject({
  date: isoDate().describe('Date of the removal, shown in headers and in `GET /models`.'),
  startsAt: isoDate().optional().describe('Start of the warnings. Default: immediately.'),
  removesAt: isoDate()
    .optional()
    .describe('Time at which the model is no longer served. Default: `date`.'),
  replacement: Text.optional().describe('Id of the replacement.'),
  autoRemap: flag(true).describe(
    'Serve the replacement after the removal; with `false` requests get 410.',
  ),
});

const Sampling = z.strictObject({
  temperature: z.number().min(0).max(2).optional(),
  topP: z.number().min(0).max(1).optional(),
  frequencyPenalty: z.number().min(-2).max(2).optional(),
  presencePenalty: z.number().min(-2).max(2).optional(),
  repetitionPenalty: z.number().min(0).optional(),
});

const Embedding = z.strictObject({
  dimensions: count().describe('Dimensions of a vector.'),
  maxInputTokens: whole(8_192).describe('Maximum length of an input, in tokens.'),
  customDimensions: flag(false).describe(
    '`true` if a request may shorten vectors with `dimensions`.',
  ),
  maxBatch: count()
    .max(2_048)
    .optional()
    .describe(
      'Maximum number of inputs in one call of the engine. The server splits larger requests. Default: 2048.',
    ),
  tokenIds: z
    .enum(['cl100k', 'o200k', 'own'])
    .optional()
    .describe(
      'Vocabulary of token ids in requests. The server decodes `cl100k` and `o200k` to text, and forwards ids of the vocabulary of the model (`own`). It also counts the length of texts with this vocabulary, with `cl100k` for `own`. Default: `cl100k`.',
    ),
});

export const modelId = z
  .string()
  .regex(
    /^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}$/,
    'Must be 1 to 128 letters, digits or . _ : / @ + - and start with a letter or digit',
  );

export type ModelSettings = z.infer<typeof ModelSettings>;
export const ModelSettings = z.strictObject({
  id: modelId.describe('Id of the model in requests.'),
  type: z.enum(MODEL_TYPES).default('text').describe('Kind of model.'),
  name: Text.max(120).optional().describe('Display name. Default: the id.'),
  description: z.string().max(2_000).default('').describe('Description of the model.'),
  source: z
    .union([httpUrl(), z.literal('')])
    .default('')
    .describe('URL of the origin of the model.'),
  ownedBy: Text.optional().describe('Value of `owned_by`. Default: `service.name`.'),
  created: isoDate().optional().describe('Value of `created`. Default: the start of the server.'),
  privacy: z
    .enum(['private', 'anonymized'])
    .default('private')
    .describe(
      '`private`: prompts stay on your own engines. `anonymized`: a third party runs the model.',
    ),
  import: Text.optional().describe(
    'Key in the price file, from which missing context, limits, capabilities and prices are read.',
  ),
  gguf: Text.optional().describe(
    'GGUF file that the embedded engine serves as this model. Default context and capabilities come from the file, the default price from `defaults.price`. A change needs a restart.',
  ),
  context: count().optional().describe('Context length in tokens. Required for text models.'),
  maxCompletionTokens: count().optional().describe('Maximum output in tokens. Default: `context`.'),
  tier: z
    .enum(TIERS)
    .optional()
    .describe(
      'Tier of the rate limits. Default: from the parameter count in the id (7b, 70B), else `M`.',
    ),
  traits: z
    .array(
      z
        .string()
        .regex(
          /^[a-z][a-z0-9_]{0,63}$/,
          'Must be 1 to 64 lowercase letters, digits and _, and start with a letter',
        ),
    )
    .default([])
    .describe(
      'Traits of this model, for example `default`. They take precedence over derived traits.',
    ),
  aliases: z
    .array(modelId)
    .default([])
    .describe('Additional ids for compatibility, for example `gpt-4o`.'),
  capabilities: z.array(z.enum(CAPABILITIES)).optional().describe('Capabilities of a text model.'),
  quantization: z
    .enum(QUANTIZATIONS)
    .default('not-available')
    .describe('Number format of the weights.'),
  reasoningEfforts: z
    .array(z.enum(REASONING_EFFORTS))
    .optional()
    .describe('Supported values of `reasoning_effort`.'),
  defaultReasoningEffort: z
    .enum(REASONING_EFFORTS)
    .optional()
    .describe('Default of `reasoning_effort`.'),
  maxImages: count().optional().describe('Maximum number of images in one request.'),
  maxVideos: count().optional().describe('Maximum number of videos in one request.'),
  templateTokens: count()
    .optional()
    .describe(
      'Maximum number of tokens that the chat template adds to a prompt: default system prompt, role marks, start of the completion. Holds include it, and more is never billed. Default: 256, raised up to 4096 if engines report more for short prompts.',
    ),
  imageTokens: whole(2_048).describe('Maximum prompt tokens that one image counts for.'),
  audioTokensPerSecond: whole(64).describe(
    'Maximum prompt tokens that one second of audio counts for.',
  ),
  videoTokensPerSecond: whole(1_024).describe(
    'Maximum prompt tokens that one second of video counts for.',
  ),
  sampling: Sampling.prefault({}).describe('Default sampling parameters, shown in `constraints`.'),
  price: PriceSettings.optional().describe('Prices. A model without a price is not sold.'),
  replicas: z.array(ReplicaSettings).max(64).default([]).describe('Engines that run the model.'),
  attempts: count()
    .max(20)
    .optional()
    .describe(
      'Maximum number of attempts over all replicas until the first byte. Default: depends on the number of replicas.',
    ),
  fallbacks: z
    .array(modelId)
    .min(1)
    .max(8)
    .optional()
    .describe(
      'Ids of models that run the request if all replicas of this model fail before the first byte, in order: for models of type text, embedding, image and rerank. The model that runs is charged. For an embedding model: ids of models with the same weights, because vectors of different models cannot be compared; their dimensions must be equal.',
    ),
  requires: z.enum(['pro']).optional().describe('Plan that an account needs to use the model.'),
  regionRestrictions: z
    .array(z.string().regex(/^[A-Z]{2}$/, 'Must be a two-letter country code'))
    .default([])
    .describe(
      'Countries in which the model is not offered. With `http.countryHeader` requests from there get 403; otherwise the list is only shown.',
    ),
  offline: flag(false).describe('List the model but do not serve it.'),
  batch: flag(true).describe('Allow the model in batches.'),
  beta: flag(false).describe('Show the model as beta.'),
  uncensored: flag(false).describe('Show the model as uncensored.'),
  listed: flag(true).describe('List the model in `GET /models`.'),
  deprecation: Deprecation.optional().describe('Date of removal and replacement.'),
  embedding: Embedding.optional().describe(
    'Properties of an embedding model. Required for that type.',
  ),
  video: VideoModelSettings.optional().describe(
    'Properties of a video model. Required for that type.',
  ),
  image: ImageModelSettings.optional().describe('Properties of an image model.'),
  speech: SpeechModelSettings.optional().describe('Properties of a speech model (`tts`).'),
  rerank: RerankModelSettings.optional().describe('Properties of a rerank model.'),
  constraints: z
    .record(z.string(), z.unknown())
    .optional()
    .describe('Additional `constraints` in `GET /models` (image models).'),
  limits: z
    .strictObject({
      requestsPerMinute: count().optional(),
      tokensPerMinute: count().optional(),
    })
    .optional()
    .describe('Rate limits of this model on every plan, instead of the ones of its tier.'),
});

export const ModelsSection = z.array(ModelSettings).max(100_000).default([]);

export const PriceFileSection = Text.optional().describe(
  'Path of a price file in the LiteLLM format, which models use with `import`.',
);

/** Defaults of models that are not in the configuration: discovered and embedded ones. */
export type DefaultsSection = z.infer<typeof DefaultsSection>;
export const DefaultsSection = group({
  price: group({
    text: group({
      input: usd('0.05').describe('Prompt, USD per 1,000,000 tokens.'),
      output: usd('0.20').describe('Completion, USD per 1,000,000 tokens.'),
    }),
    embedding: group({ input: usd('0.0125').describe('USD per 1,000,000 tokens.') }),
    rerank: group({ input: usd('0.0125').describe('USD per 1,000,000 tokens.') }),
    asr: group({ perSecond: usd('0.0001').describe('USD per second of audio.') }),
    tts: group({
      perMillionCharacters: usd('1').describe('USD per 1,000,000 characters of text.'),
    }),
    image: group({ perImage: usd('0.03').describe('USD per image.') }),
  }).describe('Prices of discovered and embedded models.'),
  context: whole(4_096).describe(
    'Context length of a discovered model that does not report it, in tokens.',
  ),
  privacy: z
    .enum(['private', 'anonymized'])
    .default('private')
    .describe('Privacy of discovered models.'),
});
