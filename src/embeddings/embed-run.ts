/**
 * What an embeddings request is on its way: the call, the parts that serve it, the admitted run and
 * its answer. Shapes only; `embed.ts` is the verb.
 */
import type { Catalog, CatalogModel, DeprecationNotice, Price } from '../catalog/catalog.ts';
import type { Tokenizer } from '../documents/documents.ts';
import type { Engines } from '../engines/engines.ts';
import type { Caller } from '../identity/identity.ts';
import type { Clock } from '../core/clock.ts';
import type { Log } from '../core/log.ts';
import type { Nano } from '../core/money.ts';
import type { EmbeddingsRequest } from './embeddings-request.ts';
import type { AnswerKeeper, RateRule, Sale, Sales, SoldAnswer } from '../billing/sale.ts';

export interface EmbedParts {
  readonly catalog: Catalog;
  readonly engines: Engines;
  readonly sales: Sales;
  readonly clock: Clock;
  readonly log: Log;
  readonly tokenizer: Tokenizer;
  readonly rateOf: (caller: Caller, model: CatalogModel) => RateRule;
}

export interface EmbedCall {
  readonly requestId: string;
  readonly caller: Caller;
  readonly request: EmbeddingsRequest;
  readonly signal: AbortSignal;
  /** What is known before the answer, for the headers of a refusal as well. */
  readonly resolved: (model: CatalogModel, deprecation: DeprecationNotice | undefined) => void;
  readonly admitted: (admission: Sale, rate: RateRule) => void;
  /** Set when the answer is kept for retries. */
  readonly keeper: AnswerKeeper | undefined;
  /** Makes the headers and the bytes of the answer. */
  readonly answer: (facts: EmbedFacts) => SoldEmbeddings;
}

/** One admitted request on its way. */
export interface EmbedRun {
  readonly parts: EmbedParts;
  readonly call: EmbedCall;
  readonly model: CatalogModel;
  readonly price: Price;
  readonly rate: RateRule;
  readonly deprecation: DeprecationNotice | undefined;
  readonly admission: Sale;
  /** The most tokens that the hold covers. */
  readonly tokensBound: number;
}

export interface EmbedFacts extends Omit<EmbedRun, 'parts' | 'call'> {
  readonly replica: string | undefined;
  readonly attempts: number;
  readonly remainingNano: Nano;
  /** In pieces. */
  readonly body: readonly Buffer[];
  readonly promptTokens: number;
  readonly costUsd: string;
}

export interface SoldEmbeddings extends SoldAnswer {
  readonly body: Buffer;
}
