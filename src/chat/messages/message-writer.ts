/**
 * Writes a completion as a message of Anthropic's API, streaming or not: `message_start`, the
 * blocks, `message_delta` with the final usage, `message_stop`. A non-streaming message equals the
 * folded stream.
 */
import { parsedJsonObject } from '../../json/json-text.ts';
import type { Fault } from '../../core/faults.ts';
import type { JsonObject } from '../../json/json-scan.ts';
import type { TokenUsage } from '../../engines/usage.ts';
import { jsonContent, sealedReasoning, textOfJson } from '../agents/response-blocks.ts';
import type {
  ProtocolWriter,
  Block,
  CallBlock,
  Citation,
  SearchBlock,
  SignatureBlock,
  TextBlock,
  WriterFrame,
  WrittenEnd,
} from '../agents/response-protocol.ts';
import type { SearchResult } from '../web/web.ts';
import { MESSAGE_STOP, messageEvent } from '../upstream/anthropic/message-members.ts';
import { REASONING_FORMAT } from '../upstream/anthropic/reasoning.ts';
import { costMembers, type ResponseEnd } from '../wire/chat-response.ts';
import { messageError } from './message-errors.ts';
import type { ThinkingShown } from './messages-request.ts';

interface MessageWriterOptions {
  readonly thinking: ThinkingShown;
  readonly stopSequences: readonly string[];
  /** The caller's tool names by the engine's, where they differ. */
  readonly toolNames: ReadonlyMap<string, string>;
  readonly seal: (text: string) => string;
  readonly contextTokens: number;
}

const PING = messageEvent('ping', {});
const CITED_CHARACTERS = 150;

export class MessageWriter implements ProtocolWriter {
  readonly #frame: WriterFrame;
  readonly #options: MessageWriterOptions;
  readonly #content: JsonObject[] = [];
  #citations: JsonObject[] = [];
  #searches = 0;

  constructor(frame: WriterFrame, options: MessageWriterOptions) {
    this.#frame = frame;
    this.#options = options;
  }

