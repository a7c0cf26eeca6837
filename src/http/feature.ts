/** A feature as the server sees it: its routes, its maintenance jobs, its end. */
import type { Route } from './route.ts';

export interface Feature {
  readonly routes: readonly Route[];
  /** Called once the server listens. */
  readonly start?: () => void;
  /** Jobs of this process, once a minute; a failure is logged and tried again. */
  readonly everyMinute?: () => Promise<unknown>;
  /** Jobs on the database, once a minute in one of all processes that share it. */
  readonly onceAMinute?: () => Promise<unknown>;
  /** Called after the last answer has left and before the database closes. */
  readonly close?: () => Promise<void>;
}
