/**
 * What a prompt holds, counted in one walk: the text's size for the bound on its tokens, and the
 * media for the capability gates. Media bytes are not text: they are counted in parts.
 */
import type { ChatMessage, ChatTool, ContentPart, ResponseFormat } from './chat-schema.ts';

export interface PromptFacts {
  readonly messageCount: number;
  /** UTF-8 bytes of every text that reaches the tokenizer: contents, names, calls, tools. */
  readonly textBytes: number;
  readonly imageCount: number;
  /** Messages that hold at least one image. */
  readonly imageMessageCount: number;
  readonly audioCount: number;
  readonly videoCount: number;
  readonly fileCount: number;
}

type Tally = { -readonly [Key in keyof PromptFacts]: PromptFacts[Key] };

/** Counts a prompt. */
export function measurePrompt(
  messages: readonly ChatMessage[],
  tools: readonly ChatTool[],
  responseFormat?: ResponseFormat,
): PromptFacts {
  const tally: Tally = {
    messageCount: messages.length,
    textBytes: (tools.length === 0 ? 0 : jsonBytes(tools)) + jsonBytes(responseFormat),
    imageCount: 0,
    imageMessageCount: 0,
    audioCount: 0,
    videoCount: 0,
    fileCount: 0,
  };
  for (const message of messages) countMessage(message, tally);
  return tally;
}

/** Engines put tools and schemas into the prompt, in spellings of about the JSON's size. */
function jsonBytes(value: unknown): number {
  return value === undefined ? 0 : Buffer.byteLength(JSON.stringify(value));
}

function countMessage(message: ChatMessage, tally: Tally): void {
  countText(message.name, tally);
  const imagesBefore = tally.imageCount;
  if (typeof message.content === 'string') countText(message.content, tally);
  else for (const part of message.content ?? []) countPart(part, tally);
  if (tally.imageCount > imagesBefore) tally.imageMessageCount += 1;
  if (message.role !== 'assistant') return;
  countText(message.reasoning_content, tally);
  for (const call of message.tool_calls ?? []) {
    countText(call.function.name, tally);
    countText(call.function.arguments, tally);
  }
}

function countPart(part: ContentPart, tally: Tally): void {
  switch (part.type) {
    case 'text':
      countText(part.text, tally);
      break;
    case 'image_url':
      tally.imageCount += 1;
      break;
    case 'input_audio':
      tally.audioCount += 1;
      break;
    case 'video_url':
      tally.videoCount += 1;
      break;
    case 'file':
      tally.fileCount += 1;
      break;
  }
}

function countText(text: string | null | undefined, tally: Tally): void {
  if (typeof text === 'string') tally.textBytes += Buffer.byteLength(text);
}
