/**
 * Passes on the event stream of an engine of the Responses protocol. Events keep their bytes, except
 * the response objects of the first and last ones. The last event waits for the charge. At the end
 * of the grant, the open items are closed and the response is incomplete.
 */
import { readUsage } from '../../../engines/usage.ts';
import type { SseData } from '../../../http/sse-events.ts';
import type { Frame } from '../../../http/stream-writer.ts';
import { childrenOf, isJsonObject, type JsonObject } from '../../../json/json-scan.ts';
import { jsonObjects } from '../../../json/json-text.ts';
import { noOutput, outputBytes, type OutputTally, textBytes } from '../../wire/chat-choice.ts';
import type { ResponseEnd } from '../../wire/chat-response.ts';
import { engineFailure, eventText } from '../../wire/stream-events.ts';
import { CountedStream, NO_BYTES } from '../counted-stream.ts';
import {
  itemsTally,
  type PassedFrame,
  responsesUsage,
  shownResponse,
  withOwnId,
} from './passed-response.ts';

/** The kind of output of a text, and the member of the item that it builds. */
type ItemText = readonly [kind: keyof OutputTally, member: string];

/** By the name of their events. */
const TEXTS: Readonly<Record<string, ItemText>> = {
  output_text: ['contentBytes', 'text'],
  refusal: ['contentBytes', 'refusal'],
  reasoning_summary_text: ['reasoningBytes', 'text'],
  reasoning_text: ['reasoningBytes', 'text'],
  function_call_arguments: ['toolBytes', 'arguments'],
  custom_tool_call_input: ['toolBytes', 'input'],
};

const DELTAS = textEvents('delta');
/** The end of a part has its whole text, which some engines send without deltas. */
const ENDS = textEvents('done');

function textEvents(phase: string): ReadonlyMap<unknown, ItemText> {
  return new Map(Object.entries(TEXTS).map(([name, text]) => [`response.${name}.${phase}`, text]));
}

const KINDS = ['contentBytes', 'reasoningBytes', 'toolBytes'] as const;

export interface FinishedResponse {
  readonly responseJson: string;
  readonly status: string;
}

export interface ResponseError {
  readonly code: string;
  readonly message: string;
}

interface OpenItem {
  readonly item: JsonObject;
  readonly index: number;
  member: string;
  text: string;
}

/** The text of an item that was counted. */
interface CountedItem extends OutputTally {
  /** Whether a delta of its open part came. */
  hasDelta: boolean;
}

export class PassedStream extends CountedStream {
  readonly #frame: PassedFrame;
  readonly #keep: (finished: FinishedResponse) => void;
  readonly #open = new Map<unknown, OpenItem>();
  readonly #counted = new Map<unknown, CountedItem>();
  readonly #done: JsonObject[] = [];
  #started: JsonObject = {};
  /** The last event, which is sent with the charge. */
  #last: { readonly bytes: Buffer; readonly event: JsonObject } | undefined;
  #sequence = 0;

  /** `keep` receives the finished response, once for each charge that is tried. */
  constructor(
    frame: PassedFrame,
    grantedTokens: number,
    keep: (finished: FinishedResponse) => void,
  ) {
    super(grantedTokens);
    this.#frame = frame;
    this.#keep = keep;
  }

