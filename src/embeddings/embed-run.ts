/** What an embeddings request is on its way: the parts that serve it, and the admitted run. */
import type { HeldWork, SellingParts } from '../http/sell-work.ts';
import type { Clock } from '../core/clock.ts';
import type { Tokenizer } from '../documents/documents.ts';
import type { Engines } from '../engines/engines.ts';
import type { LearnedReplicas } from '../engines/learned-replicas.ts';
import type { EmbeddingsRequest } from './embeddings-request.ts';

export interface EmbeddingsParts extends SellingParts {
  readonly engines: Engines;
  readonly clock: Clock;
  readonly tokenizer: Tokenizer;
  /** Replicas that refused base64 and gave floats. */
  readonly floatReplicas: LearnedReplicas;
}

export interface EmbedRun extends HeldWork {
  readonly parts: EmbeddingsParts;
  readonly request: EmbeddingsRequest;
  readonly tokensBound: number;
}
