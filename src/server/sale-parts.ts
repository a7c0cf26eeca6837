/**
 * Composes the sale of requests: rate windows, concurrency, admission, charging and idempotency. Windows are
 * in memory with SQLite, and in the database with PostgreSQL, where processes share them.
 */
import type { Config, ConfigInForce } from '../config/config.ts';
import { Idempotency } from '../billing/idempotency/idempotency.ts';
import { BudgetCaps } from '../billing/budgets/budgets.ts';
import { type RateRule, type SaleObserver, Sales } from '../billing/sale.ts';
import type { Catalog, CatalogModel } from '../catalog/catalog.ts';
import { engineFault } from '../engines/engine-refusal.ts';
import type { Engines } from '../engines/engines.ts';
import { ratesBy } from '../http/model-sale.ts';
import type { Clock } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import { type Log, reasonOf } from '../core/log.ts';
import { usdToNano } from '../core/money.ts';
import {
  Concurrency,
  LeasedWindows,
  type LimitLog,
  MemoryWindows,
  SharedSlots,
  type Slots,
  type Windows,
} from '../billing/limits/limits.ts';
import { isShared } from '../db/db.ts';
import type { Caller } from '../identity/identity.ts';
import type { Stores } from './stores.ts';
import type { Wallets } from '../wallet/wallet.ts';

export interface SaleSetup {
  readonly config: ConfigInForce;
  readonly stores: Stores;
  readonly limitLog: LimitLog;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly wallets: Wallets;
  readonly catalog: Catalog;
  readonly engines: Engines;
  /** Notified of every settle. */
  readonly observers: readonly SaleObserver[];
}

export interface SaleParts {
  readonly sales: Sales;
  readonly idempotency: Idempotency;
  readonly windows: Windows;
  readonly slots: Slots;
  readonly limitLog: LimitLog;
  /** Returns the rate limit of a caller for a model, by the current settings. */
  readonly rateOf: (caller: Caller, model: CatalogModel) => RateRule;
}

const BYTES_PER_MIB = 1_048_576;

const NOT_TRIED = {
  message: 'No engine can serve the request, so its payment is not accepted',
  status: null,
  body: null,
  retryAfterSeconds: null,
};

export function openSale(setup: SaleSetup): SaleParts {
  const { config, stores, limitLog, clock, ids, log, wallets, catalog, engines, observers } = setup;
  const { store, processId } = stores;
  const { windows, slots } = countersOn(stores, clock);
  const idempotency = new Idempotency({
    store,
    processId,
    clock,
    ids,
    log,
    keptBytes: () => config.current.limits.keptResponsesMb * BYTES_PER_MIB,
  });
  const sales = new Sales({
    ledger: stores.ledger,
    windows,
    limitLog,
    clock,
    log,
    minimumCreditNano: perConfig(config, ({ limits }) => usdToNano(limits.minimumCreditUsd)),
    budgets: new BudgetCaps({ store, ledger: stores.ledger, identity: stores.identity, clock }),
    walletRefusal: (caller, credit) => wallets.refusal(caller, credit),
    requireModel: async (modelId) => {
      const reason = await engines.outageOf(catalog.get(modelId)?.replicas ?? []);
      if (reason !== undefined) throw engineFault({ ...NOT_TRIED, reason }, modelId);
    },
    observers,
  });
  return { sales, idempotency, windows, slots, limitLog, rateOf: ratesBy(config) };
}

/** Releases money, slots and keys of previous processes, which have ended: only one can use the data folder. */
export async function startSale(shared: ReleaseParts): Promise<void> {
  if (!isShared(shared.stores.store)) await shared.idempotency.releaseAll();
  const { endedBefore } = shared.stores.ledger.holds;
  for (const processId of endedBefore) await releaseProcess(shared, processId);
}

export async function closeSale({ slots, idempotency }: SaleParts): Promise<void> {
  await slots.close();
  await idempotency.close();
}

type ReleaseParts = SaleParts & Pick<SaleSetup, 'stores' | 'log'>;

/**
 * Releases the money, the slots and then the idempotency keys of a process that has ended. Keys are last, so
 * that a retry finds everything else released. After a failure they expire.
 */
export async function releaseProcess(
  { slots, idempotency, stores, log }: ReleaseParts,
  processId: string,
): Promise<void> {
  try {
    await stores.ledger.holds.processEnded(processId);
    await slots.processEnded(processId);
    await idempotency.processEnded(processId);
  } catch (error) {
    // The database is unreachable: the leases of the process expire later.
    log.warn(
      { reason: reasonOf(error) },
      'Holds, slots and keys of an ended process are not released yet; they expire',
    );
  }
}

function countersOn({ store, ledger, processId }: Stores, clock: Clock) {
  if (!isShared(store)) return { windows: new MemoryWindows(), slots: new Concurrency() };
  const processes = (): number => ledger.holds.processes;
  const parts = { store, clock, processes, holder: processId };
  return { windows: new LeasedWindows(parts), slots: new SharedSlots(parts) };
}

/** Returns a getter for a value that is computed once for each configuration. */
export function perConfig<T>(config: ConfigInForce, make: (config: Config) => T): () => T {
  let made: { readonly from: Config; readonly value: T } | undefined;
  return () => {
    const from = config.current;
    if (made?.from !== from) made = { from, value: make(from) };
    return made.value;
  };
}
