/** What an embeddings request is on its way: the parts that serve it, and the admitted run. */
import type { RateRule, Sale, Sales } from '../billing/sale.ts';
import type { Catalog, CatalogModel, DeprecationNotice, Price } from '../catalog/catalog.ts';
import type { Clock } from '../core/clock.ts';
import type { Tokenizer } from '../documents/documents.ts';
import type { Engines } from '../engines/engines.ts';
import type { ReplicaSet } from '../engines/replica-set.ts';
import type { AnswerHeaders } from '../http/answer-headers.ts';
import type { RequestContext } from '../http/request-context.ts';
import type { Caller } from '../identity/identity.ts';
import type { EmbeddingsRequest } from './embeddings-request.ts';

export interface EmbeddingsParts {
  readonly catalog: Catalog;
  readonly engines: Engines;
  readonly sales: Sales;
  readonly clock: Clock;
  readonly headers: AnswerHeaders;
  readonly tokenizer: Tokenizer;
  /** Replicas that refused base64 and gave floats. */
  readonly floatReplicas: ReplicaSet;
  readonly rateOf: (caller: Caller, model: CatalogModel) => RateRule;
}

/** One admitted request on its way. */
export interface EmbedRun {
  readonly parts: EmbeddingsParts;
  readonly context: RequestContext;
  /** Aborts when nobody will ask for the answer any more. */
  readonly signal: AbortSignal;
  readonly request: EmbeddingsRequest;
  readonly model: CatalogModel;
  readonly deprecation: DeprecationNotice | undefined;
  readonly price: Price;
  readonly sale: Sale;
  /** The most tokens that the hold covers. */
  readonly tokensBound: number;
}
