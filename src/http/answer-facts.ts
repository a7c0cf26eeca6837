/** What the headers of an inference answer are made of, whatever the work was. */
import type { CatalogModel, DeprecationNotice } from '../catalog/catalog.ts';
import type { Nano } from '../core/money.ts';
import type { RateRule, Sale } from '../billing/sale.ts';

export interface AnswerFacts {
  readonly model: CatalogModel;
  readonly deprecation: DeprecationNotice | undefined;
  readonly admission: Sale;
  readonly rate: RateRule;
  /** The engine that answers, and the attempt that did; unknown while a stream is kept alive. */
  readonly replica: string | undefined;
  readonly attempts: number;
  /** Headers that the engine sent and that are passed on, such as content flags. */
  readonly flags?: Readonly<Record<string, string>>;
  /** Posted USD after the request; for a stream, what its hold leaves. */
  readonly remainingNano: Nano;
}
