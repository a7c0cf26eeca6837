/**
 * Translates the events of a message of Anthropic's API to chunks of a chat. The text of a delta
 * keeps its bytes, and chunks of one kind differ in their text only, which the chat stream passes on
 * without parsing.
 */
import { SseEvents, type SseData } from '../../../http/sse-events.ts';
import { isJsonObject, type JsonObject } from '../../../json/json-scan.ts';
import { jsonContent, textOfJson } from '../../agents/response-blocks.ts';
import { DONE_EVENT, eventText, parsedEvent } from '../../wire/stream-events.ts';
import { CHUNK_START, type UpstreamReader } from '../upstream.ts';
import { annotationOf, mergedUsage } from './message-members.ts';
import { encryptedReasoning, signedReasoning } from './reasoning.ts';

interface OpenBlock {
  readonly type: unknown;
  /** The arguments of a call that the start of its block contains. */
  readonly input: unknown;
  /** Text so far as content of a JSON string, in latin1. */
  json: string;
  signature: string;
  readonly citations: JsonObject[];
  /** Before and after the text of a chunk. */
  readonly before: string;
  readonly after: string;
  /** The event of a delta before its text. */
  readonly delta: string;
}

const DELTA_END = '"}}';

export class MessageReader implements UpstreamReader {
  readonly #events = new SseEvents();
  #block: OpenBlock | undefined;
  #calls = 0;
  #details = 0;
  /** UTF-16 units of text, to which citations refer. */
  #textLength = 0;
  #usage: JsonObject = {};

  push(bytes: Buffer): Buffer {
    // In latin1, so that a text keeps its bytes.
    let chunks = '';
    if (!this.#events.push(bytes)) return Buffer.from(TOO_LONG);
    for (let data = this.#events.next(); data !== undefined; data = this.#events.next()) {
      chunks += this.#chunkOf(data);
    }
    return Buffer.from(chunks, 'latin1');
  }

  #chunkOf({ bytes, start, end }: SseData): string {
    const text = bytes.toString('latin1', start, end);
    const block = this.#block;
    if (block !== undefined && text.startsWith(block.delta) && text.endsWith(DELTA_END)) {
      const json = text.slice(block.delta.length, -DELTA_END.length);
      // An escaped quote or another member needs a parser.
      if (!json.includes('"')) return this.#piece(block, json);
    }
    const event = parsedEvent(bytes.toString('utf8', start, end));
    return event === undefined ? asLatin1(NOT_JSON) : asLatin1(this.#translated(event));
  }

  #piece(block: OpenBlock, json: string): string {
    if (json === '') return '';
    block.json += json;
    return block.before + json + block.after;
  }

