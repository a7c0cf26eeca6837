/**
 * Turns the deltas of a chat into blocks for a `ProtocolWriter`: reasoning, text, tool calls and
 * searches, of which one is open at a time. A non-streaming response is handled as one delta, so
 * that it equals the folded stream.
 *
 * Engines may interleave deltas: an incomplete tool call stays open, and deltas of other blocks are
 * queued behind it. Leading white space is kept back until text follows, and dropped otherwise.
 * Text is the content of a JSON string, passed on as the engine escaped it.
 */
import { parsedJson, parsedJsonObject } from '../../json/json-text.ts';
import { isJsonObject, type JsonObject } from '../../json/json-scan.ts';
import type { SearchResult } from '../web/web.ts';
import {
  argumentsText,
  functionOf,
  functionName,
  type ReasoningDetail,
  reasoningDetails,
  reasoningOf,
  type TextKind,
  toolCallsOf,
} from '../wire/chat-choice.ts';
import type { ResponseEnd } from '../wire/chat-response.ts';
import type {
  Block,
  CallBlock,
  Citation,
  ProtocolWriter,
  ResponseProtocol,
  SearchBlock,
  TextBlock,
  WrittenEnd,
} from './response-protocol.ts';
import { CitationMarks } from './citation-marks.ts';
import { EngineCitations } from './engine-citations.ts';
import { DETAIL_MARK, SIGNATURE_MARK } from './sealed-text.ts';

interface EngineCall {
  id: string;
  name: string;
  /** Gemini rejects the next request without it. */
  readonly signature: string | undefined;
  block: CallBlock | undefined;
}

interface QueuedPiece {
  readonly kind: TextBlock['kind'];
  readonly call: EngineCall | undefined;
  json: string;
}

const SAFE_CALL_ID = /^[A-Za-z0-9_-]{1,64}$/;
const ONLY_SPACE = /^(?:\s|\\[nrt])*$/;

interface ResponseBlocksOptions extends Pick<ResponseProtocol, 'takenCallIds' | 'newCallId'> {
  readonly writer: ProtocolWriter;
  /** The sources that citation marks refer to; `undefined` if no citations were requested. */
  readonly sources: (() => readonly SearchResult[]) | undefined;
}

export class ResponseBlocks {
  readonly blocks: Block[] = [];
  readonly writer: ProtocolWriter;
  readonly #options: ResponseBlocksOptions;
  readonly #callIds = new Set<string>();
  #open: TextBlock | CallBlock | SearchBlock | undefined;
  #calls = new Map<number, EngineCall>();
  #queued: QueuedPiece[] = [];
  /** Leading white space of a block that is not open yet, and its kind. */
  #leadingSpace = '';
  #leadingKind: TextBlock['kind'] = 'text';
  #marks: CitationMarks | undefined;
  #logprobs: readonly JsonObject[] | undefined;
  #finish = 'stop';
  #stopReason: unknown;
  readonly #citations = new EngineCitations();

  constructor(options: ResponseBlocksOptions) {
    this.#options = options;
    this.writer = options.writer;
  }

  /** Adds a piece of text (content of a JSON string); `call` is the index of its tool call. */
  text(kind: TextKind, json: string, call: number): string {
    if (kind === 'tool') {
      const known = this.#calls.get(call);
      return known === undefined ? '' : this.#addArguments(known, json);
    }
    const open = this.#open;
    const wanted = kind === 'content' ? 'text' : kind;
    if (open?.kind === wanted && this.#marks === undefined) {
      open.json += json;
      return this.writer.piece(open, json);
    }
    return this.#addText(wanted, json);
  }

  choice(choice: JsonObject): string {
    const delta = isJsonObject(choice['delta']) ? choice['delta'] : {};
    let events = this.#addReasoning(reasoningOf(delta) ?? '', signedDetails(delta));
    this.#logprobs = logprobsOf(choice);
    for (const text of [delta['content'], delta['refusal']]) {
      if (typeof text === 'string' && text !== '')
        events += this.#addText('text', jsonContent(text));
    }
    this.#logprobs = undefined;
    if (Array.isArray(delta['annotations'])) events += this.#addCitations(delta['annotations']);
    for (const [at, call] of toolCallsOf(delta).entries()) events += this.#addCall(call, at);
    const finish = choice['finish_reason'];
    if (typeof finish !== 'string') return events;
    this.#finish = finish;
    this.#stopReason = choice['stop_reason'];
    return events;
  }

