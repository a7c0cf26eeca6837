/**
 * What a prompt holds, counted in one walk: the text's size for the bound on its tokens, and the
 * media for the capability gates. Media bytes are not text: they are counted in parts.
 */
import { ChatBody, type ChatMessage, type ContentPart } from './chat-schema.ts';
import type { JsonObject } from '../../json/json-scan.ts';

export interface PromptFacts {
  readonly messageCount: number;
  /**
   * UTF-8 bytes of every text that can reach the tokenizer: contents, names, calls, tools, the
   * response schema, and members that we do not know (an engine may put them into its prompt).
   */
  readonly textBytes: number;
  readonly imageCount: number;
  /** Messages that hold at least one image. */
  readonly imageMessageCount: number;
  readonly audioCount: number;
  readonly videoCount: number;
  readonly fileCount: number;
}

type Tally = { -readonly [Key in keyof PromptFacts]: PromptFacts[Key] };

const BODY_MEMBERS = new Set(Object.keys(ChatBody.shape));
const PROMPT_MEMBERS = ['tools', 'response_format'] as const;

/** Counts a prompt: its messages, and what of the canonical body `fields` goes along. */
export function measurePrompt(messages: readonly ChatMessage[], fields: JsonObject): PromptFacts {
  const tally: Tally = {
    messageCount: messages.length,
    textBytes: 0,
    imageCount: 0,
    imageMessageCount: 0,
    audioCount: 0,
    videoCount: 0,
    fileCount: 0,
  };
  for (const key of PROMPT_MEMBERS) countJson(fields[key], tally);
  for (const key of Object.keys(fields)) {
    if (!BODY_MEMBERS.has(key)) countJson(fields[key], tally);
  }
  for (const message of messages) countMessage(message, tally);
  return tally;
}

/** Engines put values into the prompt in spellings of about their JSON's size. */
function countJson(value: unknown, tally: Tally): void {
  if (value !== undefined) tally.textBytes += Buffer.byteLength(JSON.stringify(value));
}

const MESSAGE_MEMBERS = new Set([
  'role',
  'content',
  'name',
  'tool_call_id',
  'tool_calls',
  'reasoning_content',
]);

function countMessage(message: ChatMessage, tally: Tally): void {
  countText(message.name, tally);
  for (const key of Object.keys(message)) {
    if (!MESSAGE_MEMBERS.has(key)) countJson(message[key], tally);
  }
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
