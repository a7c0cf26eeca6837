/**
 * What the service adds to a chat request before the engine sees it: persona, search results,
 * scraped pages, the text of files, media as data. In two steps around the hold: a plan that costs
 * nothing and names the bounds, and the work, which runs only for callers whose money is set aside.
 */
import type { Documents, MediaSettings } from '../documents/documents.ts';
import type { Clock } from '../core/clock.ts';
import type { Personas } from './personas/personas.ts';
import type { FoundDocument, SearchResult, Web } from './web/web.ts';
import type { ChatMessage } from './wire/chat-schema.ts';
import type { JsonObject } from '../json/json-scan.ts';
import type { AutoSearch } from './auto-search.ts';
import type { PaidFindings } from './paid-findings.ts';
import type { ExtraPrices, ExtraUse } from './extra-uses.ts';

/** What plans are made and carried out with. */
export interface AdditionParts {
  readonly personas: Pick<Personas, 'get'>;
  readonly web: Web;
  readonly documents: Pick<Documents, 'extract'>;
  readonly media: MediaSettings;
  readonly findings: PaidFindings;
  readonly clock: Clock;
  readonly prices: () => ExtraPrices;
  /** Most characters of one file that the model sees. */
  readonly maxFileChars: number;
  /** Whether an engine fetches remote images and videos itself. */
  readonly fetchesMedia: (engineId: string) => boolean;
  readonly socialSearch: () => {
    readonly maxResults: number;
    readonly membersFor: (engineId: string) => JsonObject;
  };
}

/** What a request asks the web for. At most one of the two is not empty. */
export interface WebWish {
  readonly urls: readonly string[];
  /** Empty for no search before the answer. */
  readonly query: string;
}

export interface AdditionsPlan {
  /** Put before the caller's own, in order. */
  readonly systemPrompts: readonly string[];
  /** The most bytes of text that `prepare` adds. */
  readonly textBytesBound: number;
  /** The most that `prepare` uses; searches of `auto` and of the engine are not in it. */
  readonly usesBound: readonly ExtraUse[];
  /** Absent: there is nothing to do. Throws Faults, or the reason of an abort. */
  readonly prepare: (() => Promise<PreparedAdditions>) | undefined;
  /** `enable_web_search: auto`, where the model can be offered the tool. */
  readonly autoSearch: AutoSearch | undefined;
  /** `enable_x_search`: the engine searches by itself. */
  readonly socialSearch: SocialSearch | undefined;
  /** Told when the request is charged; absent where nothing may be found. */
  readonly paid: (() => void) | undefined;
}

export interface SocialSearch {
  /** The most results, as a use of the request. */
  readonly bound: ExtraUse;
  /** Members of the body that switch it on, for an engine. */
  readonly membersFor: (engineId: string) => JsonObject;
}

export interface PreparedAdditions {
  /** Replaces the messages when something in them changed. */
  readonly messages: readonly ChatMessage[] | undefined;
  /** Bytes of text that were added, for the bound on prompt tokens. */
  readonly textBytes: number;
  readonly citations: readonly SearchResult[];
  /** Shown to the caller as a tool call when asked for. */
  readonly documents: readonly FoundDocument[] | undefined;
  readonly uses: readonly ExtraUse[];
}

export const NOTHING_PREPARED: PreparedAdditions = {
  messages: undefined,
  textBytes: 0,
  citations: [],
  documents: undefined,
  uses: [],
};
