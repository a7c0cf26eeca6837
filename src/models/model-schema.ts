/** One model as the lists show it: what it is, what it can do, what it takes and what it costs. */
import { z } from 'zod';
import { WIRE_CAPABILITIES } from '../catalog/catalog.ts';
import { CAPABILITIES, type Capability, MODEL_TYPES, QUANTIZATIONS } from '../config/config.ts';
import { REASONING_EFFORTS } from '../core/reasoning-efforts.ts';

const Amount = z
  .strictObject({
    usd: z.number().describe('Price in USD.'),
    diem: z.number().describe('Price in daily credit, the same number.'),
  })
  .describe('USD; one unit of daily credit is one USD.')
  .meta({ id: 'Amount' });

const TokenPrices = {
  input: Amount.optional().describe('For each million tokens of the prompt.'),
  output: Amount.optional().describe('For each million tokens of the answer, thinking included.'),
  cache_input: Amount.optional().describe("For each million tokens read from the engine's cache."),
  cache_write: Amount.optional().describe("For each million tokens written to the engine's cache."),
};

const Prices = {
  ...TokenPrices,
  extended: z
    .strictObject({
      context_token_threshold: z
        .int()
        .describe('Prompts with more tokens than this pay these prices.'),
      ...TokenPrices,
    })
    .optional()
    .describe('Of prompts with more tokens than the threshold.'),
  generation: Amount.optional().describe('Per image.'),
  resolutions: z
    .record(z.string(), Amount)
    .optional()
    .describe('Per image, by its size; `generation` for other sizes.'),
  quality: z
    .record(z.string(), z.record(z.string(), Amount))
    .optional()
    .describe('Per image, by its size, or `any`, and then by its quality.'),
  per_request: Amount.optional().describe('For each request.'),
  per_search: Amount.optional().describe(
    'For each web search, and for each page that was read; of rerank models for each search of up to 100 documents.',
  ),
  per_audio_second: Amount.optional().describe('For each second of a recording.'),
};

const Pricing = z
  .strictObject({
    ...Prices,
    batch: z
      .strictObject(Prices)
      .optional()
      .describe('The same of a request in a batch; missing where there are none of the model.'),
  })
  .describe(
    'Prices of tokens are per million; of speech, `input` is per million characters of text.',
  );

/** A member for each capability. */
export function capabilities<T>(valueOf: (capability: Capability) => T): Record<string, T> {
  return Object.fromEntries(CAPABILITIES.map((name) => [WIRE_CAPABILITIES[name], valueOf(name)]));
}

const CAPABILITY_WORDS: Readonly<Record<Capability, string>> = {
  optimizedForCode: 'Made for code.',
  functionCalling: 'Takes `tools` and calls them.',
  audioInput: 'Takes recordings, as parts `input_audio`.',
  reasoning: 'Thinks before it answers.',
  reasoningEffort: 'Takes `reasoning_effort`.',
  responseSchema: 'Takes `response_format` with a JSON Schema.',
  multipleImages: 'Takes several images, and keeps those of the whole history.',
  vision: 'Takes images, as parts `image_url`.',
  videoInput: 'Takes videos, as parts `video_url`.',
  webSearch: 'Can be asked with `enable_web_search`.',
  xSearch: "Can be asked with `enable_x_search`, its engine's own search.",
  logProbs: 'Takes `logprobs`.',
  teeAttestation: 'Runs in an enclave that can be attested, by the word of the operator.',
  e2ee: 'Speaks end-to-end encrypted with its callers, by the word of the operator.',
};

const Capabilities = z.strictObject({
  ...capabilities((name) => z.boolean().describe(CAPABILITY_WORDS[name])),
  quantization: z
    .enum(QUANTIZATIONS)
    .describe('Precision of the weights; `not-available` where it is not told.'),
  reasoningEffortOptions: z
    .array(z.enum(REASONING_EFFORTS))
    .optional()
    .describe('The words of `reasoning_effort` that the model takes.'),
  defaultReasoningEffort: z
    .enum(REASONING_EFFORTS)
    .optional()
    .describe('How much it thinks when nothing is said.'),
  maxImages: z.int().optional().describe('Most images of a request.'),
  maxVideos: z.int().optional().describe('Most videos of a request.'),
});

const Default = z.strictObject({
  default: z.number().describe('What is used when the request says nothing.'),
});

