/**
 * The chat request as one zod schema: the source of validation, of the types, and of the OpenAPI
 * page (`z.toJSONSchema` works on everything exported here: no transform, no preprocess).
 *
 * It describes the canonical shape; foreign spellings are rewritten before (`foreign-*.ts`).
 * Unknown members pass; every optional member also takes `null`, which means absent.
 */
import { z } from 'zod';
import { REASONING_EFFORTS } from '../../core/reasoning-efforts.ts';
import { SvcParametersInput } from './svc-parameters.ts';

/** Caps per message: decisions, section 7. */
export const MAX_PARTS_PER_MESSAGE = {
  image_url: 10,
  input_audio: 5,
  video_url: 3,
  file: 5,
} as const;

/** Of the name of a model with its suffixes. */
export const MAX_MODEL_CHARACTERS = 2_048;
/** No client comes near; `n` multiplies the hold. */
export const MAX_CHOICES = 128;
export const MAX_STOPS = 4;
export const MAX_FALLBACKS = 10;
/** Longer histories than any context could hold. */
export const MAX_MESSAGES = 16_384;
/** Eight times what hosted engines take. */
export const MAX_TOOLS = 1_024;

export type ReasoningEffort = (typeof REASONING_EFFORTS)[number];

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
  .looseObject({ type: z.string(), ttl: z.string().nullish() })
  .nullish()
  .describe('Marks the content for caching');

export const TextPart = z.looseObject({
  type: z.literal('text'),
  text: z.string().min(1),
  cache_control: cacheControl,
});
export const ImagePart = z.looseObject({
  type: z.literal('image_url'),
  image_url: z.looseObject({ url: mediaUrl, detail: z.string().nullish() }),
  cache_control: cacheControl,
});
export const AudioPart = z.looseObject({
  type: z.literal('input_audio'),
  input_audio: z.looseObject({
    data: z.string().min(1).describe('base64'),
    format: z.enum(AUDIO_FORMATS).nullish().describe('Default wav'),
  }),
  cache_control: cacheControl,
});
export const VideoPart = z.looseObject({
  type: z.literal('video_url'),
  video_url: z.looseObject({ url: mediaUrl }),
  cache_control: cacheControl,
});
export const FilePart = z.looseObject({
  type: z.literal('file'),
  file: z.looseObject({ file_data: mediaUrl, filename: z.string().nullish() }),
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
      message: `At most ${cap} parts of type ${type} are taken per message, got ${count}`,
    });
  }
}

const name = z.string().nullish();

export const UserMessage = z.looseObject({
  role: z.literal('user'),
  content: z.union([z.string(), userContent], EXPECTED_CONTENT),
  name,
});
export const SystemMessage = z.looseObject({
  role: z.enum(['system', 'developer']),
  content: textContent,
  name,
});
export const ToolCall = z.looseObject({
  id: z.string(),
  type: z.literal('function').nullish(),
  function: z.looseObject({ name: z.string(), arguments: z.string() }),
});
export const AssistantMessage = z.looseObject({
  role: z.literal('assistant'),
  content: textContent.nullish(),
  name,
  reasoning_content: z.string().nullish(),
  reasoning_details: z.array(z.looseObject({ type: z.string() })).nullish(),
  thought_signature: z.string().nullish(),
  tool_calls: z.array(ToolCall).nullish(),
});
export const ToolMessage = z.looseObject({
  role: z.literal('tool'),
  content: textContent,
  tool_call_id: z.string(),
  name,
});

export const ChatMessage = z.discriminatedUnion('role', [
  UserMessage,
  AssistantMessage,
  ToolMessage,
  SystemMessage,
]);
export type ChatMessage = z.infer<typeof ChatMessage>;

export const ChatTool = z.looseObject({
  type: z.literal('function'),
  function: z.looseObject({
    name: z.string().min(1),
    description: z.string().nullish(),
    parameters: z.record(z.string(), z.unknown()).nullish().describe('JSON schema'),
    strict: z.boolean().nullish(),
  }),
  id: z.string().nullish(),
});
export type ChatTool = z.infer<typeof ChatTool>;

export const ToolChoice = z.union([
  z.enum(['auto', 'none', 'required']),
  z.looseObject({
    type: z.literal('function'),
    function: z.looseObject({ name: z.string().min(1) }),
  }),
]);

export const ResponseFormat = z.discriminatedUnion('type', [
  z.looseObject({ type: z.literal('text') }),
  z.looseObject({ type: z.literal('json_object') }),
  z.looseObject({
    type: z.literal('json_schema'),
    json_schema: z.looseObject({
      name: z.string(),
      description: z.string().nullish(),
      strict: z.boolean().nullish(),
      schema: z.record(z.string(), z.unknown()),
    }),
  }),
]);
export type ResponseFormat = z.infer<typeof ResponseFormat>;