  /**
   * Each signed text is a block of its own. Its text is that of the delta, or was sent before, and
   * then its block is still open.
   */
  #addReasoning(text: string, details: readonly JsonObject[]): string {
    const isInDetails = details.some(isText);
    let events = text === '' || isInDetails ? '' : this.#addText('reasoning', jsonContent(text));
    for (const detail of details) {
      if (this.#isBlocked) break; // no engine signs reasoning within a tool call
      if (isText(detail) && (text !== '' || this.#open?.kind !== 'reasoning')) {
        events += this.#addText('reasoning', jsonContent(argumentsText(detail['text'])));
        if (this.#open?.kind !== 'reasoning') {
          const block = { kind: 'reasoning', index: this.blocks.length, json: '' } as const;
          events += this.#closeBlock() + this.#openBlock(block);
        }
      }
      if (this.#open?.kind === 'reasoning') {
        this.#open.detail = detail;
        events += this.#closeBlock();
      } else events += this.#closeBlock() + this.#addSignature(sealedDetail(detail), detail);
    }
    return events;
  }

  /** Adds a choice of a non-streaming response. */
  message(choice: JsonObject | undefined): void {
    const { message, ...rest } = choice ?? {};
    if (!isJsonObject(message)) return;
    // Some engines send `index: 0` for all calls.
    const tool_calls = toolCallsOf(message).map((call, index) => ({ ...call, index }));
    this.choice({ ...rest, delta: { ...message, tool_calls } });
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
    return this.#closeBlock() + this.#openBlock(block);
  }

  searched(query: string, results: readonly SearchResult[] | undefined): string {
    const events = this.#open?.kind === 'search' ? '' : this.searching(query);
    if (this.#open?.kind !== 'search') return events;
    this.#open.results = results;
    return events + this.#closeBlock();
  }

  end(end: ResponseEnd): string {
    return this.#finishBlocks() + this.writer.end(this.#written(end));
  }

  whole(end: ResponseEnd): Buffer {
    this.#finishBlocks();
    return this.writer.whole(this.#written(end));
  }

  #written(end: ResponseEnd): WrittenEnd {
    const { blocks } = this;
    return { ...end, finish: this.#finish, stopReason: this.#stopReason, blocks };
  }

  /**
   * Closes the open block and shows the queued pieces; an empty completion becomes an empty text
   * block.
   */
  #finishBlocks(): string {
    let events = this.#closeBlock(this.#queued.length === 0);
    const queued = this.#queued;
    this.#queued = [];
    for (const { kind, call, json } of queued) {
      // The engine has ended, so an incomplete call no longer blocks the queue.
      events += this.#closeBlock();
      if (call === undefined) events += this.#addText(kind, json);
      else if (call.name !== '') events += this.#openCall(call, json);
    }
    events += this.#closeBlock(true);
    if (this.blocks.length > 0) return events;
    events += this.#openBlock({ kind: 'text', index: 0, json: '' });
    return events + this.#closeBlock(true);
  }

  get #isBlocked(): boolean {
    return this.#open?.kind === 'call' && !isComplete(this.#open);
  }

  #showQueued(): string {
    let events = '';
    for (let next = this.#queued[0]; next !== undefined; next = this.#queued[0]) {
      const { kind, call, json } = next;
      if (this.#isBlocked || call?.name === '') break;
      this.#queued.shift();
      events += call === undefined ? this.#addText(kind, json) : this.#openCall(call, json);
    }
    return events;
  }

  #addText(kind: TextBlock['kind'], json: string): string {
    let events = this.#queued.length === 0 ? '' : this.#showQueued();
    if (this.#isBlocked) {
      if (!ONLY_SPACE.test(json)) this.#queue(kind, undefined, json);
      return events;
    }
    if (this.#open?.kind !== kind) {
      const text = this.#leadingKind === kind ? this.#leadingSpace + json : json;
      if (ONLY_SPACE.test(text)) {
        this.#leadingSpace = text;
        this.#leadingKind = kind;
        return events;
      }
      events += this.#closeBlock() + this.#openBlock({ kind, index: this.blocks.length, json: '' });
      return events + this.#append(text);
    }
    return events + this.#append(json);
  }

  #append(json: string): string {
    const open = this.#open;
    if (open === undefined || open.kind === 'search' || json === '') return '';
    if (this.#marks === undefined || open.kind !== 'text') {
      open.json += json;
      return this.writer.piece(open, json, open.kind === 'text' ? this.#logprobs : undefined);
    }
    let events = '';
    for (const piece of this.#marks.push(json)) {
      if ('source' in piece) events += this.#cite(open, piece.source);
      else {
        open.json += piece.json;
        events += this.writer.piece(open, piece.json);
      }
    }
    return events;
  }

