/** What the first process of `farebox serve --workers` and its workers tell each other. */
import type { EngineNews } from '../engines/shared-engines.ts';

export type ToWorker =
  | { readonly kind: 'engines'; readonly news: EngineNews }
  | { readonly kind: 'reload' }
  | { readonly kind: 'stop' };

export interface FromWorker {
  readonly kind: 'listening';
  /** `http://host:port`. */
  readonly address: string;
}
