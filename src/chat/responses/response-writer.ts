/**
 * Writes a completion in the Responses protocol: the response object and the events of its stream.
 *
 * Items are serialized once, so that `output_item.done` and `output` are identical. Constant
 * members of the response are serialized once too: a stream contains them three times, and an
 * agent's tools are tens of kilobytes. The text of a block already is the content of a JSON string.
 */
import { jsonObjects, parsedJsonObject, stringOrEmpty } from '../../json/json-text.ts';
import type { Settlement } from '../../billing/ledger/ledger.ts';
import type { Fault } from '../../core/faults.ts';
import type { Queryable } from '../../db/db.ts';
import type { JsonObject } from '../../json/json-scan.ts';
import { jsonContent, sealedReasoning, textOfJson } from '../agents/response-blocks.ts';
import type {
  ProtocolWriter,
  Block,
  CallBlock,
  Citation,
  CitedSpan,
  SearchBlock,
  TextBlock,
  WriterFrame,
  WrittenEnd,
} from '../agents/response-protocol.ts';
import { responsesUsage } from '../upstream/responses/passed-response.ts';
import type { ResponsePass } from '../upstream/responses/response-pass.ts';
import { costMembers, type ResponseEnd } from '../wire/chat-response.ts';
import { failureCode } from './response-errors.ts';
import type { ResponsesBody } from './request-schema.ts';
import type { DeclaredTool } from './tools.ts';
import { responseIdOf, type Turn } from './turn.ts';

/** Every sixth keep-alive is an event, because Codex ignores comments. */
const COMMENTS_AN_EVENT = 6;
const COMMENT = ': keep-alive\n\n';

export interface TurnKeeper {
  readonly fits: (responseJson: string) => boolean;
  readonly keep: (
    tx: Queryable,
    kept: { readonly responseJson: string; readonly status: string; readonly costNano: bigint },
  ) => Promise<void>;
}

export interface ResponseWriterOptions {
  readonly turn: Omit<Turn, 'passed'>;
  readonly frame: WriterFrame;
  readonly keeper: TurnKeeper | undefined;
  /** If the response of the engine is passed on. */
  readonly pass?: ResponsePass | undefined;
  readonly seal: (text: string) => string;
  /** Whether the caller requested encrypted reasoning. */
  readonly isSealed: boolean;
  readonly nowS: () => number;
}

interface ResponseState {
  readonly status: 'in_progress' | 'completed' | 'incomplete' | 'failed';
  readonly completedS?: number;
  readonly error?: { readonly code: string; readonly message: string };
  readonly incomplete?: string | undefined;
  readonly end?: ResponseEnd | undefined;
  readonly isStored: boolean;
}

const ID_PREFIXES = {
  text: 'msg',
  reasoning: 'rs',
  signature: 'rs',
  call: 'fc',
  search: 'ws',
} as const;
const CUSTOM_PREFIX = 'ctc';
/** A message has one part of content, and reasoning one part of summary. */
const CONTENT_INDEX = ',"content_index":0';
const SUMMARY_INDEX = ',"summary_index":0';

export class ResponseWriter implements ProtocolWriter {
  readonly #options: ResponseWriterOptions;
  readonly #fixed: string;
  readonly #items: string[] = [];
  #sequence = 0;
  #hasBegun = false;
  #keepAlives = 0;
  /**
   * State of the open block: the id of its item, the members that identify it, and the text around
   * its chunks.
   */
  #itemId = '';
  #itemMembers = '';
  #pieceHead = '';
  #pieceMiddle = '';
  #pieceTail = '';
  #annotations: string[] = [];
  #logprobs: string[] = [];
  /** Set once the response is complete and small enough to be stored. */
  #kept: { readonly responseJson: string; readonly status: string } | undefined;
  readonly together: ProtocolWriter['together'];

