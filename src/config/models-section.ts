/**
 * The models on offer: what they are, what they can do, what they cost and which engines run them.
 * Whatever the file leaves out can come from the price file (`import`); what is needed after that
 * is checked in `cross-checks.ts`.
 */
import { z } from 'zod';
import { REASONING_EFFORTS } from '../core/reasoning-efforts.ts';

import { Text, Usd, count, flag, httpUrl, isoDate, usd, whole, group } from './setting-kinds.ts';
import { TIERS } from './limits-section.ts';
import {
  ImageModelSettings,
  RerankModelSettings,
  SpeechModelSettings,
} from './media-model-sections.ts';
import { VideoModelSettings } from './video-model-section.ts';

/** Kinds of model, in the words of `GET /models?type=`. */
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

/** What a text model can do; `GET /models` shows each as `supports…` (or `optimizedForCode`). */
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

/** One row of prices. Token prices are USD per million, the others USD per unit. */
export type PriceSettings = z.infer<typeof PriceSettings>;
export const PriceSettings = z.strictObject({
  input: perMillion('Prompt'),
  output: perMillion('Completion, reasoning included'),
  cacheInput: perMillion('Prompt tokens read from a cache', ' Default: `input`.'),
  cacheWrite: perMillion('Prompt tokens written to a cache', ' Default: `input`.'),
  extended: z
    .strictObject({
      above: count().describe('Prompt tokens above which these prices hold for the whole request.'),
      input: Usd.describe('Prompt, USD per 1,000,000 tokens.'),
      output: Usd.describe('Completion, USD per 1,000,000 tokens.'),
      cacheInput: perMillion('Cache reads', ' Default: the ordinary price.'),
      cacheWrite: perMillion('Cache writes', ' Default: the ordinary price.'),
    })
    .optional()
    .describe('Prices of long prompts.'),
  perImage: Usd.optional().describe('USD per image.'),
  imageRates: z
    .array(
      z.strictObject({
        size: Text.optional().describe(
          'Of images of this size, such as `1024x1024`. Default: any.',
        ),
        quality: Text.optional().describe('Of images of this quality. Default: any.'),
        perImage: Usd.describe('USD per image.'),
      }),
    )
    .max(64)
    .optional()
    .describe('Prices of images by size and quality, the first that fits; `perImage` for others.'),
  perSecond: Usd.optional().describe('USD per second of audio that is heard.'),
  perMillionCharacters: Usd.optional().describe('Speech, USD per 1,000,000 characters of text.'),
  perSearch: Usd.optional().describe(
    'Text models: USD per web search; replaces the general price. Rerank models: USD per search of up to 100 documents.',
  ),
  perRequest: Usd.optional().describe('USD per request, on top of the rest.'),
});

export const ReplicaSettings = z.strictObject({
  engine: Text.describe('A name of `engines`.'),
  model: Text.optional().describe("The engine's own model id. Default: `id`."),
  weight: whole(1).describe('Share of the traffic among replicas of the same order.'),
  order: z
    .number()
    .int()
    .min(0)
    .default(0)
    .describe('Replicas of a higher order serve only when all lower ones are out.'),
});

const Deprecation = z.strictObject({
  date: isoDate().describe('The day the model goes, shown in headers and in `GET /models`.'),
  startsAt: isoDate().optional().describe('When callers are first warned. Default: at once.'),
  removesAt: isoDate().optional().describe('When the model stops. Default: `date`.'),
  replacement: Text.optional().describe('Id of the model that follows.'),
  autoRemap: flag(true).describe('After the removal serve the replacement; `false` answers 410.'),
});

const Sampling = z.strictObject({
  temperature: z.number().min(0).max(2).optional(),
  topP: z.number().min(0).max(1).optional(),
  frequencyPenalty: z.number().min(-2).max(2).optional(),
  presencePenalty: z.number().min(-2).max(2).optional(),
  repetitionPenalty: z.number().min(0).optional(),
});

const Embedding = z.strictObject({
  dimensions: count().describe('Length of a vector.'),
  maxInputTokens: whole(8_192).describe('Longest input.'),
  customDimensions: flag(false).describe('`dimensions` may shorten vectors.'),
  maxBatch: count()
    .max(2_048)
    .optional()
    .describe('Inputs that the engine takes at once; more are split. Default: 2048.'),
  tokenIds: z
    .enum(['cl100k', 'o200k', 'own'])
    .optional()
    .describe(
      'What token ids in a request mean: a public vocabulary, turned into text for the engine, or the own vocabulary of the model, passed through. Default: `cl100k`, as clients send them. The length of texts is counted in the same public vocabulary, and in `cl100k` for `own`.',
    ),
});

const modelId = z
  .string()
  .regex(
    /^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}$/,
    'Must be 1 to 128 letters, digits or . _ : / @ + - and start with a letter or digit',
  );

