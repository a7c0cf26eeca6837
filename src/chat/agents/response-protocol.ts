/**
 * How another protocol than chat completions says a chat: what its translation hands to the one chat
 * run. The request comes as a chat request (`wire/chat-request.ts`); the answer leaves through an
 * `ProtocolWriter`, block by block, whole or as a stream. Knows no protocol itself.
 */
import type { Settlement } from '../../billing/ledger/ledger.ts';
import type { Fault } from '../../core/faults.ts';
import type { Queryable } from '../../db/db.ts';
import type { JsonObject } from '../../json/json-scan.ts';
import type { SearchResult } from '../web/web.ts';
import type { ResponseEnd } from '../wire/chat-response.ts';

export interface ResponseProtocol {
  /** What receipts and usage records call it, as a tag. */
  readonly name: 'responses' | 'messages';
  /** Less output than these tokens is not worth running: 402 instead. Default: the chat's. */
  readonly leastOutputTokens?: number;
  /** The most searches of our own that the model may ask for. Default: the chat's. */
  readonly maxSearches?: number | undefined;
  /** Ids of calls in the conversation: an engine's that is among them gets a new one. */
  readonly takenCallIds: ReadonlySet<string>;
  readonly newCallId: () => string;
  /** The writer of one answer, made when its request is admitted. */
  writer(frame: WriterFrame): ProtocolWriter;
}

export interface WriterFrame {
  /** 32 hex digits: the receipt is found by them. */
  readonly requestId: string;
  readonly model: string;
  readonly createdS: number;
  readonly serviceName: string;
  /** What a call of the engine may say at most. */
  readonly maxOutputTokens: number;
  /** Tokens of the prompt by our own count, before the engine says. */
  readonly promptTokens: number;
}

interface AnyBlock {
  readonly index: number;
  /** The text so far as content of a JSON string, without its quotes. */
  json: string;
}

export type TextBlock = AnyBlock & { readonly kind: 'text' | 'reasoning' };

export type CallBlock = AnyBlock & {
  readonly kind: 'call';
  /** Safe and unique in the conversation. */
  readonly id: string;
  readonly name: string;
};

export type SearchBlock = AnyBlock & {
  readonly kind: 'search';
  /** `undefined` while it runs, and when it failed. */
  results: readonly SearchResult[] | undefined;
};

export type Block = TextBlock | CallBlock | SearchBlock;

export interface Citation extends SearchResult {
  readonly number: number;
}

export interface WrittenEnd extends ResponseEnd {
  /** `stop`, `length`, `tool_calls`, `content_filter`. */
  readonly finish: string;
  /** What the engine says of its end beside that: mostly the stop sequence. */
  readonly stopReason: unknown;
  readonly blocks: readonly Block[];
}

/**
 * Writes one answer. Blocks come one after the other and at most one is open. For a whole answer
 * `open`, `piece`, `cite` and `close` are called as for a stream and what they give is dropped.
 */
export interface ProtocolWriter {
  /** What a stream begins with: it leaves with the engine's head, or after a silence before it. */
  begin(): string;
  open(block: Block): string;
  /** A further piece of the block's text, which has it already; and how likely its tokens were. */
  piece(block: TextBlock | CallBlock, json: string, logprobs?: readonly JsonObject[]): string;
  /** What stands in the text for a source, which comes behind all that the block has by now. */
  mark(citation: Citation): string;
  /** The source whose mark the block's text ends with now. */
  cite(block: TextBlock, citation: Citation, markJson: string): string;
  /** `isCut`: the answer ended inside of it. */
  close(block: Block, isCut: boolean): string;
  /** Every ten seconds of silence. */
  keepAlive(): string;
  end(end: WrittenEnd): string;
  whole(end: WrittenEnd): Buffer;
  /** What a stream ends with that failed after its begin; `end` when something was charged. */
  failed(fault: Fault, end: ResponseEnd | undefined): string;
  /** Rows that exist exactly when the charge does; follows `end` or `whole`, maybe twice. */
  readonly together?: ((tx: Queryable, settlement: Settlement) => Promise<void>) | undefined;
}
