/**
 * Converts the event stream of `POST /responses` to the chunks of a chat stream: bytes in, bytes
 * out. Text that an engine sends only with the end of its item, or of the response, is sent then;
 * unknown events are skipped.
 */
import { SseEvents, type SseData } from '../../../http/sse-events.ts';
import { isJsonObject, type JsonObject } from '../../../json/json-scan.ts';
import { jsonObjects } from '../../../json/json-text.ts';
import { BROKEN_STREAM, DONE_EVENT, eventText, parsedEvent } from '../../wire/stream-events.ts';
import { CHUNK_START, type UpstreamReader } from '../upstream.ts';
import { textOfJson } from '../../agents/response-blocks.ts';
import { detailsOf, reasoningText } from './reasoning-details.ts';
import { annotationOf, callOf, finishOf } from './responses-to-chat.ts';
import { functionOf } from '../../wire/chat-choice.ts';

const HEAD = `data: ${CHUNK_START}"choices":[{"index":0,"delta":`;
const TAIL = ',"finish_reason":null}]}\n\n';

/** A delta of text in the order of OpenAI, the most frequent event, without log probabilities. */
const TEXT_DELTA =
  /^\{"type":"response\.output_text\.delta",(?:"sequence_number":\d+,)?"item_id":"[^"\\]*","output_index":(\d+),"content_index":\d+,"delta":"((?:[ !#-[\]-\uffff]|\\(?:["\\/bfnrt]|u[\da-f]{4}))+)"(?:,"logprobs":\[\])?(?:,"obfuscation":"[^"\\]*")?\}$/i;

/** The output item that the events of one `output_index` belong to. */
interface OpenItem {
  /** Number of the tool call; -1 for other items. */
  readonly call: number;
  /** Whether a piece of its text was sent. */
  hasText: boolean;
}

export class ResponsesReader implements UpstreamReader {
  readonly #events = new SseEvents();
  readonly #items = new Map<unknown, OpenItem>();
  #hasRole = false;
  #hasOutput = false;
  #isOver = false;
  #calls = 0;
  #details = 0;
  /** UTF-16 units of content before the open part, and with it. */
  #partStart = 0;
  #contentLength = 0;
  #hasReasoning = false;
  #startsReasoning = false;

  push(chunk: Buffer): Buffer {
    let out = '';
    if (!this.#events.push(chunk)) return this.#fail();
    for (let data = this.#events.next(); data !== undefined; data = this.#events.next()) {
      out += this.#take(data);
    }
    return Buffer.from(out);
  }

  #fail(): Buffer {
    this.#isOver = true;
    return Buffer.from(eventText({ error: BROKEN_STREAM }));
  }

  #take({ bytes, start, end }: SseData): string {
    if (this.#isOver) return '';
    const text = bytes.toString('utf8', start, end);
    const [, index, json] = TEXT_DELTA.exec(text) ?? [];
    if (index !== undefined && json !== undefined) return this.#text(Number(index), json);
    const event = parsedEvent(text);
    if (event === undefined) return text.trim() === '[DONE]' ? '' : this.#fail().toString();
    switch (event['type']) {
      case 'response.created':
        return this.#role();
      case 'response.output_item.added':
        return this.#added(event);
      case 'response.output_text.delta':
        return this.#piece(event, 'content', event['logprobs']);
      case 'response.refusal.delta':
        return this.#piece(event, 'refusal');
      case 'response.content_part.added':
        this.#partStart = this.#contentLength;
        return '';
      case 'response.reasoning_summary_part.added':
        this.#startsReasoning = true;
        return '';
      case 'response.reasoning_summary_text.delta':
      case 'response.reasoning_text.delta':
        return this.#piece(event, 'reasoning_content');
      case 'response.function_call_arguments.delta':
        return this.#arguments(event, event['delta']);
      case 'response.output_text.annotation.added': {
        const given = event['annotation'];
        const one = isJsonObject(given) ? annotationOf(given, this.#partStart) : undefined;
        return one === undefined ? '' : this.#delta({ annotations: [one] });
      }
      case 'response.output_item.done':
        return this.#done(event);
      case 'response.completed':
      case 'response.incomplete':
      case 'response.failed':
        return this.#end(event['response']);
      case 'error':
        return this.#error(event);
      default:
        return '';
    }
  }

  #added({ output_index: index, item }: JsonObject): string {
    const { type } = isJsonObject(item) ? item : {};
    const call = isJsonObject(item) ? callOf(item) : undefined;
    this.#items.set(index, { call: call === undefined ? -1 : this.#calls, hasText: false });
    if (type === 'reasoning') this.#startsReasoning = true;
    if (call === undefined) return '';
    this.#calls += 1;
    const { name } = functionOf(call);
    const made = { index: this.#calls - 1, ...call, function: { name, arguments: '' } };
    return this.#delta({ tool_calls: [made] });
  }

  #piece(
    { output_index: index, delta: text }: JsonObject,
    member: 'content' | 'refusal' | 'reasoning_content',
    logprobs?: unknown,
  ): string {
    if (typeof text !== 'string' || text === '') return '';
    const item = this.#items.get(index);
    if (item !== undefined) item.hasText = true;
    let shown = text;
    if (member === 'content') this.#contentLength += text.length;
    if (member === 'reasoning_content') {
      if (this.#startsReasoning && this.#hasReasoning) shown = `\n\n${text}`;
      this.#startsReasoning = false;
      this.#hasReasoning = true;
    }
    if (!Array.isArray(logprobs) || logprobs.length === 0) return this.#delta({ [member]: shown });
    this.#hasOutput = true;
    const choice = { index: 0, delta: { [member]: shown }, logprobs: { content: logprobs } };
    return this.#chunk([{ ...choice, finish_reason: null }]);
  }

  /** `json`: content of a JSON string, which stays as the engine escaped it. */
  #text(index: number, json: string): string {
    const item = this.#items.get(index);
    if (item !== undefined) item.hasText = true;
    this.#hasOutput = true;
    this.#contentLength += json.includes('\\') ? textOfJson(json).length : json.length;
    return `${this.#role()}${HEAD}{"content":"${json}"}${TAIL}`;
  }

  #arguments({ output_index: index }: JsonObject, text: unknown): string {
    const item = this.#items.get(index);
    if (item === undefined || item.call === -1 || typeof text !== 'string' || text === '')
      return '';
    item.hasText = true;
    return this.#delta({ tool_calls: [{ index: item.call, function: { arguments: text } }] });
  }

  #done(event: JsonObject): string {
    const { output_index: index, item } = event;
    if (!isJsonObject(item)) return '';
    const before = this.#items.has(index) ? '' : this.#added(event);
    const hasText = this.#items.get(index)?.hasText === true;
    const call = callOf(item);
    if (call !== undefined) {
      return before + (hasText ? '' : this.#arguments(event, functionOf(call)['arguments']));
    }
    if (item['type'] === 'reasoning') return before + this.#reasoningDone(event, item, hasText);
    if (item['type'] !== 'message' || hasText) return before;
    const pieces = jsonObjects(item['content']).map((part) => {
      this.#partStart = this.#contentLength;
      const isText = part['type'] === 'output_text';
      const delta = part[isText ? 'text' : 'refusal'];
      return this.#piece({ output_index: index, delta }, isText ? 'content' : 'refusal');
    });
    return before + pieces.join('');
  }

  #reasoningDone(event: JsonObject, item: JsonObject, hasText: boolean): string {
    const text = reasoningText(item);
    const shown = hasText ? '' : this.#piece({ ...event, delta: text }, 'reasoning_content');
    const details = detailsOf(item, this.#details);
    this.#details += details.length;
    return details.length === 0 ? shown : shown + this.#delta({ reasoning_details: details });
  }

  #end(response: unknown): string {
    if (!isJsonObject(response)) return this.#fail().toString();
    const { error, output, usage, service_tier } = response;
    const finish_reason = finishOf(response);
    if (finish_reason === 'error' || finish_reason === undefined) return this.#error({ error });
    this.#isOver = true;
    const items: readonly unknown[] = !this.#hasOutput && Array.isArray(output) ? output : [];
    const late = items.map((item, index) => this.#done({ output_index: index, item })).join('');
    const ended = this.#chunk([{ index: 0, delta: {}, logprobs: null, finish_reason }]);
    const counted = isJsonObject(usage) ? this.#chunk([], { usage, service_tier }) : '';
    return this.#role() + late + ended + counted + DONE_EVENT;
  }

  /** The members of an `error` event are in it or in its `error`. */
  #error(event: JsonObject): string {
    this.#isOver = true;
    const { code, message, type } = isJsonObject(event['error']) ? event['error'] : event;
    return eventText({ error: { message: message ?? 'The response failed', type, code } });
  }

  #role(): string {
    if (this.#hasRole) return '';
    return this.#delta({});
  }

  #delta(delta: JsonObject): string {
    const role = this.#hasRole ? '' : `${HEAD}{"role":"assistant","content":""}${TAIL}`;
    this.#hasRole = true;
    if (Object.keys(delta).length === 0) return role;
    this.#hasOutput = true;
    return role + HEAD + JSON.stringify(delta) + TAIL;
  }

  #chunk(choices: readonly JsonObject[], more: JsonObject = {}): string {
    const role = choices.length === 0 ? '' : this.#role();
    return role + eventText({ choices, ...more });
  }
}