  get isComplete(): boolean {
    return this.failure === undefined && (this.#last !== undefined || this.isCutOff);
  }

  closing(end: ResponseEnd): Buffer {
    if (this.#last !== undefined) {
      const { bytes, event } = this.#last;
      const shown = this.#withResponse(bytes, end);
      const { status } = event['response'] as JsonObject; // checked when it arrived
      this.#keep({ responseJson: shown.response.toString(), status: String(status) });
      return shown.bytes;
    }
    const details = { reason: 'max_output_tokens' };
    const members = { status: 'incomplete', incomplete_details: details };
    return Buffer.from(this.#closeItems() + this.#ended('incomplete', members, end));
  }

  /** The last event of a stream that failed; `end` is set if its text was charged. */
  failed(error: ResponseError, end: ResponseEnd | undefined): string {
    return this.#ended('failed', { status: 'failed', error }, end);
  }

  protected override take(event: JsonObject, data: SseData, into: Frame): void {
    const { type, response, sequence_number: number } = event;
    const { event: span } = data;
    const bytes =
      span === undefined
        ? Buffer.from(`event: ${String(type)}\n${eventText(event)}`)
        : data.bytes.subarray(span.start, span.end);
    if (type === 'error') {
      this.failure = engineFailure(event['error'] ?? event);
    } else if (isJsonObject(response)) {
      this.#takeResponse(event, response, Buffer.from(bytes), into);
    } else if (this.#countEvent(event)) {
      const { fits, requestId } = this.#frame;
      const item = isJsonObject(event['item']) ? event['item'] : undefined;
      const id = item?.['id'] ?? event['item_id'];
      if (fits === undefined) into.add(bytes);
      else into.addText(withOwnId(bytes.toString(), id, event['output_index'], requestId));
    }
    const isShown = this.failure === undefined && !this.isCutOff;
    if (isShown && typeof number === 'number') this.#sequence = number + 1;
  }

  #takeResponse(event: JsonObject, response: JsonObject, bytes: Buffer, into: Frame): void {
    switch (response['status']) {
      case 'completed':
      case 'incomplete': {
        if (!this.#countItems(jsonObjects(response['output']), this.tally)) return;
        const usage = readUsage(response['usage']);
        const atBytes = outputBytes(this.tally);
        if (usage !== undefined) this.reported = { usage, atBytes, tier: response['service_tier'] };
        this.#last = { bytes, event };
        this.isDone = true;
        return;
      }
      case 'failed':
      case 'cancelled':
        this.failure = engineFailure(response['error']);
        return;
      default:
        this.#started = response;
        into.add(this.#withResponse(bytes).bytes);
    }
  }

  /** Counts the text of an event and follows its item. Returns `false` at the end of the grant. */
  #countEvent(event: JsonObject): boolean {
    const { type, output_index: index, item } = event;
    if (type === 'response.output_item.added' && isJsonObject(item) && typeof index === 'number') {
      const nameBytes = item['call_id'] === undefined ? 0 : textBytes(item['name']);
      this.tally.toolBytes += nameBytes;
      this.#countedOf(index).toolBytes += nameBytes;
      this.#open.set(index, { item, index, member: '', text: '' });
    } else if (type === 'response.output_item.done' && isJsonObject(item)) {
      if (!this.#countItems([item], this.#counted.get(index) ?? noOutput())) return false;
      this.#open.delete(index);
      this.#done.push(item);
    }
    const delta = DELTAS.get(type);
    const [kind, member] = delta ?? ENDS.get(type) ?? [];
    if (kind === undefined || member === undefined) return true;
    const counted = this.#countedOf(index);
    const isCounted = delta === undefined && counted.hasDelta;
    counted.hasDelta = delta !== undefined;
    const text = event[delta === undefined ? member : 'delta'];
    if (isCounted || typeof text !== 'string' || text === '') return true;
    const piece = noOutput();
    piece[kind] = textBytes(text);
    if (!this.count(piece)) return false;
    counted[kind] += piece[kind];
    const open = this.#open.get(index);
    if (open !== undefined) {
      open.member = member;
      open.text += text;
    }
    return true;
  }

  #countedOf(index: unknown): CountedItem {
    const known = this.#counted.get(index) ?? { ...noOutput(), hasDelta: false };
    this.#counted.set(index, known);
    return known;
  }

  /**
   * Counts the text of finished items that came without deltas, beyond what was counted of them.
   * Returns `false` at the end of the grant.
   */
  #countItems(items: readonly JsonObject[], counted: Readonly<OutputTally>): boolean {
    const rest = itemsTally(items);
    for (const kind of KINDS) rest[kind] = Math.max(0, rest[kind] - counted[kind]);
    return this.count(rest);
  }

  /** The event with its response object as the caller receives it. */
  #withResponse(bytes: Buffer, end?: ResponseEnd): { bytes: Buffer; response: Buffer } {
    const start = bytes.indexOf(OPEN_BRACE, bytes.indexOf(DATA));
    const member = childrenOf(bytes, start).spans.find(({ key }) => key === 'response');
    if (member === undefined) return { bytes, response: NO_BYTES };
    const given = bytes.subarray(member.valueStart, member.end);
    const response = shownResponse(given, this.#frame, end);
    const before = bytes.subarray(0, member.valueStart);
    return { bytes: Buffer.concat([before, response, bytes.subarray(member.end)]), response };
  }

  #closeItems(): string {
    let events = '';
    for (const { item, index, member, text } of this.#open.values()) {
      const closed = closedItem(item, member, text);
      this.#done.push(closed);
      const json = JSON.stringify({ output_index: index, item: closed }).slice(1, -1);
      const { fits, requestId } = this.#frame;
      const shown = fits ? withOwnId(json, item['id'], index, requestId) : json;
      events += this.#event('output_item.done', shown);
    }
    this.#open.clear();
    return events;
  }

  #ended(name: string, members: JsonObject, end: ResponseEnd | undefined): string {
    const usage = end === undefined ? null : responsesUsage(end.usage);
    const response = { ...this.#started, output: this.#done, usage, ...members };
    const shown = shownResponse(Buffer.from(JSON.stringify(response)), this.#frame, end).toString();
    if (name !== 'failed') this.#keep({ responseJson: shown, status: name });
    return this.#event(name, `"response":${shown}`);
  }

  #event(name: string, members: string): string {
    const number = this.#sequence;
    this.#sequence += 1;
    return `event: response.${name}\ndata: {"type":"response.${name}","sequence_number":${number},${members}}\n\n`;
  }
}

const DATA = 'data:';
const OPEN_BRACE = '{';

function closedItem(item: JsonObject, member: string, text: string): JsonObject {
  const status = 'incomplete';
  switch (item['type']) {
    case 'message': {
      const part =
        member === 'refusal'
          ? { type: 'refusal', refusal: text }
          : { type: 'output_text', text, annotations: [], logprobs: [] };
      return { ...item, status, content: [part] };
    }
    case 'reasoning':
      return { ...item, summary: [{ type: 'summary_text', text }] };
    case 'function_call':
    case 'custom_tool_call':
      return { ...item, status, ...(member === '' ? {} : { [member]: text }) };
    default:
      return item;
  }
}
