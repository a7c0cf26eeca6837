/**
 * Writes the result of a language model as a chat completion or as its chunks. Reasoning with its
 * signatures is in `reasoning_details`, signatures of Gemini in `extra_content`, and metadata of the
 * provider in `provider_metadata`.
 */
import type {
  LanguageModelV4Content,
  LanguageModelV4FinishReason,
  LanguageModelV4GenerateResult,
  LanguageModelV4StreamPart,
  LanguageModelV4Usage,
} from '@ai-sdk/provider';
import { type JsonObject, isJsonObject } from '../../src/json/json-scan.ts';
import { failureOf, ProviderFailure } from './failure.ts';
import { metadataOf } from './provider.ts';

const FINISH_REASONS: Readonly<Record<LanguageModelV4FinishReason['unified'], string>> = {
  stop: 'stop',
  length: 'length',
  'content-filter': 'content_filter',
  'tool-calls': 'tool_calls',
  error: 'error',
  interrupted: 'error',
  other: 'stop',
};

export interface Frame {
  readonly id: string;
  readonly model: string;
  readonly createdS: number;
}

export function completionOf(
  { content, finishReason, usage, providerMetadata, warnings }: LanguageModelV4GenerateResult,
  frame: Frame,
): JsonObject {
  const message = messageOf(content);
  const finish_reason = FINISH_REASONS[finishReason.unified];
  return {
    id: frame.id,
    object: 'chat.completion',
    created: frame.createdS,
    model: frame.model,
    choices: [{ index: 0, message, finish_reason }],
    ...endMembers(usage, providerMetadata, warnings),
  };
}

function endMembers(
  usage: LanguageModelV4Usage,
  metadata: object | undefined,
  warnings: readonly unknown[],
): JsonObject {
  return {
    ...(hasCounts(usage) && { usage: usageOf(usage) }),
    ...(metadata !== undefined && { provider_metadata: metadata }),
    ...(warnings.length > 0 && { provider_warnings: warnings }),
  };
}

function hasCounts({ inputTokens, outputTokens }: LanguageModelV4Usage): boolean {
  return inputTokens.total !== undefined && outputTokens.total !== undefined;
}

function usageOf({ inputTokens, outputTokens, raw }: LanguageModelV4Usage): JsonObject {
  const prompt = inputTokens.total ?? 0;
  const completion = outputTokens.total ?? 0;
  const written = raw?.['cache_creation'] ?? writesOf(raw?.['cacheDetails']);
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
    prompt_tokens_details: {
      cached_tokens: inputTokens.cacheRead ?? 0,
      cache_creation_input_tokens: inputTokens.cacheWrite ?? 0,
    },
    completion_tokens_details: { reasoning_tokens: outputTokens.reasoning ?? 0 },
    // Tokens written to the cache by lifetime, as Anthropic reports them.
    ...(isJsonObject(written) && { cache_creation: written }),
  };
}

/** The same, from the list of Bedrock. */
function writesOf(details: unknown): JsonObject | undefined {
  if (!Array.isArray(details)) return undefined;
  const writes: Record<string, number> = {};
  for (const { ttl, inputTokens } of details.filter(isJsonObject)) {
    const name = `ephemeral_${String(ttl)}_input_tokens`;
    if (typeof inputTokens === 'number') writes[name] = (writes[name] ?? 0) + inputTokens;
  }
  return writes;
}