  constructor(options: ResponseWriterOptions) {
    this.#options = options;
    this.#fixed = JSON.stringify(fixedMembers(options)).slice(1, -1);
    this.together = options.keeper && ((...of) => this.#keep(...of));
  }

  begin(): string {
    this.#hasBegun = true;
    const response = `"response":${this.#startedResponse()}`;
    return this.#event('created', response) + this.#event('in_progress', response);
  }

  open(block: Block): string {
    this.#annotations = [];
    this.#logprobs = [];
    const tool = block.kind === 'call' ? this.#toolOf(block) : undefined;
    const prefix = tool?.kind === 'custom' ? CUSTOM_PREFIX : ID_PREFIXES[block.kind];
    this.#itemId = `${prefix}_${this.#options.frame.requestId}_${block.index}`;
    this.#itemMembers = `"item_id":"${this.#itemId}","output_index":${block.index}`;
    const item = this.#itemOf(block, 'in_progress', '');
    const added = this.#event('output_item.added', `"output_index":${block.index},"item":${item}`);
    switch (block.kind) {
      case 'text':
        this.#setPieces('output_text.delta', CONTENT_INDEX, ',"logprobs":[]');
        return added + this.#partEvent('content_part.added', textPartJson('', '', ''));
      case 'reasoning':
        this.#setPieces('reasoning_summary_text.delta', SUMMARY_INDEX, '');
        return added + this.#summaryEvent('reasoning_summary_part.added', summaryJson(''));
      case 'call':
        this.#setPieces('function_call_arguments.delta', '', '');
        return added;
      case 'signature':
        return added;
      case 'search':
        return (
          added +
          this.#itemEvent('web_search_call.in_progress') +
          this.#itemEvent('web_search_call.searching')
        );
    }
  }

  piece(block: TextBlock | CallBlock, json: string, given?: readonly JsonObject[]): string {
    // The input of a custom tool is a string inside the arguments: it is sent once they are complete.
    if (block.kind === 'call' && this.#toolOf(block)?.kind === 'custom') return '';
    const number = this.#sequence;
    this.#sequence = number + 1;
    const piece = `${this.#pieceHead}${number}${this.#pieceMiddle}${json}`;
    if (given === undefined) return piece + this.#pieceTail;
    const logprobs = given.map(logprobJson);
    this.#logprobs.push(...logprobs);
    return `${piece}","logprobs":[${logprobs.join()}]}\n\n`;
  }

  mark({ number }: Citation): string {
    return `[${number + 1}]`;
  }

  cite({ own, url, title }: Citation, { start: start_index, end: end_index }: CitedSpan): string {
    if (own !== undefined) return '';
    const annotation = JSON.stringify({ type: 'url_citation', url, title, start_index, end_index });
    const index = this.#annotations.push(annotation) - 1;
    return this.#itemEvent(
      'output_text.annotation.added',
      `${CONTENT_INDEX},"annotation_index":${index},"annotation":${annotation}`,
    );
  }

  close(block: Block, isCut: boolean): string {
    const json = sound(block.json);
    const item = this.#itemOf(block, isCut ? 'incomplete' : 'completed', json);
    this.#items.push(item);
    const events = this.#endOf(block, json);
    const done = `"output_index":${block.index},"item":${item}`;
    return events + this.#event('output_item.done', done);
  }

  #endOf(block: Block, json: string): string {
    switch (block.kind) {
      case 'text': {
        const logprobs = this.#logprobs.join();
        const part = textPartJson(json, this.#annotations.join(), logprobs);
        const text = `${CONTENT_INDEX},"text":"${json}","logprobs":[${logprobs}]`;
        return (
          this.#itemEvent('output_text.done', text) + this.#partEvent('content_part.done', part)
        );
      }
      case 'reasoning':
        return (
          this.#itemEvent('reasoning_summary_text.done', `${SUMMARY_INDEX},"text":"${json}"`) +
          this.#summaryEvent('reasoning_summary_part.done', summaryJson(json))
        );
      case 'call': {
        const tool = this.#toolOf(block);
        if (tool?.kind !== 'custom') {
          const name = JSON.stringify(tool?.name ?? block.name);
          const call = `,"name":${name},"arguments":"${json}"`;
          return this.#itemEvent('function_call_arguments.done', call);
        }
        const input = JSON.stringify(customInput(json));
        return (
          this.#itemEvent('custom_tool_call_input.delta', `,"delta":${input}`) +
          this.#itemEvent('custom_tool_call_input.done', `,"input":${input}`)
        );
      }
      case 'signature':
        return '';
      case 'search':
        return block.results === undefined ? '' : this.#itemEvent('web_search_call.completed');
    }
  }

  keepAlive(): string {
    this.#keepAlives += 1;
    // The first event may be one of the engine.
    if (this.#options.pass !== undefined && !this.#hasBegun) return COMMENT;
    if (this.#keepAlives % COMMENTS_AN_EVENT !== 0) return COMMENT;
    return this.#event('in_progress', `"response":${this.#startedResponse()}`);
  }

  end(end: WrittenEnd): string {
    const { status, json } = this.#finished(end);
    return this.#event(status, `"response":${json}`);
  }

  whole(end: WrittenEnd): Buffer {
    return Buffer.from(this.#finished(end).json);
  }

  failed(fault: Fault, end: ResponseEnd | undefined): string {
    const error = { code: failureCode(fault), message: fault.message };
    const passed = this.#options.pass?.failed(error, end);
    if (passed !== undefined) return passed;
    const response = this.#response({ status: 'failed', error, end, isStored: false });
    return this.#event('failed', `"response":${response}`);
  }

  #finished(end: WrittenEnd): { readonly status: string; readonly json: string } {
    const incomplete = INCOMPLETE_REASONS.get(end.finish);
    const status = incomplete === undefined ? 'completed' : 'incomplete';
    const completedS = this.#options.nowS();
    const state = { status, completedS, incomplete, end } as const;
    const { keeper } = this.#options;
    const responseJson = this.#response({ ...state, isStored: keeper !== undefined });
    this.#kept = undefined;
    if (keeper === undefined) return { status, json: responseJson };
    if (!keeper.fits(responseJson)) {
      return { status, json: this.#response({ ...state, isStored: false }) };
    }
    this.#kept = { responseJson, status };
    return { status, json: responseJson };
  }

  async #keep(tx: Queryable, { usdNano, diemNano }: Settlement): Promise<void> {
    const { keeper, pass } = this.#options;
    const kept = pass?.finished ?? this.#kept;
    if (kept === undefined || keeper?.fits(kept.responseJson) !== true) return;
    await keeper.keep(tx, { ...kept, costNano: usdNano + diemNano });
  }

  #startedResponse(): string {
    const isStored = this.#options.keeper !== undefined;
    return this.#response({ status: 'in_progress', isStored });
  }

  #response(state: ResponseState): string {
    const { status, completedS, error, incomplete, end, isStored } = state;
    const members = {
      status,
      completed_at: completedS ?? null,
      error: error ?? null,
      incomplete_details: incomplete === undefined ? null : { reason: incomplete },
      store: isStored,
      usage: end === undefined ? null : responsesUsage(end.usage),
    };
    const { serviceName } = this.#options.frame;
    const echo = end === undefined ? {} : costMembers(serviceName, end);
    const changing = JSON.stringify({ ...members, ...echo }).slice(1, -1);
    return `{${this.#fixed},${changing},"output":[${this.#items.join()}]}`;
  }

  #event(name: string, members: string): string {
    const number = this.#sequence;
    this.#sequence = number + 1;
    return `${eventHead(name)}${number},${members}}\n\n`;
  }

