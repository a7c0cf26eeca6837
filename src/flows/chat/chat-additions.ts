/**
 * What the service adds to a chat request before the engine sees it (persona, search results,
 * scraped pages, extracted files), and what that costs. Made in `additionsFor`, priced with the
 * request, settled with the request.
 */
import { type Nano, ZERO } from '../../kernel/money.ts';
import type { ChatMessage, ChatTool } from '../../wire/chat-schema.ts';
import type { SearchDocument } from '../../wire/search-documents.ts';
import type { WebSearchCitation } from '../../wire/svc-parameters.ts';

export interface ChatAdditions {
  /** Put before the caller's own, in order. */
  readonly systemPrompts: readonly string[];
  /** Replaces the messages when something in them changed. */
  readonly messages: readonly ChatMessage[] | undefined;
  readonly extraTools: readonly ChatTool[];
  /** Bytes of text that were added, for the bound on prompt tokens. */
  readonly textBytes: number;
  readonly citations: readonly WebSearchCitation[];
  /** Shown to the caller as a tool call when asked for. */
  readonly documents: readonly SearchDocument[] | undefined;
  readonly surchargeBoundNano: Nano;
  /** What was really used; known when the engine is called. */
  readonly surchargeNano: Nano;
  /** For the receipt. */
  readonly extras: Readonly<Record<string, unknown>>;
}

export const NO_ADDITIONS: ChatAdditions = {
  systemPrompts: [],
  messages: undefined,
  extraTools: [],
  textBytes: 0,
  citations: [],
  documents: undefined,
  surchargeBoundNano: ZERO,
  surchargeNano: ZERO,
  extras: {},
};
