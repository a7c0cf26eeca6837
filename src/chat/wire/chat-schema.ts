/**
 * The schema of a chat request in its canonical form, the source of validation, types and the
 * OpenAPI document. Unknown members are accepted; `null` means absent.
 */
import * as z from 'zod';
import { REASONING_EFFORTS } from '../../core/reasoning-efforts.ts';
import { TagMetadata } from '../../http/tags.ts';
import {
  count,
  flag,
  frequencyPenalty,
  isStream,
  modelName,
  parallelToolCalls,
  presencePenalty,
  probability,
  promptCacheKey,
  stopTexts,
  temperature,
  topK,
  topP,
  verbosity as anyVerbosity,
} from './request-fields.ts';
import { SvcParametersInput } from './svc-parameters.ts';

export const MAX_PARTS_PER_MESSAGE = {
  image_url: 10,
  input_audio: 5,
  video_url: 3,
  file: 5,
} as const;

export const AUDIO_FORMATS = [
  'wav',
  'mp3',
  'aiff',
  'aac',
  'ogg',
  'flac',
  'm4a',
  'pcm16',
  'pcm24',
] as const;

const mediaUrl = z
  .string()
  .regex(/^(?:https?:\/\/|data:)/i, 'Expected an http(s) URL or a data URL');

const cacheControl = z
  .looseObject({
    type: z.string().describe('Kind of caching, such as `ephemeral`.'),
    ttl: z.string().nullish().describe('Cache lifetime, such as `5m` or `1h`.'),
  })
  .nullish()
  .describe("Marks the prompt up to here for the engine's cache.");

export const TextPart = z.looseObject({
  type: z.literal('text').describe('A text part.'),
  text: z.string().min(1).describe('The text; not empty.'),
  cache_control: cacheControl,
});
export const ImagePart = z.looseObject({
  type: z.literal('image_url').describe('An image part, for models with vision.'),
  image_url: z
    .looseObject({
      url: mediaUrl.describe('HTTP(S) URL, or base64 data URL.'),
      detail: z.string().nullish().describe('`low`, `high` or `auto`, for the engine.'),
    })
    .describe('The image.'),
  cache_control: cacheControl,
});
export const AudioPart = z.looseObject({
  type: z.literal('input_audio').describe('An audio part, for models with audio input.'),
  input_audio: z
    .looseObject({
      data: z.string().min(1).describe('Base64 data.'),
      format: z.enum(AUDIO_FORMATS).nullish().describe('Audio format. Default `wav`.'),
    })
    .describe('The audio.'),
  cache_control: cacheControl,
});
export const VideoPart = z.looseObject({
  type: z.literal('video_url').describe('A video part, for models with video input.'),
  video_url: z
    .looseObject({
      url: mediaUrl.describe('HTTP(S) URL, or base64 data URL.'),
    })
    .describe('The video.'),
  cache_control: cacheControl,
});
export const FilePart = z.looseObject({
  type: z.literal('file').describe('A document part: PDF, DOCX, PPTX, XLSX or text.'),
  file: z
    .looseObject({
      file_data: mediaUrl.describe('Base64, bare or as a data URL; or an HTTP(S) URL.'),
      filename: z.string().nullish().describe('File name; its extension determines the format.'),
    })
    .describe('The document.'),
  cache_control: cacheControl,
});

export const ContentPart = z.discriminatedUnion('type', [
  TextPart,
  ImagePart,
  AudioPart,
  VideoPart,
  FilePart,
]);
export type ContentPart = z.infer<typeof ContentPart>;

const EXPECTED_CONTENT = 'Expected a string or a list of content parts';

const textContent = z.union([z.string(), z.array(TextPart).min(1)], EXPECTED_CONTENT);

const userContent = z.array(ContentPart).min(1).check(partCaps);

function partCaps(context: z.core.ParsePayload<ContentPart[]>): void {
  for (const [type, cap] of Object.entries(MAX_PARTS_PER_MESSAGE)) {
    const count = context.value.filter((part) => part.type === type).length;
    if (count <= cap) continue;
    context.issues.push({
      code: 'custom',
      input: undefined,
      path: [],
      message: `At most ${cap} parts of type ${type} are allowed per message, got ${count}`,
    });
  }
}

