/** Rate windows in memory for one process on a file, in the database for all that share one. */
import { type Admissions, JoinedAdmissions, SteppedAdmissions } from '../flows/admissions.ts';
import type { Clock } from '../kernel/clock.ts';
import { MemoryWindows, StoredWindows, type Windows } from '../limits/limits.ts';
import type { Office } from './office.ts';

export function sharedLimits(
  office: Office,
  clock: Clock,
): { readonly windows: Windows; readonly admissions: Admissions } {
  const { store, ledger } = office;
  if (store.dialect === 'postgres') {
    const windows = new StoredWindows(store);
    return { windows, admissions: new JoinedAdmissions({ store, windows, ledger, clock }) };
  }
  const windows = new MemoryWindows();
  return { windows, admissions: new SteppedAdmissions({ windows, ledger }) };
}
