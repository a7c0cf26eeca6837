/**
 * The boundary between the chat run and a protocol other than chat completions. Its request becomes
 * a chat request (`wire/chat-request.ts`); its response is written block by block by a
 * `ProtocolWriter`, streaming or not.
 */
import type { Settlement } from '../../billing/ledger/ledger.ts';
import type { Fault } from '../../core/faults.ts';
import type { Queryable } from '../../db/db.ts';
import type { JsonObject } from '../../json/json-scan.ts';
import type { SearchResult } from '../web/web.ts';
import type { PassThrough } from '../upstream/upstream.ts';
import type { ResponseEnd } from '../wire/chat-response.ts';

export interface ResponseProtocol {
  /** The `protocol` tag of receipts and usage records. */
  readonly name: 'responses' | 'messages';
  /**
   * If the balance affords fewer output tokens, the request is rejected with 402. Default: that of
   * the chat.
   */
  readonly leastOutputTokens?: number;
  /** Limit on the searches that the model may request. Default: that of the chat. */
  readonly maxSearches?: number | undefined;
  /** Ids of tool calls in the conversation; an engine's id that equals one of them is replaced. */
  readonly takenCallIds: ReadonlySet<string>;
  readonly newCallId: () => string;
  /** For engines that speak the protocol of the caller. */
  readonly passThrough?: PassThrough | undefined;
  /** Creates the writer of one response, once its request is admitted. */
  writer(frame: WriterFrame): ProtocolWriter;
}

export interface WriterFrame {
  /** 32 hex digits, by which `GET /usage/{id}` finds the receipt. */
  readonly requestId: string;
  readonly model: string;
  readonly createdS: number;
  readonly serviceName: string;
  readonly maxOutputTokens: number;
  /** An estimate until the engine reports its count. */
  readonly promptTokens: number;
}

interface AnyBlock {
  readonly index: number;
  /** Text so far, as content of a JSON string without quotes. */
  json: string;
}

export type TextBlock = AnyBlock & {
  readonly kind: 'text' | 'reasoning';
  /** The entry of `reasoning_details` that the engine requires with its next request. */
  detail?: JsonObject;
};

export type CallBlock = AnyBlock & {
  readonly kind: 'call';
  readonly id: string;
  readonly name: string;
};

export type SearchBlock = AnyBlock & {
  readonly kind: 'search';
  /** `undefined` while the search runs and if it failed. */
  results: readonly SearchResult[] | undefined;
};

/**
 * Reasoning that the caller cannot read, but sends back: the text to seal, which is the engine's
 * signature for the tool call that follows, or an entry of `reasoning_details`.
 */
export type SignatureBlock = AnyBlock & {
  readonly kind: 'signature';
  readonly detail?: JsonObject | undefined;
};

export type Block = TextBlock | CallBlock | SearchBlock | SignatureBlock;

export interface Citation extends SearchResult {
  readonly number: number;
  /** A citation in the form of Anthropic's API, as the engine sent it. */
  readonly own?: JsonObject;
}

/** Part of the text of a block, in UTF-16 units. */
export interface CitedSpan {
  readonly start: number;
  readonly end: number;
}

export interface WrittenEnd extends ResponseEnd {
  readonly finish: string;
  readonly stopReason: unknown;
  readonly blocks: readonly Block[];
}

/**
 * Writes one response. At most one block is open at a time. For a non-streaming response the same
 * methods are called and their return values are dropped.
 */
export interface ProtocolWriter {
  /**
   * The first events of a stream; sent with the engine's response head, or earlier as a keep-alive.
   */
  begin(): string;
  open(block: Block): string;
  /**
   * Writes a piece that the block's text already includes, with the log probabilities of its
   * tokens.
   */
  piece(block: TextBlock | CallBlock, json: string, logprobs?: readonly JsonObject[]): string;
  mark(citation: Citation): string;
  /** Writes the citation of a source for a part of the open block. */
  cite(citation: Citation, span: CitedSpan): string;
  close(block: Block, isCut: boolean): string;
  /** Called after every ten seconds without an event. */
  keepAlive(): string;
  end(end: WrittenEnd): string;
  whole(end: WrittenEnd): Buffer;
  /** The last events of a stream that failed after it began; `end` is set if a charge was made. */
  failed(fault: Fault, end: ResponseEnd | undefined): string;
  /**
   * Writes rows in the transaction of the charge. Called after `end` or `whole`; again after a
   * retry.
   */
  readonly together?: ((tx: Queryable, settlement: Settlement) => Promise<void>) | undefined;
}