const name = z.string().nullish().describe('Name of the author, for the engine.');

const UserMessage = z.looseObject({
  role: z.literal('user').describe('A user message.'),
  content: z
    .union([z.string(), userContent], EXPECTED_CONTENT)
    .describe('Text, or up to 10 images, 5 audio parts, 3 videos and 5 files.'),
  name,
});
export const SystemMessage = z.looseObject({
  role: z.enum(['system', 'developer']).describe('A system message; both values mean the same.'),
  content: textContent.describe(
    'System prompt; the prompt of the service precedes it unless `include_venice_system_prompt` is false.',
  ),
  name,
});
export const ToolCall = z.looseObject({
  id: z.string().describe('Id of the call; its `tool` message repeats it.'),
  type: z.literal('function').nullish().describe('Always `function`.'),
  function: z
    .looseObject({
      name: z.string().describe('Name of the function, one of `tools`.'),
      arguments: z.string().describe('JSON text of the arguments.'),
    })
    .describe('The function and its arguments.'),
});
export const AssistantMessage = z.looseObject({
  role: z.literal('assistant').describe('An earlier completion.'),
  content: textContent.nullish().describe('Text; optional with `tool_calls`.'),
  name,
  reasoning_content: z.string().nullish().describe('Reasoning text of the completion.'),
  reasoning_details: z
    .array(
      z.looseObject({ type: z.string().describe('Kind of the block, as the engine named it.') }),
    )
    .nullish()
    .describe('Reasoning blocks of the engine, sent back unchanged.'),
  thought_signature: z
    .string()
    .nullish()
    .describe('Signature of the reasoning, sent back unchanged.'),
  tool_calls: z.array(ToolCall).nullish().describe('Tool calls; their `tool` messages follow.'),
});
export const ToolMessage = z.looseObject({
  role: z.literal('tool').describe('The result of a tool call.'),
  content: textContent.describe('The result, as text or text parts.'),
  tool_call_id: z.string().describe('Id of the call.'),
  name,
});

export const ChatMessage = z.discriminatedUnion('role', [
  UserMessage,
  AssistantMessage,
  ToolMessage,
  SystemMessage,
]);
export type ChatMessage = z.infer<typeof ChatMessage>;

/** Multiplies the hold; clients use far fewer. */
export const MAX_CHOICES = 128;
const MAX_FALLBACKS = 10;
export const MAX_MESSAGES = 16_384;
/** Eight times the limit of hosted engines. */
export const MAX_TOOLS = 1_024;

export type ReasoningEffort = (typeof REASONING_EFFORTS)[number];

export const ChatTool = z.looseObject({
  type: z.literal('function').describe('Always `function`.'),
  function: z
    .looseObject({
      name: z.string().min(1).describe('Name of the tool.'),
      description: z.string().nullish().describe('Purpose of the function, for the model.'),
      parameters: z
        .record(z.string(), z.unknown())
        .nullish()
        .describe('JSON Schema of the arguments. Default: no arguments.'),
      strict: flag.describe('Whether arguments must match exactly. Default false.'),
    })
    .describe('The function.'),
  id: z.string().nullish().describe('Id of the tool, for the engine.'),
});
export type ChatTool = z.infer<typeof ChatTool>;

export const ToolChoice = z.union([
  z.enum(['auto', 'none', 'required']),
  z.looseObject({
    type: z.literal('function').describe('Always `function`.'),
    function: z
      .looseObject({ name: z.string().min(1).describe('Name of the function, one of `tools`.') })
      .describe('The required function.'),
  }),
]);

export const ResponseFormat = z.discriminatedUnion('type', [
  z.looseObject({ type: z.literal('text').describe('Free text, the default.') }),
  z.looseObject({ type: z.literal('json_object').describe('Any JSON object.') }),
  z.looseObject({
    type: z.literal('json_schema').describe('JSON that matches a schema.'),
    json_schema: z
      .looseObject({
        name: z.string().describe('Name of the schema, for the model.'),
        description: z.string().nullish().describe('Purpose of the output, for the model.'),
        strict: flag.describe('Whether to match the schema exactly.'),
        schema: z.record(z.string(), z.unknown()).describe('JSON Schema of the output.'),
      })
      .describe('The schema and its name.'),
  }),
]);
export type ResponseFormat = z.infer<typeof ResponseFormat>;

