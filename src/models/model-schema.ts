/** The schema of a model in the lists. */
import * as z from 'zod';
import { capabilities } from '../catalog/catalog.ts';
import { type Capability, MODEL_TYPES, QUANTIZATIONS } from '../config/config.ts';
import { REASONING_EFFORTS } from '../core/reasoning-efforts.ts';

const Amount = z
  .strictObject({
    usd: z.number().describe('Price in USD.'),
    diem: z.number().describe('Price in daily credit, the same number.'),
  })
  .describe('Price; one unit of daily credit is one USD.')
  .meta({ id: 'Amount' });

const TokenPrices = {
  input: Amount.optional().describe('Per million prompt tokens.'),
  output: Amount.optional().describe('Per million completion tokens, reasoning included.'),
  cache_input: Amount.optional().describe("Per million tokens read from the engine's cache."),
  cache_write: Amount.optional().describe("Per million tokens written to the engine's cache."),
  cache_write_1h: Amount.optional().describe('Per million tokens written to it for one hour.'),
  audio_input: Amount.optional().describe('Per million audio tokens of the prompt.'),
  image_input: Amount.optional().describe('Per million image tokens of the prompt.'),
  reasoning: Amount.optional().describe('Per million reasoning tokens.'),
  audio_output: Amount.optional().describe('Per million audio tokens of the completion.'),
  image_output: Amount.optional().describe('Per million image tokens of the completion.'),
};

const LongPrices = {
  context_token_threshold: z.int().describe('Prompts with more tokens have these prices.'),
  ...TokenPrices,
};

const Prices = {
  ...TokenPrices,
  extended: z
    .strictObject({
      ...LongPrices,
      further: z
        .array(z.strictObject(LongPrices))
        .optional()
        .describe('Prices above higher thresholds, in ascending order.'),
    })
    .optional()
    .describe('Prices for longer prompts.'),
  generation: Amount.optional().describe(
    'Per image; with token prices for images without reported tokens, and at most for the output of each image.',
  ),
  resolutions: z
    .record(z.string(), Amount)
    .optional()
    .describe('Per image, by size; `generation` for other sizes.'),
  quality: z
    .record(z.string(), z.record(z.string(), Amount))
    .optional()
    .describe('Per image, by size (or `any`) and quality.'),
  per_request: Amount.optional().describe('Per request.'),
  per_search: Amount.optional().describe(
    'Per web search; of rerank models per search of up to 100 documents.',
  ),
  per_audio_second: Amount.optional().describe('Per second of audio.'),
};

const Pricing = z
  .strictObject({
    ...Prices,
    batch: z
      .strictObject(Prices)
      .optional()
      .describe('Prices in a batch; absent if the model does not support batches.'),
    flex: z.strictObject(Prices).optional().describe('Prices of `service_tier: flex`.'),
    priority: z.strictObject(Prices).optional().describe('Prices of `service_tier: priority`.'),
    windows: z
      .array(
        z.strictObject({
          from: z.string().describe('Start of the window, UTC.'),
          to: z.string().describe('End of the window, UTC.'),
          ...Prices,
        }),
      )
      .optional()
      .describe('Prices by the time of day at which a request starts. The first match applies.'),
  })
  .describe('Prices per million tokens; for speech models `input` is per million characters.');

const CAPABILITY_WORDS: Readonly<Record<Capability, string>> = {
  optimizedForCode: 'Optimized for code.',
  functionCalling: 'Supports `tools`.',
  audioInput: 'Accepts `input_audio` parts.',
  reasoning: 'Supports reasoning.',
  reasoningEffort: 'Supports `reasoning_effort`.',
  responseSchema: 'Supports `response_format` with a JSON Schema.',
  multipleImages: 'Accepts several images.',
  vision: 'Accepts `image_url` parts.',
  videoInput: 'Accepts `video_url` parts.',
  webSearch: 'Supports `enable_web_search`.',
  xSearch: 'Supports `enable_x_search`: its engine searches the web and social networks itself.',
  logProbs: 'Supports `logprobs`.',
  teeAttestation: 'Runs in an attested enclave, according to the operator.',
  e2ee: 'Supports end-to-end encryption, according to the operator.',
};

const Words = z.array(z.string());
const Effort = z.enum(REASONING_EFFORTS);

const Capabilities = z.strictObject({
  ...capabilities((name) => z.boolean().describe(CAPABILITY_WORDS[name])),
  quantization: z
    .enum(QUANTIZATIONS)
    .describe('Precision of the weights; `not-available` if unknown.'),
  reasoningEffortOptions: z
    .array(Effort)
    .optional()
    .describe('Supported values of `reasoning_effort`.'),
  defaultReasoningEffort: Effort.optional().describe('Default reasoning effort.'),
  maxImages: z.int().optional().describe('Maximum number of images per request.'),
  maxVideos: z.int().optional().describe('Maximum number of videos per request.'),
});

const Default = z.strictObject({
  default: z.number().describe('Default value.'),
});