  /** An event of the open item; `more` begins with a comma. */
  #itemEvent(name: string, more = ''): string {
    return this.#event(name, this.#itemMembers + more);
  }

  #partEvent(name: string, part: string): string {
    return this.#itemEvent(name, `${CONTENT_INDEX},"part":${part}`);
  }

  #summaryEvent(name: string, part: string): string {
    return this.#itemEvent(name, `${SUMMARY_INDEX},"part":${part}`);
  }

  #setPieces(name: string, index: string, after: string): void {
    this.#pieceHead = eventHead(name);
    this.#pieceMiddle = `,${this.#itemMembers}${index},"delta":"`;
    this.#pieceTail = `"${after}}\n\n`;
  }

  #itemOf(block: Block, status: string, json: string): string {
    const head = `{"id":"${this.#itemId}"`;
    switch (block.kind) {
      case 'text': {
        const isNew = status === 'in_progress';
        const annotations = this.#annotations.join();
        const content = isNew ? '' : textPartJson(json, annotations, this.#logprobs.join());
        return `${head},"type":"message","status":"${status}","role":"assistant","content":[${content}]}`;
      }
      case 'reasoning': {
        if (status === 'in_progress') return `${head},"type":"reasoning","summary":[]}`;
        const isSealed = this.#options.isSealed || block.detail !== undefined;
        const encrypted = isSealed ? this.#encrypted(sealedReasoning(block)) : '';
        return `${head},"type":"reasoning","summary":[${summaryJson(json)}]${encrypted}}`;
      }
      case 'signature': {
        const isNew = status === 'in_progress';
        const encrypted = isNew ? '' : this.#encrypted(textOfJson(json));
        return `${head},"type":"reasoning","summary":[]${encrypted}}`;
      }
      case 'call':
        return head + this.#callMembers(block, status, json);
      case 'search':
        return head + searchMembers(block, status);
    }
  }

  #encrypted(text: string): string {
    return `,"encrypted_content":"${this.#options.seal(text)}"`;
  }

  #callMembers(block: CallBlock, status: string, json: string): string {
    const tool = this.#toolOf(block);
    const { name = block.name, namespace } = tool ?? {};
    const names = { call_id: block.id, name, ...(namespace === undefined ? {} : { namespace }) };
    const named = JSON.stringify(names).slice(1, -1);
    if (tool?.kind !== 'custom') {
      return `,"type":"function_call","status":"${status}",${named},"arguments":"${json}"}`;
    }
    const input = JSON.stringify(json === '' ? '' : customInput(json));
    return `,"type":"custom_tool_call","status":"${status}",${named},"input":${input}}`;
  }

  #toolOf({ name }: CallBlock): DeclaredTool | undefined {
    return this.#options.turn.tools.declared.get(name);
  }
}

