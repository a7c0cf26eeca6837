/**
 * What searches and pages found for a user message and were paid for, kept for the tool loop over
 * it: a caller that sends the message again with the results of its own tools gets them again, not
 * billed again. In the memory of this process and bounded; what is forgotten is searched anew.
 *
 * Only a request that continues a tool loop is given them: a question that is asked anew is
 * searched anew. Results are kept once their request is charged.
 */
import { type Clock, MINUTE_MS } from '../core/clock.ts';
import { sha256Hex } from '../core/ids.ts';
import type { ScrapedPage, SearchResult } from './web/web.ts';
import type { ChatMessage } from './wire/chat-message.ts';
import { userText } from './message-content.ts';

export interface Found {
  readonly results?: readonly SearchResult[];
  readonly pages?: readonly ScrapedPage[];
}

interface Kept {
  readonly account: string;
  readonly found: Found;
  readonly sizeBytes: number;
  readonly untilMs: number;
}

/** A tool loop that pauses longer is a new question. */
const KEPT_MS = 10 * MINUTE_MS;
/** One account cannot push out what others paid for: its own oldest goes first. */
const MAX_OF_ACCOUNT = 16;
const MAX_KEPT = 1_000;
const MAX_BYTES = 32 * 1024 * 1024;

export class PaidResults {
  readonly #clock: Clock;
  readonly #kept = new Map<string, Kept>();
  #sizeBytes = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  of(account: string, messages: readonly ChatMessage[]): MessageResults {
    return new MessageResults(this, account, messages);
  }

  get(key: string): Found | undefined {
    const kept = this.#kept.get(key);
    return kept === undefined || kept.untilMs < this.#clock.monotonicMs() ? undefined : kept.found;
  }

  keep(key: string, account: string, found: Found): void {
    const sizeBytes = Buffer.byteLength(JSON.stringify(found));
    this.#forget(key);
    this.#kept.set(key, {
      account,
      found,
      sizeBytes,
      untilMs: this.#clock.monotonicMs() + KEPT_MS,
    });
    this.#sizeBytes += sizeBytes;
    const own = [...this.#kept].filter(([, one]) => one.account === account);
    for (const [oldest] of own.slice(0, -MAX_OF_ACCOUNT)) this.#forget(oldest);
    for (const oldest of this.#kept.keys()) {
      if (this.#kept.size <= MAX_KEPT && this.#sizeBytes <= MAX_BYTES) break;
      this.#forget(oldest);
    }
  }

  #forget(key: string): void {
    this.#sizeBytes -= this.#kept.get(key)?.sizeBytes ?? 0;
    this.#kept.delete(key);
  }
}

/** The results of one request: what its loop has paid for, and what it finds itself. */
export class MessageResults {
  readonly #all: PaidResults;
  readonly #account: string;
  readonly #text: string;
  readonly #isLoop: boolean;
  readonly #own = new Map<string, Found>();

  constructor(all: PaidResults, account: string, messages: readonly ChatMessage[]) {
    this.#all = all;
    this.#account = account;
    this.#text = userText(messages);
    const at = messages.findLastIndex((message) => message.role === 'user');
    this.#isLoop = messages.slice(at + 1).some((message) => message.role === 'tool');
  }

  /** What the query gave and was paid for, or is about to be with this request. */
  known(query: string): Found | undefined {
    const key = this.#keyOf(query);
    return this.#own.get(key) ?? (this.#isLoop ? this.#all.get(key) : undefined);
  }

  found(query: string, found: Found): void {
    this.#own.set(this.#keyOf(query), found);
  }

  /** The request is charged: what it found is there for the rest of the loop. */
  paid(): void {
    for (const [key, found] of this.#own) this.#all.keep(key, this.#account, found);
  }

  #keyOf(query: string): string {
    const normal = query.trim().replaceAll(/\s+/g, ' ').toLowerCase();
    return sha256Hex(JSON.stringify([this.#account, this.#text, normal]));
  }
}