const penalty = z.number().min(-2).max(2).nullish();
const temperature = z.number().min(0).max(2).nullish();
const probability = z.number().min(0).max(1).nullish();
const count = z.int().min(0).nullish();
const verbosity = z.enum(['low', 'medium', 'high', 'auto']).nullish();
const effort = z.enum(REASONING_EFFORTS).nullish();
const flag = z.boolean().nullish();

/** Tags of a request; the bounds are those of OpenAI. */
const MAX_TAGS = 16;
const MAX_TAG_NAME_BYTES = 64;
const MAX_TAG_VALUE_BYTES = 512;

export const TagMetadata = z.record(z.string(), z.unknown()).check((context) => {
  const tags = Object.entries(context.value);
  const refuse = (path: string[], message: string): void => {
    context.issues.push({ code: 'custom', input: undefined, path, message });
  };
  if (tags.length > MAX_TAGS) {
    return refuse([], `At most ${MAX_TAGS} members are taken, got ${tags.length}`);
  }
  for (const [name, value] of tags) {
    if (!isTagText(name, MAX_TAG_NAME_BYTES) || name === '') {
      refuse([name], `Expected a name of 1 to ${MAX_TAG_NAME_BYTES} bytes of well-formed text`);
    } else if (!isTagValue(tagValue(value))) {
      refuse([name], `Expected at most ${MAX_TAG_VALUE_BYTES} bytes of well-formed text`);
    }
  }
});

/** Databases store no NUL and no half of a surrogate pair. */
function isTagText(text: string, maxBytes: number): boolean {
  return !text.includes('\0') && text.isWellFormed() && Buffer.byteLength(text) <= maxBytes;
}

function tagValue(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value);
}

/** The tags of validated metadata, values that are no text as JSON; `undefined` for none. */
export function tagsOf(
  metadata: Readonly<Record<string, unknown>> | null | undefined,
): Readonly<Record<string, string>> | undefined {
  const given = Object.entries(metadata ?? {}).filter(([, value]) => value !== null);
  if (given.length === 0) return undefined;
  return Object.fromEntries(given.map(([name, value]) => [name, tagValue(value)]));
}

/** Those of a caller's members that can be tags, for protocols whose clients no 400 would help. */
export function fittingTags(members: Readonly<Record<string, unknown>>): Record<string, string> {
  const fitting = Object.entries(tagsOf(members) ?? {}).filter(
    ([name, value]) => name !== '' && isTagText(name, MAX_TAG_NAME_BYTES) && isTagValue(value),
  );
  return Object.fromEntries(fitting.slice(0, MAX_TAGS));
}

/** Whether a text can be the value of a tag. */
export function isTagValue(text: string): boolean {
  return isTagText(text, MAX_TAG_VALUE_BYTES);
}

export const ChatBody = z.looseObject({
  model: z
    .string()
    .min(1)
    .max(MAX_MODEL_CHARACTERS)
    .describe('Model id, trait or compatibility name'),
  messages: z.array(ChatMessage).min(1),
  frequency_penalty: penalty,
  presence_penalty: penalty,
  repetition_penalty: z.number().min(0).nullish(),
  logprobs: flag,
  top_logprobs: count,
  max_completion_tokens: z.int().nullish().describe('Visible plus reasoning tokens'),
  max_tokens: z.int().nullish().describe('Deprecated; values <= 0 are ignored'),
  temperature,
  min_temp: temperature,
  max_temp: temperature,
  top_p: probability,
  top_k: count,
  min_p: probability,
  n: z.int().min(1).max(MAX_CHOICES).nullish(),
  seed: z.int().min(1).nullish(),
  stop: z
    .union(
      [z.string(), z.array(z.string()).max(MAX_STOPS)],
      'Expected a string or a list of strings',
    )
    .nullish(),
  stop_token_ids: z.array(z.int().min(0)).nullish(),
  stream: flag,
  stream_options: z.looseObject({ include_usage: flag }).nullish(),
  prompt_cache_key: z.string().nullish(),
  prompt_cache_retention: z.enum(['default', 'extended', '24h']).nullish(),
  reasoning: z
    .looseObject({
      effort,
      summary: z.enum(['auto', 'concise', 'detailed']).nullish(),
      enabled: flag,
    })
    .nullish(),
  reasoning_effort: effort,
  verbosity,
  text: z.looseObject({ verbosity }).nullish(),
  include: z.array(z.string()).nullish(),
  metadata: TagMetadata.nullish().describe(
    'Up to 16 tags of the request, such as a user or a project: on its receipt, and summed up by `GET /usage/tags`',
  ),
  user: z.string().nullish().describe('Discarded'),
  store: flag.describe('Unused'),
  fallbacks: z
    .array(z.looseObject({ model: z.string() }))
    .max(MAX_FALLBACKS)
    .nullish(),
  parallel_tool_calls: flag,
  response_format: ResponseFormat.nullish(),
  tool_choice: ToolChoice.nullish(),
  tools: z.array(ChatTool).nullish(),
  svc_parameters: SvcParametersInput.nullish(),
});
export type ChatBody = z.infer<typeof ChatBody>;