export type ModelSettings = z.infer<typeof ModelSettings>;
export const ModelSettings = z.strictObject({
  id: modelId.describe('The id that callers send.'),
  type: z.enum(MODEL_TYPES).default('text').describe('Kind of model.'),
  name: Text.max(120).optional().describe('Name for people. Default: the id.'),
  description: z.string().max(2_000).default('').describe('A sentence for people.'),
  source: z
    .union([httpUrl(), z.literal('')])
    .default('')
    .describe('Where the model comes from.'),
  ownedBy: Text.optional().describe('`owned_by`. Default: the service name.'),
  created: isoDate().optional().describe('`created`. Default: the start of the server.'),
  privacy: z
    .enum(['private', 'anonymized'])
    .default('private')
    .describe('`private`: nothing leaves your engines. `anonymized`: a third party runs it.'),
  import: Text.optional().describe(
    'Key in the price file; fills in context, caps, capabilities and prices.',
  ),
  gguf: Text.optional().describe(
    'A GGUF file, relative to this file, that the embedded engine serves as this model. The file tells context and capabilities, and `defaults.price` the price, where they are not set. Needs a restart.',
  ),
  context: count().optional().describe('Context in tokens. Needed for text models.'),
  maxCompletionTokens: count().optional().describe('Cap of the output. Default: `context`.'),
  tier: z
    .enum(TIERS)
    .optional()
    .describe('Limit tier. Default: from the parameter count in the id (7b, 70B), else `M`.'),
  traits: z
    .array(z.string().regex(/^[a-z][a-z0-9_]{0,63}$/, 'A trait has lowercase letters and _'))
    .default([])
    .describe('Traits that this model holds, for example `default`. Yours win over derived ones.'),
  aliases: z
    .array(modelId)
    .default([])
    .describe('Further ids, for example `gpt-4o`: the compatibility mapping.'),
  capabilities: z.array(z.enum(CAPABILITIES)).optional().describe('What a text model can do.'),
  quantization: z.enum(QUANTIZATIONS).default('not-available').describe('Number format.'),
  reasoningEfforts: z.array(z.enum(REASONING_EFFORTS)).optional().describe('Efforts it knows.'),
  defaultReasoningEffort: z.enum(REASONING_EFFORTS).optional().describe('Its default effort.'),
  maxImages: count().optional().describe('Images in one request.'),
  maxVideos: count().optional().describe('Videos in one request.'),
  templateTokens: count()
    .optional()
    .describe(
      'Upper bound of the tokens that the chat template adds to a prompt: a default system prompt, role marks, the opening of the answer. Holds include it, and no more is billed. Default: 256, raised to what the engines report for short prompts, up to 4096.',
    ),
  imageTokens: whole(2_048).describe('Upper bound of the prompt tokens of one image.'),
  audioTokensPerSecond: whole(64).describe('Upper bound for audio input.'),
  videoTokensPerSecond: whole(1_024).describe('Upper bound for video input.'),
  sampling: Sampling.prefault({}).describe('Defaults of the model, shown as constraints.'),
  price: PriceSettings.optional().describe('Prices. A model without a price is not sold.'),
  replicas: z
    .array(ReplicaSettings)
    .max(64)
    .default([])
    .describe('Engines that run the model; the same model may run on several.'),
  attempts: count()
    .max(20)
    .optional()
    .describe('Attempts before the first byte, over all replicas. Default: by their number.'),
  requires: z.enum(['pro']).optional().describe('Only for accounts on this plan.'),
  regionRestrictions: z
    .array(z.string().regex(/^[A-Z]{2}$/, 'Must be a two-letter country code'))
    .default([])
    .describe(
      'Countries where it is not offered: 403 where `http.countryHeader` is set, for information otherwise.',
    ),
  offline: flag(false).describe('Listed but not served.'),
  batch: flag(true).describe('Whether requests of a batch may name it.'),
  beta: flag(false).describe('Shown as beta.'),
  uncensored: flag(false).describe('Shown as uncensored.'),
  listed: flag(true).describe('`false` serves it without listing it.'),
  deprecation: Deprecation.optional().describe('When and how the model goes.'),
  embedding: Embedding.optional().describe('Needed for embedding models.'),
  video: VideoModelSettings.optional().describe('Needed for video models.'),
  image: ImageModelSettings.optional().describe('What an image model takes.'),
  speech: SpeechModelSettings.optional().describe('What a speech model (`tts`) takes.'),
  rerank: RerankModelSettings.optional().describe('What a rerank model takes.'),
  constraints: z
    .record(z.string(), z.unknown())
    .optional()
    .describe('Further `constraints` of `GET /models`, shown as they are (image models).'),
  limits: z
    .strictObject({
      requestsPerMinute: count().optional(),
      tokensPerMinute: count().optional(),
    })
    .optional()
    .describe('Limits of this model instead of those of its tier, on every plan.'),
});

export const ModelsSection = z.array(ModelSettings).max(100_000).default([]);

export const PriceFileSection = Text.optional().describe(
  'A price file in the LiteLLM format, for `import` in models; beside this file.',
);

/** Prices of models that no one configured: found on local ports, or embedded. */
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
    image: group({ perImage: usd('0.03').describe('USD per image.') }),
  }).describe('Prices of discovered and embedded models. Small, so that cost is visible.'),
  context: whole(4_096).describe('Context of a discovered model that tells none.'),
  privacy: z
    .enum(['private', 'anonymized'])
    .default('private')
    .describe('Privacy of discovered models.'),
});