  #cite(block: TextBlock, number: number): string {
    const source = this.#options.sources?.()[number];
    if (source === undefined) return '';
    const citation: Citation = { ...source, number };
    const text = this.writer.mark(citation);
    const mark = jsonContent(text);
    block.json += mark;
    const shown = mark === '' ? '' : this.writer.piece(block, mark);
    const end = textOfJson(block.json).length;
    return shown + this.writer.cite(citation, { start: end - text.length, end });
  }

  #addCitations(annotations: readonly unknown[]): string {
    const open = this.#open;
    if (open?.kind !== 'text') {
      this.#citations.keep(annotations);
      return '';
    }
    const found = this.#citations.read(annotations, textOfJson(open.json).length);
    return found.map((one) => this.writer.cite(one.citation, one.span)).join('');
  }

  #addCall(piece: JsonObject, at: number): string {
    const index = typeof piece['index'] === 'number' ? piece['index'] : at;
    const json = jsonContent(argumentsText(functionOf(piece)['arguments']));
    const name = functionName(piece) ?? '';
    let call = this.#calls.get(index);
    if (call === undefined) {
      const id = typeof piece['id'] === 'string' ? piece['id'] : '';
      call = { id: this.#safeId(id), name, signature: signatureOf(piece), block: undefined };
      this.#calls.set(index, call);
    } else if (call.name === '') call.name = name;
    return this.#addArguments(call, json);
  }

  #addArguments(call: EngineCall, json: string): string {
    const events = call.block !== undefined ? '' : this.#showQueued();
    if (call.block !== undefined) {
      // Arguments that follow a complete call have no meaning and are dropped.
      if (call.block !== this.#open || json === '') return events;
      call.block.json += json;
      return events + this.writer.piece(call.block, json);
    }
    if (this.#isBlocked || call.name === '') {
      this.#queue('text', call, json);
      return events;
    }
    // An earlier piece may have had no name.
    const at = this.#queued.findIndex((one) => one.call === call);
    const [before] = at === -1 ? [] : this.#queued.splice(at, 1);
    return events + this.#openCall(call, (before?.json ?? '') + json);
  }

  #openCall(call: EngineCall, json: string): string {
    const { id, name, signature } = call;
    const before =
      this.#closeBlock() +
      (signature === undefined ? '' : this.#addSignature(SIGNATURE_MARK + signature));
    call.block = { kind: 'call', index: this.blocks.length, json: '', id, name };
    return before + this.#openBlock(call.block) + this.#append(json);
  }

  #addSignature(sealed: string, detail?: JsonObject): string {
    const index = this.blocks.length;
    const block: Block = { kind: 'signature', index, json: jsonContent(sealed), detail };
    this.blocks.push(block);
    return this.writer.open(block) + this.writer.close(block, false);
  }

  #queue(kind: TextBlock['kind'], call: EngineCall | undefined, json: string): void {
    const queued = this.#queued.findLast((one) => one.kind === kind && one.call === call);
    if (queued === undefined) this.#queued.push({ kind, call, json });
    else queued.json += json;
  }

  #openBlock(block: TextBlock | CallBlock | SearchBlock): string {
    this.blocks.push(block);
    this.#open = block;
    if (block.kind !== 'text' && this.#leadingKind === 'text') {
      this.#citations.passText(textOfJson(this.#leadingSpace).length);
    }
    this.#leadingSpace = '';
    const isMarked = block.kind === 'text' && this.#options.sources !== undefined;
    this.#marks = isMarked ? new CitationMarks() : undefined;
    return this.writer.open(block);
  }

  /** `isLast`: no block follows, so a truncated completion was truncated in this block. */
  #closeBlock(isLast = false): string {
    const open = this.#open;
    if (open === undefined) return '';
    const rest = this.#marks?.finish() ?? '';
    this.#marks = undefined;
    let events = this.#append(rest);
    if (open.kind === 'text') {
      events += this.#addCitations(this.#citations.kept());
      this.#citations.passText(textOfJson(open.json).length);
    }
    this.#open = undefined;
    const mayBeCut = isLast || (open.kind === 'call' && !isComplete(open));
    return events + this.writer.close(open, mayBeCut && this.#finish === 'length');
  }

  /**
   * Returns the engine's id if it is valid in every protocol and unique in the conversation, else a
   * new one.
   */
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

function signatureOf({ extra_content: extra }: JsonObject): string | undefined {
  const google = isJsonObject(extra) ? extra['google'] : undefined;
  const signature = isJsonObject(google) ? google['thought_signature'] : undefined;
  return typeof signature === 'string' && signature !== '' ? signature : undefined;
}

/** Entries of `reasoning_details` that the engine has to receive unchanged. */
function signedDetails(delta: JsonObject): readonly ReasoningDetail[] {
  const details = reasoningDetails(delta);
  if (details.length === 0) return details;
  return details.filter(({ signature, data }) => isFilled(signature) || isFilled(data));
}

function isFilled(value: unknown): boolean {
  return typeof value === 'string' && value !== '';
}

function isText({ type }: JsonObject): boolean {
  return type === 'reasoning.text';
}

function sealedDetail(detail: JsonObject): string {
  return DETAIL_MARK + JSON.stringify(detail);
}

/** The text that callers send back sealed. */
export function sealedReasoning({ json, detail }: TextBlock): string {
  return detail === undefined ? textOfJson(json) : sealedDetail(detail);
}

export function jsonContent(text: string): string {
  return JSON.stringify(text).slice(1, -1);
}

/** The text of that JSON string content; content with invalid escapes is returned unchanged. */
export function textOfJson(json: string): string {
  const text = parsedJson(`"${json}"`);
  return typeof text === 'string' ? text : json;
}

function isComplete({ json }: CallBlock): boolean {
  const text = textOfJson(json).trimEnd();
  return text.endsWith('}') && parsedJsonObject(text) !== undefined;
}
