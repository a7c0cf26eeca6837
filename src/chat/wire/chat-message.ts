/**
 * Schemas of chat messages and content parts in their canonical form. Unknown members are accepted;
 * `null` means absent.
 */
import { z } from 'zod';

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
      file_data: mediaUrl.describe('Base64 data URL, or HTTP(S) URL.'),
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

export const UserMessage = z.looseObject({
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
