/**
 * The messages of a chat request and the parts of their content, in the canonical shape. Unknown
 * members pass; every optional member also takes `null`, which means absent.
 */
import { z } from 'zod';

/** Caps per message: decisions, section 7. */
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
    type: z.string().describe('Kind of caching, `ephemeral` where an engine knows one.'),
    ttl: z.string().nullish().describe('Cache lifetime, such as `5m` or `1h`.'),
  })
  .nullish()
  .describe('Asks the engine to cache the prompt up to here; ignored where it caches by itself.');

export const TextPart = z.looseObject({
  type: z.literal('text').describe('Marks a part of text.'),
  text: z.string().min(1).describe('The text, not empty.'),
  cache_control: cacheControl,
});
export const ImagePart = z.looseObject({
  type: z.literal('image_url').describe('Marks an image, for models with vision.'),
  image_url: z
    .looseObject({
      url: mediaUrl.describe('An http(s) URL, or a data URL in base64.'),
      detail: z.string().nullish().describe('`low`, `high` or `auto`; passed on.'),
    })
    .describe('Where the image is.'),
  cache_control: cacheControl,
});
export const AudioPart = z.looseObject({
  type: z.literal('input_audio').describe('Marks a recording, for models with audio input.'),
  input_audio: z
    .looseObject({
      data: z.string().min(1).describe('The bytes in base64.'),
      format: z.enum(AUDIO_FORMATS).nullish().describe('Format of the bytes. Default `wav`.'),
    })
    .describe('The recording, in the request itself.'),
  cache_control: cacheControl,
});
export const VideoPart = z.looseObject({
  type: z.literal('video_url').describe('Marks a video, for models with video input.'),
  video_url: z
    .looseObject({
      url: mediaUrl.describe('An http(s) URL, or a data URL in base64.'),
    })
    .describe('Where the video is.'),
  cache_control: cacheControl,
});
export const FilePart = z.looseObject({
  type: z.literal('file').describe('Marks a document: PDF, DOCX, PPTX, XLSX or text.'),
  file: z
    .looseObject({
      file_data: mediaUrl.describe('A data URL in base64, or an http(s) URL.'),
      filename: z.string().nullish().describe('Name of the file; its ending names the format.'),
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
      message: `At most ${cap} parts of type ${type} are taken per message, got ${count}`,
    });
  }
}

const name = z.string().nullish().describe('Tells speakers of one role apart; passed on.');

export const UserMessage = z.looseObject({
  role: z.literal('user').describe('Marks a message of the person, or of the program that asks.'),
  content: z
    .union([z.string(), userContent], EXPECTED_CONTENT)
    .describe(
      'A text, or parts of text, images, audio, video and files: at most 10 images, 5 recordings, 3 videos and 5 files.',
    ),
  name,
});
export const SystemMessage = z.looseObject({
  role: z.enum(['system', 'developer']).describe('Marks instructions; both words mean the same.'),
  content: textContent.describe(
    "The instructions, a text or parts of text. The service's own prompt stands before them unless `include_venice_system_prompt` is false.",
  ),
  name,
});
export const ToolCall = z.looseObject({
  id: z.string().describe('Names the call; the message of role `tool` with its result repeats it.'),
  type: z.literal('function').nullish().describe('Only functions are called.'),
  function: z
    .looseObject({
      name: z.string().describe('Name of the function, one of `tools`.'),
      arguments: z.string().describe('Arguments as JSON text, as the model wrote them.'),
    })
    .describe('What the model called.'),
});
export const AssistantMessage = z.looseObject({
  role: z.literal('assistant').describe('Marks an answer of the model, sent back as history.'),
  content: textContent.nullish().describe('What the model said; optional with `tool_calls`.'),
  name,
  reasoning_content: z.string().nullish().describe('Reasoning of the model, sent back.'),
  reasoning_details: z
    .array(z.looseObject({ type: z.string().describe('Kind of the block, a word of the engine.') }))
    .nullish()
    .describe('The same in the blocks of the engine that wrote it, passed back as they came.'),
  thought_signature: z.string().nullish().describe('Signature of the reasoning, passed back.'),
  tool_calls: z.array(ToolCall).nullish().describe('Calls of the model; `tool` messages follow.'),
});
export const ToolMessage = z.looseObject({
  role: z.literal('tool').describe('Marks the result of a call.'),
  content: textContent.describe('The result, a text or parts of text.'),
  tool_call_id: z.string().describe('`id` of the call that it is the result of.'),
  name,
});

export const ChatMessage = z.discriminatedUnion('role', [
  UserMessage,
  AssistantMessage,
  ToolMessage,
  SystemMessage,
]);
export type ChatMessage = z.infer<typeof ChatMessage>;
