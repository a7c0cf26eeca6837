/** Worker thread of `admin.ts`: audits a SQLite file, which would block the event loop. */
import { workerData } from 'node:worker_threads';
import { Ledger } from '../../billing/ledger/ledger.ts';
import { systemClock } from '../../core/clock.ts';
import { systemIds } from '../../core/ids.ts';
import { silentLog } from '../../core/log.ts';
import { postResult } from '../../core/worker-result.ts';
import { openStore } from '../../db/db.ts';

const { url } = workerData as { url: string }; // set by admin.ts
const [clock, ids] = [systemClock(), systemIds()];

postResult(async () => {
  const store = await openStore({ url, clock, ids, log: silentLog });
  try {
    return await new Ledger({ store, clock, ids, log: silentLog }).audit();
  } finally {
    await store.close();
  }
});