  #translated(event: JsonObject): string {
    switch (event['type']) {
      case 'message_start': {
        const { message } = event;
        if (isJsonObject(message)) this.#addUsage(message['usage']);
        return chunkText({ role: 'assistant', content: '' }, { usage: this.#usage });
      }
      case 'content_block_start':
        return this.#start(event['index'], event['content_block']);
      case 'content_block_delta':
        return isJsonObject(event['delta']) ? this.#delta(event['delta']) : '';
      case 'content_block_stop':
        return this.#stop();
      case 'message_delta': {
        const { delta, usage } = event;
        this.#addUsage(usage);
        const { stop_reason, stop_sequence } = isJsonObject(delta) ? delta : {};
        const ended = { finish_reason: stop_reason ?? null, stop_reason: stop_sequence ?? null };
        // The usage of `message_start` does not contain the output.
        const counted = isJsonObject(usage) ? { usage: this.#usage } : {};
        return eventText({ choices: [{ index: 0, delta: {}, ...ended }], ...counted });
      }
      case 'message_stop':
        return DONE_EVENT;
      case 'error':
        return eventText({ error: event['error'] });
      default:
        return '';
    }
  }

  #start(index: unknown, block: unknown): string {
    if (!isJsonObject(block)) return '';
    const { type, input } = block;
    const frame = frameOf(type, this.#calls);
    // Deltas of other blocks, such as those of tools of the provider, are dropped.
    if (frame === undefined && type !== 'redacted_thinking') return '';
    const delta = `{"type":"content_block_delta","index":${Number(index)},"delta":{"type":"${frame?.kind}":"`;
    const before = `data: ${TEXT_START}${frame?.before}`;
    const after = `${frame?.after}${TEXT_END}`;
    this.#block = { type, input, json: '', signature: '', citations: [], before, after, delta };
    if (type === 'redacted_thinking') {
      const details = [encryptedReasoning(String(block['data']), this.#details)];
      this.#details += 1;
      return chunkText({ reasoning_details: details });
    }
    if (type !== 'tool_use') return this.#given(block);
    const made = { name: block['name'], arguments: '' };
    const call = { index: this.#calls, id: block['id'], type: 'function', function: made };
    this.#calls += 1;
    return chunkText({ tool_calls: [call] });
  }

  /** Some servers send the first text with the start of the block. */
  #given({ type, text, thinking, signature }: JsonObject): string {
    const block = this.#block;
    if (block === undefined) return '';
    if (typeof signature === 'string') block.signature = signature;
    return this.#text(block, type === 'text' ? text : thinking);
  }

  #delta(delta: JsonObject): string {
    const block = this.#block;
    if (block === undefined) return '';
    const { type, signature, citation } = delta;
    if (type === 'signature_delta') block.signature += String(signature);
    else if (type === 'citations_delta' && isJsonObject(citation)) block.citations.push(citation);
    return this.#text(block, delta['text'] ?? delta['thinking'] ?? delta['partial_json']);
  }

  /** A text that was parsed. */
  #text(block: OpenBlock, text: unknown): string {
    if (typeof text !== 'string') return '';
    return fromLatin1(this.#piece(block, asLatin1(jsonContent(text))));
  }

  #addUsage(usage: unknown): void {
    if (isJsonObject(usage)) this.#usage = mergedUsage(this.#usage, usage);
  }

  #stop(): string {
    const block = this.#block;
    this.#block = undefined;
    if (block === undefined) return '';
    const { type, input, signature, citations } = block;
    if (type === 'tool_use' && block.json === '') {
      return this.#text(block, JSON.stringify(input ?? {}));
    }
    if (type === 'thinking' && signature !== '') {
      const text = textOfJson(fromLatin1(block.json));
      const details = [signedReasoning(text, signature, this.#details)];
      this.#details += 1;
      return chunkText({ reasoning_details: details });
    }
    if (type !== 'text') return '';
    const start = this.#textLength;
    const end = start + textOfJson(fromLatin1(block.json)).length;
    this.#textLength = end;
    if (citations.length === 0) return '';
    return chunkText({ annotations: citations.map((one) => annotationOf(one, start, end)) });
  }
}

const TEXT_START = `${CHUNK_START}"choices":[{"index":0,"delta":{`;
const TEXT_END = '},"finish_reason":null}]}\n\n';

interface BlockFrame {
  /** Type of the deltas and the name of their text. */
  readonly kind: string;
  /** The delta of a chat before its text. */
  readonly before: string;
  /** The same after it. */
  readonly after: string;
}

function frameOf(type: unknown, call: number): BlockFrame | undefined {
  switch (type) {
    case 'text':
      return { kind: 'text_delta","text', before: '"content":"', after: '"' };
    case 'thinking':
      return { kind: 'thinking_delta","thinking', before: '"reasoning_content":"', after: '"' };
    case 'tool_use':
      return {
        kind: 'input_json_delta","partial_json',
        before: `"tool_calls":[{"index":${call},"function":{"arguments":"`,
        after: '"}}]',
      };
    default:
      return undefined;
  }
}

function chunkText(delta: JsonObject, more: JsonObject = {}): string {
  return eventText({ choices: [{ index: 0, delta, finish_reason: null }], ...more });
}

const TOO_LONG = eventText({ error: { message: 'An event of the engine is too long' } });
const NOT_JSON = eventText({ error: { message: 'An event of the engine is not JSON' } });

/** The UTF-8 bytes of a text, one per character. */
function asLatin1(text: string): string {
  return Buffer.from(text).toString('latin1');
}

function fromLatin1(text: string): string {
  return Buffer.from(text, 'latin1').toString();
}