function messageOf(content: readonly LanguageModelV4Content[]): JsonObject {
  let text = '';
  let reasoning = '';
  let signature: JsonObject = {};
  const details: JsonObject[] = [];
  const calls: JsonObject[] = [];
  const more: Record<'images' | 'annotations', JsonObject[]> = { images: [], annotations: [] };
  let reasonings = 0;
  for (const part of content) {
    switch (part.type) {
      case 'text':
        text += part.text;
        signature = { ...signature, ...signed(part.providerMetadata) };
        break;
      case 'reasoning':
        reasoning += part.text;
        details.push(...detailsOf(part.text, part.providerMetadata, reasonings));
        reasonings += 1;
        break;
      case 'tool-call':
        if (part.providerExecuted !== true) calls.push(callOf(part));
        break;
      default:
        addMore(part, more);
    }
  }
  return {
    role: 'assistant',
    content: text === '' && calls.length > 0 ? null : text,
    ...(reasoning !== '' && { reasoning_content: reasoning }),
    ...(details.length > 0 && { reasoning_details: details }),
    ...(calls.length > 0 && { tool_calls: calls }),
    ...Object.fromEntries(Object.entries(more).filter(([, list]) => list.length > 0)),
    ...signature,
  };
}

function callOf(part: Extract<LanguageModelV4Content, { type: 'tool-call' }>): JsonObject {
  const { toolCallId: id, toolName: name, input } = part;
  const made = { name, arguments: input === '' ? '{}' : input };
  return { id, type: 'function', function: made, ...signed(part.providerMetadata) };
}

/** The signature of Gemini, as its own compatible API carries it. */
function signed(metadata: object | undefined): JsonObject {
  const { thoughtSignature: signature } = metadataOf(metadata);
  return typeof signature === 'string'
    ? { extra_content: { google: { thought_signature: signature } } }
    : {};
}

/** The blocks of one part of reasoning; a later request repeats them with the same index. */
function detailsOf(text: string, metadata: object | undefined, index: number): JsonObject[] {
  const facts = metadataOf(metadata);
  const signature = facts['signature'] ?? facts['thoughtSignature'] ?? undefined;
  const data =
    facts['redactedContent'] ??
    facts['redactedData'] ??
    facts['reasoningEncryptedContent'] ??
    undefined;
  const id = facts['itemId'] ?? undefined;
  const named = { ...(id !== undefined && { id }), index };
  const details: JsonObject[] = [];
  if (text !== '' || signature !== undefined) {
    const isSigned = signature !== undefined;
    details.push({ type: 'reasoning.text', text, ...(isSigned && { signature }), ...named });
  }
  if (data !== undefined) details.push({ type: 'reasoning.encrypted', data, ...named });
  return details;
}

/** Generated images, and the sources of a search. */
function addMore(
  part: LanguageModelV4Content | LanguageModelV4StreamPart,
  { images, annotations }: Record<'images' | 'annotations', JsonObject[]>,
): void {
  if (part.type === 'file' && part.data.type === 'data') {
    const { data } = part.data;
    const base64 = typeof data === 'string' ? data : Buffer.from(data).toString('base64');
    const url = `data:${part.mediaType};base64,${base64}`;
    images.push({ type: 'image_url', image_url: { url } });
  }
  if (part.type === 'source' && part.sourceType === 'url') {
    const { url, title = '' } = part;
    annotations.push({ type: 'url_citation', url_citation: { url, title } });
  }
}

interface OpenCall {
  readonly index: number;
  hasArguments: boolean;
}

/** Converts the parts of a stream into chunks. */
export class ChunkWriter {
  readonly #frame: Frame;
  readonly #calls = new Map<string, OpenCall>();
  readonly #reasonings = new Map<string, number>();
  #warnings: readonly unknown[] = [];
  #hasRole = false;

  constructor(frame: Frame) {
    this.#frame = frame;
  }