const INCOMPLETE_REASONS: ReadonlyMap<string, string> = new Map([
  ['length', 'max_output_tokens'],
  ['content_filter', 'content_filter'],
]);

function eventHead(name: string): string {
  return `event: response.${name}\ndata: {"type":"response.${name}","sequence_number":`;
}

/** Valid JSON string content, whatever an engine has escaped. */
function sound(json: string): string {
  return jsonContent(textOfJson(json));
}

function textPartJson(json: string, annotations: string, logprobs: string): string {
  return `{"type":"output_text","text":"${json}","annotations":[${annotations}],"logprobs":[${logprobs}]}`;
}

function logprobJson(given: JsonObject): string {
  const top_logprobs = jsonObjects(given['top_logprobs']).map(tokenOf);
  return JSON.stringify({ ...tokenOf(given), top_logprobs });
}

function tokenOf({ token, logprob, bytes }: JsonObject) {
  const known = typeof logprob === 'number' ? logprob : 0;
  return { token: stringOrEmpty(token), logprob: known, bytes: Array.isArray(bytes) ? bytes : [] };
}

function summaryJson(json: string): string {
  return `{"type":"summary_text","text":"${json}"}`;
}

/** The text for a custom tool; models sometimes omit the wrapping object. */
function customInput(json: string): string {
  const text = textOfJson(json);
  const input = parsedJsonObject(text)?.['input'];
  return typeof input === 'string' ? input : text;
}

function searchMembers({ json, results }: SearchBlock, status: string): string {
  const hasFailed = status !== 'in_progress' && results === undefined;
  const sources = (results ?? []).map(({ url }) => ({ type: 'url', url }));
  const action = JSON.stringify({ type: 'search', query: textOfJson(json), sources });
  const shown = hasFailed ? 'failed' : status;
  return `,"type":"web_search_call","status":"${shown}","action":${action}}`;
}

export function fixedMembers({
  turn,
  frame,
}: {
  readonly turn: ResponseWriterOptions['turn'];
  readonly frame: Pick<WriterFrame, 'requestId' | 'model' | 'createdS'>;
}) {
  const { body, tools } = turn;
  return {
    id: responseIdOf(frame.requestId),
    object: 'response',
    created_at: frame.createdS,
    model: frame.model,
    instructions: body.instructions ?? null,
    previous_response_id: body.previous_response_id ?? null,
    max_output_tokens: body.max_output_tokens ?? null,
    max_tool_calls: body.max_tool_calls ?? null,
    parallel_tool_calls: body.parallel_tool_calls ?? true,
    tools: tools.echo.tools,
    tool_choice: tools.echo.choice,
    temperature: body.temperature ?? 1,
    top_p: body.top_p ?? 1,
    presence_penalty: body.presence_penalty ?? 0,
    frequency_penalty: body.frequency_penalty ?? 0,
    top_logprobs: body.top_logprobs ?? 0,
    text: textOf(body),
    reasoning: { effort: body.reasoning?.effort ?? null, summary: body.reasoning?.summary ?? null },
    truncation: body.truncation ?? 'disabled',
    metadata: body.metadata ?? {},
    prompt_cache_key: body.prompt_cache_key ?? null,
    safety_identifier: body.safety_identifier ?? null,
    service_tier: body.service_tier ?? 'default',
    user: typeof body['user'] === 'string' ? body['user'] : null,
    background: false,
  };
}

function textOf({ text }: ResponsesBody) {
  const verbosity = text?.verbosity ? { verbosity: text.verbosity } : {};
  return { format: text?.format ?? { type: 'text' }, ...verbosity };
}
