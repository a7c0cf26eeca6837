/** Rate windows in memory for one process on a file, in the database for all that share one. */
import { type Admissions, JoinedAdmissions, SteppedAdmissions } from '../billing/admissions.ts';
import type { Clock } from '../core/clock.ts';
import { MemoryWindows, StoredWindows, type Windows } from '../billing/limits/limits.ts';
import type { Stores } from './stores.ts';

export function sharedLimits(
  stores: Stores,
  clock: Clock,
): { readonly windows: Windows; readonly admissions: Admissions } {
  const { store, ledger } = stores;
  if (store.dialect === 'postgres') {
    const windows = new StoredWindows(store);
    return { windows, admissions: new JoinedAdmissions({ store, windows, ledger, clock }) };
  }
  const windows = new MemoryWindows();
  return { windows, admissions: new SteppedAdmissions({ windows, ledger }) };
}
