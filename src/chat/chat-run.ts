/**
 * What a chat request is on its way: the call, where its answer goes, the parts that serve it, and
 * the admitted run that both answer modes share. Values and shapes only; `chat.ts` is the verb.
 */
import type { Catalog, CatalogModel, DeprecationNotice, Price } from '../catalog/catalog.ts';
import type { Engines } from '../engines/engines.ts';
import type { Caller } from '../identity/identity.ts';
import type { Clock } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import type { Log } from '../core/log.ts';
import { type Nano, ZERO, maxNano, minNano } from '../core/money.ts';
import type { ChatRequest } from './wire/chat-request.ts';
import type { EngineDialect } from './wire/engine-request.ts';
import type { AnswerFacts } from '../http/answer-facts.ts';
import type { AnswerKeeper, RateRule, Sale, Sales, SoldAnswer } from '../billing/sale.ts';
import type { AdditionsPlan } from './chat-additions.ts';
import type { ChatRounds } from './chat-rounds.ts';

/** Where an answer goes. */
export interface ChatReceiver {
  /** What is known before the answer, for the headers of a refusal as well. */
  resolved(model: CatalogModel, deprecation: DeprecationNotice | undefined): void;
  admitted(admission: Sale, rate: RateRule): void;
  /** Set when the answer is kept for retries. */
  readonly keeper: AnswerKeeper | undefined;
  /** Everything that a stream has sent, with its end. */
  sent(lastChunk: Buffer): SoldAnswer;
  /** Headers of a stream; called once, before the first `write`. */
  begin(head: AnswerFacts): void;
  /** `false` when the caller reads slower than the engine writes; `onDrain` says when to go on. */
  write(chunk: Buffer): boolean;
  onDrain(resume: () => void): void;
  /** The end of a stream. */
  end(lastChunk: Buffer): void;
  /** The headers of a whole answer, which `whole` then sends. */
  answered(head: AnswerFacts, body: Buffer): WholeAnswer;
  whole(answer: WholeAnswer): Promise<void>;
}

export interface WholeAnswer extends SoldAnswer {
  readonly body: Buffer;
}

export interface ChatCall {
  readonly requestId: string;
  readonly caller: Caller;
  readonly request: ChatRequest;
  readonly signal: AbortSignal;
  readonly receiver: ChatReceiver;
  /** For the log line: what the flow learned. */
  readonly note: (notes: ChatNotes) => void;
}

export interface ChatNotes {
  readonly model?: string;
  readonly replica?: string;
  readonly costUsd?: string;
  readonly promptTokens?: number;
  readonly completionTokens?: number;
  readonly firstTokenMs?: number;
}

export interface ChatParts {
  readonly catalog: Catalog;
  readonly engines: Engines;
  readonly sales: Sales;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly serviceName: string;
  /** The service's own system prompt; empty for none. */
  readonly systemPrompt: () => string;
  readonly rateOf: (caller: Caller, model: CatalogModel) => RateRule;
  readonly dialectOf: (engineId: string) => EngineDialect;
  /** Whether this server can search the web. */
  readonly canSearch: boolean;
  /** Persona, search, scraping, files: what is added to a request, and what it costs at most. */
  readonly planAdditions: (
    call: ChatCall,
    request: ChatRequest,
    model: CatalogModel,
  ) => AdditionsPlan;
}

/** A request that may run, before its money is set aside. */
export interface ChatWish {
  readonly parts: ChatParts;
  readonly call: ChatCall;
  /** As the model takes it. */
  readonly request: ChatRequest;
  readonly model: CatalogModel;
  readonly deprecation: DeprecationNotice | undefined;
  readonly price: Price;
  readonly additions: AdditionsPlan;
  readonly systemPrompt: string | undefined;
}

/** One admitted request on its way: what both answer modes share. */
export interface ChatRun extends ChatWish {
  readonly rate: RateRule;
  readonly admission: Sale;
  /** The engine calls, whose first is planned. */
  readonly rounds: ChatRounds;
}

/** What a stream's headers can say of the balance: posted USD minus this request's hold. */
export function remainingDuring(run: ChatRun): Nano {
  const { before, grantedNano } = run.admission.hold;
  const fromUsd = maxNano(ZERO, minNano(grantedNano, before.usdNano));
  return maxNano(ZERO, (before.usdNano - fromUsd) as Nano); // both are nano-USD
}
