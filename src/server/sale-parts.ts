/**
 * Where requests are paid, wired: rate windows, admission, the sale, and the answers that it keeps.
 * Windows are in memory for one process on a file, in the database for all that share one.
 */
import type { Config } from '../config/config.ts';
import { Idempotency } from '../billing/idempotency/idempotency.ts';
import { BudgetCaps } from '../billing/budgets/budgets.ts';
import { Sales, type SalesParts } from '../billing/sale.ts';
import type { Clock } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import type { Log } from '../core/log.ts';
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
import type { Stores } from './stores.ts';
import type { Wallets } from '../wallet/wallet.ts';

export type OnSettle = NonNullable<SalesParts['settled']>;

export interface SaleSetup {
  readonly config: () => Config;
  readonly stores: Stores;
  readonly limitLog: LimitLog;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly wallets: Wallets;
  /** Told of every settle. */
  readonly settled: OnSettle;
}

export interface SaleParts {
  readonly sales: Sales;
  readonly idempotency: Idempotency;
  readonly windows: Windows;
  readonly slots: Slots;
  readonly limitLog: LimitLog;
}

export function openSale(setup: SaleSetup): SaleParts {
  const { config, stores, limitLog, clock, ids, log, wallets, settled } = setup;
  const { store } = stores;
  const { windows, slots } = countersOn(stores, clock, ids);
  const idempotency = new Idempotency({ store, clock, ids, log });
  const sales = new Sales({
    ledger: stores.ledger,
    windows,
    limitLog,
    clock,
    log,
    minimumCreditNano: perConfig(config, ({ limits }) => usdToNano(limits.minimumCreditUsd)),
    budgets: new BudgetCaps({ store, ledger: stores.ledger, identity: stores.identity, clock }),
    walletRefusal: (caller, credit) => wallets.refusal(caller, credit),
    settled,
  });
  return { sales, idempotency, windows, slots, limitLog };
}

export async function closeSale({ slots, idempotency }: SaleParts): Promise<void> {
  await slots.close();
  await idempotency.close();
}

function countersOn({ store, ledger }: Stores, clock: Clock, ids: Ids) {
  if (!isShared(store)) return { windows: new MemoryWindows(), slots: new Concurrency() };
  const parts = { store, clock, processes: () => ledger.holds.processes, holder: ids.uuid() };
  return { windows: new LeasedWindows(parts), slots: new SharedSlots(parts) };
}

/** What is worked out of the settings once, and again when they change: for what each request asks. */
export function perConfig<T>(config: () => Config, make: (config: Config) => T): () => T {
  let made: { readonly from: Config; readonly value: T } | undefined;
  return () => {
    const from = config();
    if (made?.from !== from) made = { from, value: make(from) };
    return made.value;
  };
}