const verbosity = anyVerbosity.describe('Length of the output, if supported.');
const effort = z.enum(REASONING_EFFORTS).nullish().describe('Reasoning effort.');

export const ChatBody = z.looseObject({
  model: modelName,
  messages: z.array(ChatMessage).min(1).describe('1 to 16,384 messages, oldest first.'),
  frequency_penalty: frequencyPenalty,
  presence_penalty: presencePenalty,
  repetition_penalty: z
    .number()
    .min(0)
    .nullish()
    .describe('Above 1: makes repetition less likely.'),
  logprobs: flag.describe('Whether to return log probabilities of the tokens. Default false.'),
  top_logprobs: count.describe('Likely tokens per token, with `logprobs`.'),
  max_completion_tokens: z.int().nullish().describe('Limit on output tokens, reasoning included.'),
  max_tokens: z.int().nullish().describe('Older name of `max_completion_tokens`, which wins.'),
  temperature,
  min_temp: temperature.describe('0 to 2: lower bound of a dynamic temperature.'),
  max_temp: temperature.describe('0 to 2: upper bound of a dynamic temperature.'),
  top_p: topP,
  top_k: topK,
  min_p: probability.describe('0 to 1: minimum probability relative to the likeliest token.'),
  n: z
    .int()
    .min(1)
    .max(MAX_CHOICES)
    .nullish()
    .describe('Choices, 1 to 128, all billed. Default 1.'),
  seed: z.int().min(1).nullish().describe('Seed for reproducible output, if supported.'),
  stop: stopTexts.describe('Texts that end the output and are not part of it, up to 4.'),
  stop_token_ids: z.array(z.int().min(0)).nullish().describe('Ids of tokens that end the output.'),
  stream: isStream,
  stream_options: z
    .looseObject({
      include_usage: flag.describe('No effect: a stream always contains its usage.'),
    })
    .nullish()
    .describe('Options of the stream.'),
  prompt_cache_key: promptCacheKey,
  prompt_cache_retention: z
    .enum(['default', 'in_memory', 'in-memory', 'extended', '24h'])
    .nullish()
    .describe(
      'Cache lifetime of the prompt: `extended` and `24h` are one day, the others the default.',
    ),
  reasoning: z
    .looseObject({
      effort,
      summary: z
        .enum(['auto', 'concise', 'detailed'])
        .nullish()
        .describe('Requests a reasoning summary.'),
      enabled: flag.describe('`false` turns reasoning off, if supported.'),
    })
    .nullish()
    .describe('Reasoning settings.'),
  reasoning_effort: effort.describe('Reasoning effort; wins over `reasoning.effort`.'),
  verbosity,
  text: z.looseObject({ verbosity }).nullish().describe('Options of the text.'),
  include: z.array(z.string()).nullish().describe('Further members of the output, for the engine.'),
  metadata: TagMetadata.nullish().describe('Up to 16 tags, for receipts and `GET /usage/tags`.'),
  user: z.string().nullish().describe('Discarded.'),
  store: flag.describe('No effect: chats are not stored.'),
  fallbacks: z
    .array(z.looseObject({ model: z.string().describe('Model name of the engine.') }))
    .max(MAX_FALLBACKS)
    .nullish()
    .describe(
      'Up to 10 alternative models. Ignored, unless the operator has allowed them for the engine.',
    ),
  parallel_tool_calls: parallelToolCalls,
  response_format: ResponseFormat.nullish().describe('Format of the output.'),
  tool_choice: ToolChoice.nullish().describe(
    '`auto`: the model decides; `none`: no call; `required`: any call; an object names the function, or with `allowed_tools` several. Default `auto`.',
  ),
  tools: z.array(ChatTool).nullish().describe('Up to 1,024 functions for the model.'),
  svc_parameters: SvcParametersInput.nullish().describe('Service parameters, such as search.'),
});
export type ChatBody = z.infer<typeof ChatBody>;