const Constraints = z
  .looseObject({
    temperature: Default.optional().describe('Default temperature.'),
    top_p: Default.optional().describe('Default `top_p`.'),
    frequency_penalty: Default.optional().describe('Default `frequency_penalty`.'),
    presence_penalty: Default.optional().describe('Default `presence_penalty`.'),
    repetition_penalty: Default.optional().describe('Default `repetition_penalty`.'),
    model_type: z
      .enum(['text-to-video', 'image-to-video', 'video'])
      .optional()
      .describe('Kind of video generation.'),
    durations: Words.optional().describe('Supported durations, such as `5s`.'),
    resolutions: Words.optional().describe(
      'Supported resolutions such as `720p`, or sizes such as `1024x1024`.',
    ),
    aspect_ratios: Words.optional().describe('Supported aspect ratios, such as `16:9`.'),
    audio: z.boolean().optional().describe('Whether videos can have sound.'),
    audio_configurable: z.boolean().optional().describe('Whether a request can turn sound off.'),
    prompt_character_limit: z
      .int()
      .optional()
      .describe('Maximum length of a prompt in characters.'),
    promptCharacterLimit: z
      .int()
      .optional()
      .describe('Image models: maximum length of a prompt in characters.'),
    defaultResolution: z.string().optional().describe('Image models: default size.'),
    qualities: Words.optional().describe('Image models: supported values of `quality`.'),
    defaultQuality: z.string().optional().describe('Image models: default quality.'),
    maxImages: z.int().optional().describe('Image models: maximum number of images per request.'),
    edits: z
      .boolean()
      .optional()
      .describe('Image models: whether `/images/edits` supports the model.'),
    maxInputImages: z
      .int()
      .optional()
      .describe('Image models: maximum number of input images of an edit.'),
  })
  .describe('Sampling defaults, limits of the model, and settings of the operator.');

const Deprecation = z.strictObject({
  date: z.string().describe('Date of removal.'),
  startsAt: z.string().optional().describe('Time of the first deprecation warning, ISO 8601.'),
  removesAt: z.string().describe('Time of removal, ISO 8601.'),
  autoRemap: z.boolean().describe('Whether the replacement serves requests after the removal.'),
  replacementModelId: z.string().optional().describe('Replacement model.'),
});

export const Model = z
  .strictObject({
    id: z.string().describe('Id of the model.'),
    object: z.literal('model').describe('Kind of the object.'),
    created: z
      .int()
      .describe('Unix time in seconds, set by the operator. Default: start of the server.'),
    owned_by: z.string().describe('Name of the provider.'),
    type: z.enum(MODEL_TYPES).describe('Type of the model.'),
    context_length: z.int().optional().describe('Text models only.'),
    model_spec: z
      .strictObject({
        name: z.string().describe('Display name.'),
        description: z.string().describe('Description of the model; may be empty.'),
        privacy: z
          .enum(['private', 'anonymized'])
          .describe(
            "`private`: prompts stay on the operator's machines; `anonymized`: a third party runs the model without the caller's identity.",
          ),
        offline: z.boolean().describe('Whether no engine serves the model now.'),
        offlineReason: z.string().optional().describe('Why the model is offline, if known.'),
        beta: z.boolean().describe('Whether the model is in beta.'),
        betaModel: z.boolean().describe('Same as `beta`.'),
        uncensored: z.boolean().describe('Whether the model has no content policy of its own.'),
        traits: Words.describe('Traits of the model, such as `default` or `fastest`.'),
        modelSource: z.string().describe("URL of the model's source; may be empty."),
        regionRestrictions: Words.describe('Countries where the model is not offered.'),
        deprecation: Deprecation.optional().describe('Removal and replacement, if deprecated.'),
        pricing: Pricing.optional().describe('Prices; absent if free or priced by a quote.'),
        availableContextTokens: z
          .int()
          .optional()
          .describe('Maximum tokens of prompt and completion together.'),
        maxCompletionTokens: z.int().optional().describe('Maximum tokens of a completion.'),
        capabilities: Capabilities.optional().describe('Text models only.'),
        constraints: Constraints.optional().describe('Defaults and limits of request parameters.'),
        embeddingDimensions: z.int().optional().describe('Length of a vector.'),
        maxInputTokens: z.int().optional().describe('Maximum tokens of one embedding input.'),
        supportsCustomDimensions: z
          .literal(true)
          .optional()
          .describe('Whether `dimensions` is supported.'),
        voices: Words.optional().describe('Speech models: supported voices.'),
        default_voice: z.string().optional().describe('Speech models: default voice.'),
        supported_formats: Words.optional().describe('Speech models: supported audio formats.'),
        default_format: z.string().optional().describe('Speech models: default audio format.'),
        min_speed: z.number().optional().describe('Speech models: minimum speed; 1 is normal.'),
        max_speed: z.number().optional().describe('Speech models: maximum speed; 1 is normal.'),
        promptCharacterLimit: z
          .int()
          .optional()
          .describe('Speech models: maximum length of a text in characters.'),
        maxDocuments: z
          .int()
          .optional()
          .describe('Rerank models: maximum number of documents per request.'),
      })
      .describe('Description, capabilities and prices of the model.'),
  })
  .meta({ id: 'Model' });
