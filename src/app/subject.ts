/**
 * A subject of the product as `app.ts` sees it: its routes, its chores, its end. Each is built in a
 * file of its own from the parts that all subjects share.
 */
import type { Route } from '../api/route.ts';
import type { Catalog } from '../catalog/catalog.ts';
import type { Config } from '../config/config.ts';
import type { Engines } from '../engines/engines.ts';
import type { Charge } from '../flows/charge.ts';
import type { Clock } from '../kernel/clock.ts';
import type { Ids } from '../kernel/ids.ts';
import type { Log } from '../kernel/log.ts';
import type { LimitLog, Windows } from '../limits/limits.ts';
import type { Guard } from '../net/guard.ts';
import type { Office } from './office.ts';

/** What every subject is built from. */
export interface Shared {
  /** The settings in force now; sections that need a restart keep their first value in a subject. */
  readonly config: () => Config;
  readonly office: Office;
  readonly catalog: Catalog;
  readonly engines: Engines;
  readonly charge: Charge;
  readonly windows: Windows;
  readonly limitLog: LimitLog;
  /** The only way to fetch what a caller names by URL. */
  readonly guard: Guard;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
}

export interface Subject {
  readonly routes: readonly Route[];
  /** Called once the server listens. */
  readonly start?: () => void;
  /** Chores of this process, once a minute; a failure is logged and tried again. */
  readonly everyMinute?: () => Promise<unknown>;
  /** Chores on the database, once a minute in one of all processes that share it. */
  readonly onceAMinute?: () => Promise<unknown>;
  /** Called after the last answer has left and before the database closes. */
  readonly close?: () => Promise<void>;
}
