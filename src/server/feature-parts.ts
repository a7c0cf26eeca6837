/** What the features are built from: the parts that all of them share. */
import type { Catalog, CatalogModel } from '../catalog/catalog.ts';
import type { ConfigInForce } from '../config/config.ts';
import type { Engines } from '../engines/engines.ts';
import type { RateRule, Sales } from '../billing/sale.ts';
import type { Clock } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import type { Log } from '../core/log.ts';
import type { LimitLog, Windows } from '../billing/limits/limits.ts';
import type { Caller } from '../identity/identity.ts';
import type { Guard } from '../net/guard.ts';
import type { Stores } from './stores.ts';

/** What every feature is built from. */
export interface FeatureParts {
  /** The settings in force now; sections that need a restart keep their first value in a feature. */
  readonly config: ConfigInForce;
  readonly stores: Stores;
  readonly catalog: Catalog;
  readonly engines: Engines;
  readonly sales: Sales;
  readonly windows: Windows;
  readonly limitLog: LimitLog;
  /** How often a caller may use a model, by the settings of now. */
  readonly rateOf: (caller: Caller, model: CatalogModel) => RateRule;
  /** The only way to fetch what a caller names by URL. */
  readonly guard: Guard;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
}
