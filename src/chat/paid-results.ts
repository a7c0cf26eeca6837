/**
 * Keeps paid search results and pages for the tool loop of a user message: a request that sends the
 * message again with tool results reuses them without another charge. They are kept in the memory
 * of the process, after the charge, for tool loops only.
 */
import { type Clock, MINUTE_MS } from '../core/clock.ts';
import { sha256Hex } from '../core/ids.ts';
import type { ScrapedPage, SearchResult } from './web/web.ts';
import type { ChatMessage } from './wire/chat-schema.ts';
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

const KEPT_MS = 10 * MINUTE_MS;
/** Limits one account, so that it cannot evict the results of others. */
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

  known(query: string): Found | undefined {
    const key = this.#keyOf(query);
    return this.#own.get(key) ?? (this.#isLoop ? this.#all.get(key) : undefined);
  }

  found(query: string, found: Found): void {
    this.#own.set(this.#keyOf(query), found);
  }

  paid(): void {
    for (const [key, found] of this.#own) this.#all.keep(key, this.#account, found);
  }

  #keyOf(query: string): string {
    const normal = query.trim().replaceAll(/\s+/g, ' ').toLowerCase();
    return sha256Hex(JSON.stringify([this.#account, this.#text, normal]));
  }
}