  begin(): string {
    const { promptTokens } = this.#frame;
    const usage = { ...NO_USAGE, input_tokens: promptTokens };
    return messageEvent('message_start', { message: this.#message([], null, null, usage) });
  }

  open(block: Block): string {
    switch (block.kind) {
      case 'text':
        this.#citations = [];
        return this.#start({ type: 'text', text: '' });
      case 'reasoning':
        if (this.#options.thinking === 'hidden') return '';
        return this.#start({ type: 'thinking', thinking: '', signature: '' });
      case 'call':
        return this.#start({ ...this.#toolUse(block), input: {} });
      case 'signature':
        return this.#start(this.#redacted(block));
      case 'search':
        return '';
    }
  }

  piece(block: TextBlock | CallBlock, json: string): string {
    switch (block.kind) {
      case 'text':
        return this.#textDelta('text_delta","text', json);
      case 'call':
        return this.#textDelta('input_json_delta","partial_json', json);
      case 'reasoning':
        if (this.#options.thinking !== 'whole') return '';
        return this.#textDelta('thinking_delta","thinking', json);
    }
  }

  mark(): string {
    return '';
  }

  cite({ own, url, title, content }: Citation): string {
    const citation = own ?? {
      type: 'web_search_result_location',
      url,
      title,
      cited_text: content.slice(0, CITED_CHARACTERS),
      encrypted_index: '',
    };
    this.#citations.push(citation);
    return this.#delta({ type: 'citations_delta', citation });
  }

  close(block: Block): string {
    switch (block.kind) {
      case 'text': {
        const citations = this.#citations.length === 0 ? {} : { citations: this.#citations };
        return this.#stop({ type: 'text', text: textOfJson(block.json), ...citations });
      }
      case 'reasoning':
        return this.#closeThinking(block);
      case 'call':
        // Arguments that are no complete JSON object become an empty input.
        return this.#stop({
          ...this.#toolUse(block),
          input: parsedJsonObject(textOfJson(block.json)) ?? {},
        });
      case 'signature':
        return this.#stop(this.#redacted(block));
      case 'search':
        return this.#searched(block);
    }
  }

  keepAlive(): string {
    return PING;
  }

  end(end: WrittenEnd): string {
    const [stop_reason, stop_sequence] = this.#stopOf(end);
    const { usage, ...more } = this.#members(end);
    const delta = { stop_reason, stop_sequence };
    return messageEvent('message_delta', { delta, usage, ...more }) + MESSAGE_STOP;
  }

  whole(end: WrittenEnd): Buffer {
    const [reason, sequence] = this.#stopOf(end);
    const { usage, ...more } = this.#members(end);
    const message = this.#message(this.#content, reason, sequence, usage);
    return Buffer.from(JSON.stringify({ ...message, ...more }));
  }

  failed(fault: Fault, end: ResponseEnd | undefined): string {
    const { requestId, promptTokens } = this.#frame;
    const { contextTokens } = this.#options;
    const error = messageError(fault, { requestId, promptTokens, contextTokens });
    return messageEvent('error', { ...error, ...(end === undefined ? {} : this.#members(end)) });
  }

  get #index(): number {
    return this.#content.length;
  }

  #start(content_block: JsonObject): string {
    return messageEvent('content_block_start', { index: this.#index, content_block });
  }

  #delta(delta: JsonObject): string {
    return messageEvent('content_block_delta', { index: this.#index, delta });
  }

  /** Inserts `json` unparsed, because most events of a stream are text deltas. */
  #textDelta(names: string, json: string): string {
    return `event: content_block_delta\ndata: {"type":"content_block_delta","index":${this.#index},"delta":{"type":"${names}":"${json}"}}\n\n`;
  }

  #stop(block: JsonObject): string {
    return messageEvent('content_block_stop', { index: this.#content.push(block) - 1 });
  }

  #toolUse({ id, name }: CallBlock): JsonObject {
    return { type: 'tool_use', id, name: this.#options.toolNames.get(name) ?? name, ...DIRECT };
  }

  /** Clients send the block back unchanged, as they do with encrypted thinking. */
  #redacted({ json, detail }: SignatureBlock): JsonObject {
    const data = ownMember(detail, 'data') ?? this.#options.seal(textOfJson(json));
    return { type: 'redacted_thinking', data };
  }

  #closeThinking(block: TextBlock): string {
    const { thinking, seal } = this.#options;
    if (thinking === 'hidden') return '';
    const signature = ownMember(block.detail, 'signature') ?? seal(sealedReasoning(block));
    const shown = thinking === 'whole' ? textOfJson(block.json) : '';
    const delta = this.#delta({ type: 'signature_delta', signature });
    return delta + this.#stop({ type: 'thinking', thinking: shown, signature });
  }

  #searched({ json, results }: SearchBlock): string {
    this.#searches += 1;
    const id = `srvtoolu_${this.#frame.requestId.slice(0, 22)}${String(this.#searches).padStart(2, '0')}`;
    const use = {
      type: 'server_tool_use',
      id,
      name: 'web_search',
      input: { query: textOfJson(json) },
      ...DIRECT,
    };
    const content = results?.map(searchResult) ?? SEARCH_FAILED;
    const found = { type: 'web_search_tool_result', tool_use_id: id, content, ...DIRECT };
    const argued = jsonContent(`{"query":"${json}"}`);
    return (
      this.#start({ ...use, input: {} }) +
      this.#textDelta('input_json_delta","partial_json', argued) +
      this.#stop(use) +
      this.#start(found) +
      this.#stop(found)
    );
  }

  #message(
    content: readonly JsonObject[],
    stop_reason: string | null,
    stop_sequence: string | null,
    usage: unknown,
  ): JsonObject {
    const { requestId, model } = this.#frame;
    const head = { id: `msg_${requestId}`, type: 'message', role: 'assistant', model };
    return { ...head, content, stop_reason, stop_sequence, usage };
  }

  #stopOf({ finish, stopReason }: WrittenEnd): readonly [reason: string, sequence: string | null] {
    const isOurs =
      typeof stopReason === 'string' && this.#options.stopSequences.includes(stopReason);
    if (finish === 'stop' && isOurs) return ['stop_sequence', stopReason];
    return [STOP_REASONS[finish] ?? 'end_turn', null];
  }

  #members(end: ResponseEnd) {
    const usage = usageOf(end.usage, this.#searches);
    return { usage, ...costMembers(this.#frame.serviceName, end) };
  }
}

/** Reasoning of this protocol stays as the engine signed it. */
function ownMember(detail: JsonObject | undefined, name: string): unknown {
  return detail?.['format'] === REASONING_FORMAT ? detail[name] : undefined;
}

const STOP_REASONS: Readonly<Record<string, string>> = {
  stop: 'end_turn',
  tool_calls: 'tool_use',
  length: 'max_tokens',
  content_filter: 'refusal',
};

const NO_USAGE = {
  input_tokens: 0,
  cache_creation_input_tokens: 0,
  cache_read_input_tokens: 0,
  output_tokens: 0,
};

/** Anthropic's `input_tokens` exclude cached tokens. */
function usageOf(usage: TokenUsage, searches: number): JsonObject {
  const { promptTokens, cachedTokens, cacheWriteTokens, completionTokens, reasoningTokens } = usage;
  const counted = {
    input_tokens: Math.max(0, promptTokens - cachedTokens - cacheWriteTokens),
    cache_creation_input_tokens: cacheWriteTokens,
    cache_read_input_tokens: cachedTokens,
    output_tokens: completionTokens,
    output_tokens_details: { thinking_tokens: reasoningTokens },
  };
  return searches === 0
    ? counted
    : { ...counted, server_tool_use: { web_search_requests: searches } };
}

/** The model calls each tool itself, not through code that it runs. */
const DIRECT = { caller: { type: 'direct' } };

const SEARCH_FAILED = { type: 'web_search_tool_result_error', error_code: 'unavailable' };

function searchResult({ title, url, date }: SearchResult): JsonObject {
  return { type: 'web_search_result', title, url, encrypted_content: '', page_age: date ?? null };
}
