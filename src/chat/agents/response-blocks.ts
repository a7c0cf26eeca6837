/**
 * Turns the deltas of a chat into blocks for an `ProtocolWriter`: reasoning, text, calls and searches,
 * of which one is open at a time. A whole answer goes through as one delta, so that it is by its
 * making what its stream would fold to.
 *
 * Engines may send what they like in any order: a call that is not complete stays open, and what
 * comes meanwhile for others waits until the end. Leading white space waits for text, and is left
 * out when none comes. Text is handled as the content of JSON strings: what an engine escaped is
 * passed on as it is.
 */
import { parsedJsonObject } from '../../json/json-text.ts';
import type { Fault } from '../../core/faults.ts';
import { isJsonObject, type JsonObject } from '../../json/json-scan.ts';
import type { SearchResult } from '../web/web.ts';
import {
  argumentsText,
  madeBy,
  nameOf,
  reasoningOf,
  type TextKind,
  toolCallsOf,
} from '../wire/chat-choice.ts';
import type { ResponseEnd } from '../wire/chat-response.ts';
import type {
  ResponseProtocol,
  ProtocolWriter,
  Block,
  CallBlock,
  Citation,
  SearchBlock,
  TextBlock,
  WrittenEnd,
} from './response-protocol.ts';
import { CitationMarks } from './citation-marks.ts';

interface EngineCall {
  id: string;
  name: string;
  block: CallBlock | undefined;
}

interface Waiting {
  readonly kind: TextBlock['kind'] | 'call';
  readonly call: EngineCall | undefined;
  json: string;
}

const SAFE_CALL_ID = /^[A-Za-z0-9_-]{1,64}$/;
const ONLY_SPACE = /^(?:\s|\\[nrt])*$/;

export interface ResponseBlocksOptions extends Pick<
  ResponseProtocol,
  'takenCallIds' | 'newCallId'
> {
  readonly writer: ProtocolWriter;
  /** What marks in the text refer to; `undefined` where none are asked for. */
  readonly sources: (() => readonly SearchResult[]) | undefined;
}

export class ResponseBlocks {
  readonly blocks: Block[] = [];
  readonly #options: ResponseBlocksOptions;
  readonly #writer: ProtocolWriter;
  readonly #callIds = new Set<string>();
  #open: TextBlock | CallBlock | SearchBlock | undefined;
  #calls = new Map<number, EngineCall>();
  #waiting: Waiting[] = [];
  /** White space before a text that has not begun, and what kind of text. */
  #lead = '';
  #leadKind: TextBlock['kind'] = 'text';
  #marks: CitationMarks | undefined;
  /** Of the delta that is being told, when they were asked for. */
  #logprobs: readonly JsonObject[] | undefined;
  #finish = 'stop';
  #stopReason: unknown;

  constructor(options: ResponseBlocksOptions) {
    this.#options = options;
    this.#writer = options.writer;
  }

  /** A piece of text as it stands in JSON; `call` is the index of the call that has it. */
  text(kind: TextKind, json: string, call: number): string {
    if (kind === 'tool') {
      const known = this.#calls.get(call);
      return known === undefined ? '' : this.#argue(known, json);
    }
    const open = this.#open;
    const wanted = kind === 'content' ? 'text' : kind;
    if (open?.kind === wanted && this.#marks === undefined) {
      open.json += json;
      return this.#writer.piece(open, json);
    }
    return this.#say(wanted, json);
  }

  choice(choice: JsonObject): string {
    const delta = isJsonObject(choice['delta']) ? choice['delta'] : {};
    let events = '';
    const reasoning = reasoningOf(delta) ?? '';
    if (reasoning !== '') events += this.#say('reasoning', jsonContent(reasoning));
    this.#logprobs = logprobsOf(choice);
    for (const text of [delta['content'], delta['refusal']]) {
      if (typeof text === 'string' && text !== '') events += this.#say('text', jsonContent(text));
    }
    this.#logprobs = undefined;
    for (const [at, call] of toolCallsOf(delta).entries()) events += this.#call(call, at);
    const finish = choice['finish_reason'];
    if (typeof finish !== 'string') return events;
    this.#finish = finish;
    this.#stopReason = choice['stop_reason'];
    return events;
  }