const Constraints = z
  .looseObject({
    temperature: Default.optional().describe('The usual temperature.'),
    top_p: Default.optional().describe('The usual `top_p`.'),
    frequency_penalty: Default.optional().describe('The usual `frequency_penalty`.'),
    presence_penalty: Default.optional().describe('The usual `presence_penalty`.'),
    repetition_penalty: Default.optional().describe('The usual `repetition_penalty`.'),
    model_type: z
      .enum(['text-to-video', 'image-to-video', 'video'])
      .optional()
      .describe('What a video is made from or of.'),
    durations: z
      .array(z.string())
      .optional()
      .describe('Durations that can be asked for, such as `5s`.'),
    resolutions: z
      .array(z.string())
      .optional()
      .describe('Resolutions that can be asked for, such as `720p`, or sizes such as `1024x1024`.'),
    aspect_ratios: z
      .array(z.string())
      .optional()
      .describe('Aspect ratios that can be asked for, such as `16:9`.'),
    audio: z.boolean().optional().describe('Whether its videos can have sound.'),
    audio_configurable: z
      .boolean()
      .optional()
      .describe('Whether a request can turn the sound off.'),
    prompt_character_limit: z.int().optional().describe('Most characters of a prompt.'),
    promptCharacterLimit: z.int().optional().describe('Image models: the longest prompt.'),
    defaultResolution: z.string().optional().describe('Image models: the size unless named.'),
    qualities: z.array(z.string()).optional().describe('Image models: what `quality` takes.'),
    defaultQuality: z.string().optional().describe('Image models: the quality unless named.'),
    maxImages: z.int().optional().describe('Image models: images of one request.'),
    edits: z.boolean().optional().describe('Image models: `/images/edits` takes it.'),
    maxInputImages: z.int().optional().describe('Image models: pictures that an edit starts from.'),
  })
  .describe('Defaults of sampling, what a video model takes, and what the operator adds.');

const Deprecation = z.strictObject({
  date: z.string().describe('The day from which it is gone.'),
  startsAt: z.string().optional().describe('When answers began, or begin, to warn; ISO 8601.'),
  removesAt: z.string().describe('When it is gone; ISO 8601.'),
  autoRemap: z.boolean().describe('Whether the replacement answers when it is gone.'),
  replacementModelId: z.string().optional().describe('The model to use instead.'),
});

export const Model = z
  .strictObject({
    id: z.string().describe('Id to ask for it by.'),
    object: z.literal('model').describe('Kind of the object.'),
    created: z
      .int()
      .describe('Unix time in seconds that the operator gives; else the start of the server.'),
    owned_by: z.string().describe('Who offers it.'),
    type: z.enum(MODEL_TYPES).describe('What it makes.'),
    context_length: z.int().optional().describe('Of text models.'),
    model_spec: z
      .strictObject({
        name: z.string().describe('Name for people.'),
        description: z.string().describe('What it is good for; can be empty.'),
        privacy: z
          .enum(['private', 'anonymized'])
          .describe(
            "`private`: prompts stay on the operator's own machines; `anonymized`: others run it and do not learn who asks.",
          ),
        offline: z.boolean().describe('Whether no engine serves it now.'),
        offlineReason: z.string().optional().describe('Why, where that is known.'),
        beta: z.boolean().describe('Whether it is still tried out.'),
        betaModel: z.boolean().describe('The same, under its other name.'),
        uncensored: z.boolean().describe('Whether it answers without a content policy of its own.'),
        traits: z
          .array(z.string())
          .describe('Names that lead to it, such as `default` or `fastest`.'),
        modelSource: z.string().describe('Where the model comes from; can be empty.'),
        regionRestrictions: z.array(z.string()).describe('Countries where it is not offered.'),
        deprecation: Deprecation.optional().describe(
          'When it goes, and what to use instead; missing while it stays.',
        ),
        pricing: Pricing.optional().describe(
          'What it costs; missing for what is free or priced by a quote.',
        ),
        availableContextTokens: z
          .int()
          .optional()
          .describe('Most tokens of prompt and answer together.'),
        maxCompletionTokens: z.int().optional().describe('Most tokens of an answer.'),
        capabilities: Capabilities.optional().describe('Of text models.'),
        constraints: Constraints.optional().describe('Usual values and what requests can ask for.'),
        embeddingDimensions: z.int().optional().describe('Numbers in one of its vectors.'),
        maxInputTokens: z.int().optional().describe('Most tokens of one input of an embedding.'),
        supportsCustomDimensions: z
          .literal(true)
          .optional()
          .describe('Whether `dimensions` can ask for shorter vectors.'),
        voices: z.array(z.string()).optional().describe('Of speech models.'),
        default_voice: z.string().optional().describe('The voice of requests that name none.'),
        supported_formats: z.array(z.string()).optional().describe('What speech is written in.'),
        default_format: z.string().optional().describe('The format of requests that name none.'),
        min_speed: z.number().optional().describe('Slowest speech, 1 being usual.'),
        max_speed: z.number().optional().describe('Fastest speech, 1 being usual.'),
        promptCharacterLimit: z.int().optional().describe('Speech models: the longest text.'),
        maxDocuments: z.int().optional().describe('Rerank models: documents of one request.'),
      })
      .describe('What it is, what it can do and what it costs.'),
  })
  .meta({ id: 'Model' });
