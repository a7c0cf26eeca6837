/**
 * Measures a prompt in one pass: the size of its text, which bounds its tokens, and the number of
 * its media.
 */
import { mediaTokensAbout, tokensAbout } from '../../core/token-count.ts';
import { ChatBody, type ChatMessage } from './chat-schema.ts';
import type { JsonObject } from '../../json/json-scan.ts';

export interface PromptFacts {
  readonly messageCount: number;
  /** UTF-8 bytes of contents, names, tool calls, tools and the response schema. */
  readonly textBytes: number;
  /** Bytes of unknown members, which an engine may add to its prompt. */
  readonly unknownBytes: number;
  readonly imageCount: number;
  readonly imageMessageCount: number;
  readonly audioCount: number;
  readonly videoCount: number;
  readonly fileCount: number;
}

export const NO_FACTS: PromptFacts = {
  messageCount: 0,
  textBytes: 0,
  unknownBytes: 0,
  imageCount: 0,
  imageMessageCount: 0,
  audioCount: 0,
  videoCount: 0,
  fileCount: 0,
};

type Counts = { -readonly [Key in keyof PromptFacts]: PromptFacts[Key] };

const BODY_MEMBERS = new Set(Object.keys(ChatBody.shape));
const COUNTED = {
  image_url: 'imageCount',
  input_audio: 'audioCount',
  video_url: 'videoCount',
  file: 'fileCount',
} as const;

export function measurePrompt(messages: readonly ChatMessage[], fields: JsonObject): PromptFacts {
  const counts: Counts = { ...NO_FACTS, messageCount: messages.length };
  for (const key of Object.keys(fields)) {
    if (key === 'tools' || key === 'response_format') counts.textBytes += jsonBytes(fields[key]);
    else if (!BODY_MEMBERS.has(key)) counts.unknownBytes += jsonBytes(fields[key]);
  }
  for (const message of messages) countMessage(message, counts);
  return counts;
}

/** An engine's own format of such a value has about the size of its JSON. */
function jsonBytes(value: unknown): number {
  return value === undefined ? 0 : Buffer.byteLength(JSON.stringify(value));
}

function textBytes(text: string | null | undefined): number {
  return text ? Buffer.byteLength(text) : 0;
}

const MESSAGE_MEMBERS = new Set([
  'role',
  'content',
  'name',
  'tool_call_id',
  'tool_calls',
  'reasoning_content',
]);

const PROMPT_MEMBERS = new Set(['reasoning_details', 'thought_signature']);

function countMessage(message: ChatMessage, counts: Counts): void {
  counts.textBytes += textBytes(message.name);
  for (const key of Object.keys(message)) {
    if (PROMPT_MEMBERS.has(key)) counts.textBytes += jsonBytes(message[key]);
    else if (!MESSAGE_MEMBERS.has(key)) counts.unknownBytes += jsonBytes(message[key]);
  }
  const imagesBefore = counts.imageCount;
  if (typeof message.content === 'string') counts.textBytes += textBytes(message.content);
  else {
    for (const part of message.content ?? []) {
      if (part.type === 'text') counts.textBytes += textBytes(part.text);
      else counts[COUNTED[part.type]] += 1;
    }
  }
  if (counts.imageCount > imagesBefore) counts.imageMessageCount += 1;
  if (message.role !== 'assistant') return;
  counts.textBytes += textBytes(message.reasoning_content);
  for (const { function: made, extra_content: extra } of message.tool_calls ?? []) {
    counts.textBytes += textBytes(made.name) + textBytes(made.arguments) + jsonBytes(extra);
  }
}

const TOKENS_PER_MESSAGE = 4;

/** An estimate of the tokens of a prompt, for responses that report a count without an engine. */
export function promptTokensAbout({ facts }: { readonly facts: PromptFacts }): number {
  const text = tokensAbout(facts.textBytes) + TOKENS_PER_MESSAGE * facts.messageCount;
  return text + mediaTokensAbout(facts);
}