  nextRound(): void {
    this.#calls = new Map();
  }

  searching(query: string): string {
    const block: SearchBlock = {
      kind: 'search',
      index: this.blocks.length,
      json: jsonContent(query),
      results: undefined,
    };
    return this.#closeOpen() + this.#begin(block);
  }

  searched(query: string, results: readonly SearchResult[] | undefined): string {
    let events = this.#open?.kind === 'search' ? '' : this.searching(query);
    if (this.#open?.kind !== 'search') return events;
    this.#open.results = results;
    events += this.#closeOpen();
    return events;
  }

  begin(): string {
    return this.#writer.begin();
  }

  get together(): ProtocolWriter['together'] {
    return this.#writer.together;
  }

  keepAlive(): string {
    return this.#writer.keepAlive();
  }

  failed(fault: Fault, end: ResponseEnd | undefined): string {
    return this.#writer.failed(fault, end);
  }

  end(end: ResponseEnd): string {
    return this.#finishBlocks() + this.#writer.end(this.#written(end));
  }

  whole(end: ResponseEnd): Buffer {
    this.#finishBlocks();
    return this.#writer.whole(this.#written(end));
  }

  #written(end: ResponseEnd): WrittenEnd {
    const { blocks } = this;
    return { ...end, finish: this.#finish, stopReason: this.#stopReason, blocks };
  }

  /** Closes what is open and shows what waited; an answer of nothing is an empty text. */
  #finishBlocks(): string {
    let events = this.#closeOpen(this.#waiting.length === 0);
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const { kind, call, json } of waiting) {
      // A call that is not complete will not be: what waited for its end is not held up again.
      events += this.#closeOpen();
      if (kind !== 'call') events += this.#say(kind, json);
      else if (call !== undefined && call.name !== '') events += this.#openCall(call, json);
    }
    events += this.#closeOpen(true);
    if (this.blocks.length > 0) return events;
    events += this.#begin({ kind: 'text', index: 0, json: '' });
    return events + this.#closeOpen(true);
  }

  get #isBlocked(): boolean {
    return this.#open?.kind === 'call' && !isComplete(this.#open);
  }

  #showWaiting(): string {
    let events = '';
    for (let next = this.#waiting[0]; next !== undefined; next = this.#waiting[0]) {
      const { kind, call, json } = next;
      if (this.#isBlocked || call?.name === '') break;
      this.#waiting.shift();
      if (kind !== 'call') events += this.#say(kind, json);
      else if (call !== undefined) events += this.#openCall(call, json);
    }
    return events;
  }

  #say(kind: TextBlock['kind'], json: string): string {
    let events = this.#waiting.length === 0 ? '' : this.#showWaiting();
    if (this.#isBlocked) {
      if (!ONLY_SPACE.test(json)) this.#wait(kind, undefined, json);
      return events;
    }
    if (this.#open?.kind !== kind) {
      const text = this.#leadKind === kind ? this.#lead + json : json;
      if (ONLY_SPACE.test(text)) {
        this.#lead = text;
        this.#leadKind = kind;
        return events;
      }
      events += this.#closeOpen() + this.#begin({ kind, index: this.blocks.length, json: '' });
      return events + this.#piece(text);
    }
    return events + this.#piece(json);
  }

  #piece(json: string): string {
    const open = this.#open;
    if (open === undefined || open.kind === 'search' || json === '') return '';
    if (this.#marks === undefined || open.kind !== 'text') {
      open.json += json;
      return this.#writer.piece(open, json, open.kind === 'text' ? this.#logprobs : undefined);
    }
    let events = '';
    for (const piece of this.#marks.push(json)) {
      if ('source' in piece) events += this.#cite(open, piece.source);
      else {
        open.json += piece.json;
        events += this.#writer.piece(open, piece.json);
      }
    }
    return events;
  }

  /** Marks of sources that are not there are left out. */
  #cite(block: TextBlock, number: number): string {
    const source = this.#options.sources?.()[number];
    if (source === undefined) return '';
    const citation: Citation = { ...source, number };
    const mark = jsonContent(this.#writer.mark(citation));
    block.json += mark;
    const shown = mark === '' ? '' : this.#writer.piece(block, mark);
    return shown + this.#writer.cite(block, citation, mark);
  }

  #call(piece: JsonObject, at: number): string {
    const index = typeof piece['index'] === 'number' ? piece['index'] : at;
    const json = jsonContent(argumentsText(madeBy(piece)['arguments']));
    const name = nameOf(piece) ?? '';
    let call = this.#calls.get(index);
    if (call === undefined) {
      const id = typeof piece['id'] === 'string' ? piece['id'] : '';
      call = { id: this.#safeId(id), name, block: undefined };
      this.#calls.set(index, call);
    } else if (call.name === '') call.name = name;
    return this.#argue(call, json);
  }

  /** A piece of the arguments of a call, whose block opens when nothing stands in its way. */
  #argue(call: EngineCall, json: string): string {
    const events = call.block !== undefined ? '' : this.#showWaiting();
    if (call.block !== undefined) {
      // Behind arguments that are complete nothing can follow that means anything.
      if (call.block !== this.#open || json === '') return events;
      call.block.json += json;
      return events + this.#writer.piece(call.block, json);
    }
    if (this.#isBlocked || call.name === '') {
      this.#wait('call', call, json);
      return events;
    }
    // A piece without a name may have come before.
    const at = this.#waiting.findIndex((one) => one.call === call);
    const [before] = at === -1 ? [] : this.#waiting.splice(at, 1);
    return events + this.#openCall(call, (before?.json ?? '') + json);
  }

  #openCall(call: EngineCall, json: string): string {
    const { id, name } = call;
    call.block = { kind: 'call', index: this.blocks.length, json: '', id, name };
    return this.#closeOpen() + this.#begin(call.block) + this.#piece(json);
  }

  #wait(kind: Waiting['kind'], call: EngineCall | undefined, json: string): void {
    const waiting = this.#waiting.findLast((one) => one.kind === kind && one.call === call);
    if (waiting === undefined) this.#waiting.push({ kind, call, json });
    else waiting.json += json;
  }

  #begin(block: Block): string {
    this.blocks.push(block);
    this.#open = block;
    this.#lead = '';
    const isMarked = block.kind === 'text' && this.#options.sources !== undefined;
    this.#marks = isMarked ? new CitationMarks() : undefined;
    return this.#writer.open(block);
  }

  /** `isLast`: nothing follows, so that an answer that was cut was cut in this block. */
  #closeOpen(isLast = false): string {
    const open = this.#open;
    if (open === undefined) return '';
    let events = '';
    const rest = this.#marks?.finish() ?? '';
    this.#marks = undefined;
    if (rest !== '') events += this.#piece(rest);
    this.#open = undefined;
    const mayBeCut = isLast || (open.kind === 'call' && !isComplete(open));
    return events + this.#writer.close(open, mayBeCut && this.#finish === 'length');
  }

  /** The engine's id where it can stand in any protocol and no other call has it. */
  #safeId(id: string): string {
    const { takenCallIds, newCallId } = this.#options;
    const isUsable = SAFE_CALL_ID.test(id) && !takenCallIds.has(id) && !this.#callIds.has(id);
    const safe = isUsable ? id : newCallId();
    this.#callIds.add(safe);
    return safe;
  }
}

function logprobsOf({ logprobs }: JsonObject): readonly JsonObject[] | undefined {
  const content = isJsonObject(logprobs) ? logprobs['content'] : undefined;
  return Array.isArray(content) ? content.filter(isJsonObject) : undefined;
}

export function jsonContent(text: string): string {
  return JSON.stringify(text).slice(1, -1);
}

/** The text whose JSON string has that content; broken escapes are shown as they stand. */
export function textOfJson(json: string): string {
  try {
    const text: unknown = JSON.parse(`"${json}"`);
    return typeof text === 'string' ? text : json;
  } catch {
    // An engine escaped something that is no escape: its bytes are all there is to show.
    return json;
  }
}

/** Whether a call's arguments are a whole JSON object. */
function isComplete({ json }: CallBlock): boolean {
  const text = textOfJson(json).trimEnd();
  return text.endsWith('}') && parsedJsonObject(text) !== undefined;
}