  /** The chunks of one part. Throws a `ProviderFailure` for an error of the provider. */
  chunks(part: LanguageModelV4StreamPart): JsonObject[] {
    switch (part.type) {
      case 'stream-start':
        this.#warnings = part.warnings;
        return [];
      case 'text-delta':
        return this.#delta({
          ...(part.delta !== '' && { content: part.delta }),
          ...signed(part.providerMetadata),
        });
      case 'text-end':
        return this.#delta(signed(part.providerMetadata));
      case 'reasoning-start':
      case 'reasoning-delta':
      case 'reasoning-end':
        return this.#reasoning(part);
      case 'tool-input-start':
        return part.providerExecuted === true ? [] : [this.#callStart(part.id, part.toolName)];
      case 'tool-input-delta':
        return this.#callDelta(part.id, part.delta);
      case 'tool-call':
        return part.providerExecuted === true ? [] : this.#call(part);
      case 'error':
        throw failureOf(part.error);
      case 'finish': {
        const { finishReason, usage, providerMetadata } = part;
        const reason = FINISH_REASONS[finishReason.unified];
        if (reason === 'error' && !this.#hasRole) {
          throw new ProviderFailure(502, `The provider ended with ${finishReason.raw ?? reason}`);
        }
        const end = endMembers(usage, providerMetadata, this.#warnings);
        return [
          this.#chunk([{ index: 0, delta: {}, finish_reason: reason }]),
          this.#chunk([], end),
        ];
      }
      default: {
        const more = { images: [], annotations: [] };
        addMore(part, more);
        return this.#delta(
          Object.fromEntries(Object.entries(more).filter(([, list]) => list.length > 0)),
        );
      }
    }
  }

  #reasoning(
    part: Extract<LanguageModelV4StreamPart, { type: `reasoning-${'start' | 'delta' | 'end'}` }>,
  ): JsonObject[] {
    const index = this.#reasonings.get(part.id) ?? this.#reasonings.size;
    this.#reasonings.set(part.id, index);
    const text = part.type === 'reasoning-delta' ? part.delta : '';
    const details = detailsOf(text, part.providerMetadata, index);
    return this.#delta({
      ...(text !== '' && { reasoning_content: text }),
      ...(details.length > 0 && { reasoning_details: details }),
    });
  }

  #callStart(id: string, name: string): JsonObject {
    const index = this.#calls.size;
    this.#calls.set(id, { index, hasArguments: false });
    const call = { index, id, type: 'function', function: { name, arguments: '' } };
    return this.#deltaChunk({ tool_calls: [call] });
  }

  #callDelta(id: string, delta: string): JsonObject[] {
    const call = this.#calls.get(id);
    if (call === undefined || delta === '') return [];
    call.hasArguments = true;
    const piece = { index: call.index, function: { arguments: delta } };
    return [this.#deltaChunk({ tool_calls: [piece] })];
  }

  /** The complete call, which some packages send without pieces. */
  #call(part: Extract<LanguageModelV4StreamPart, { type: 'tool-call' }>): JsonObject[] {
    const { id, function: made, ...signature } = callOf(part);
    const open = this.#calls.get(part.toolCallId);
    const index = open?.index ?? this.#calls.size;
    this.#calls.set(part.toolCallId, { index, hasArguments: true });
    if (open === undefined) {
      return [this.#deltaChunk({ tool_calls: [{ index, id, function: made, ...signature }] })];
    }
    const { extra_content } = signature;
    const rest = open.hasArguments ? {} : { function: { arguments: part.input || '{}' } };
    const isEmpty = open.hasArguments && extra_content === undefined;
    if (isEmpty) return [];
    const signedPart = extra_content === undefined ? {} : { extra_content };
    return [this.#deltaChunk({ tool_calls: [{ index, ...rest, ...signedPart }] })];
  }

  #delta(delta: JsonObject): JsonObject[] {
    return Object.keys(delta).length === 0 ? [] : [this.#deltaChunk(delta)];
  }

  #deltaChunk(delta: JsonObject): JsonObject {
    const role = this.#hasRole ? {} : { role: 'assistant' };
    this.#hasRole = true;
    return this.#chunk([{ index: 0, delta: { ...role, ...delta }, finish_reason: null }]);
  }

  #chunk(choices: readonly JsonObject[], more: JsonObject = {}): JsonObject {
    const { id, createdS: created, model } = this.#frame;
    return { id, object: 'chat.completion.chunk', created, model, choices, ...more };
  }
}
