/** Child process: migrates the database of a URL, in real time. */
import { systemClock } from '../../src/core/clock.ts';
import { systemIds } from '../../src/core/ids.ts';
import { silentLog } from '../../src/core/log.ts';
import { openStore } from '../../src/db/db.ts';
import { MIGRATIONS } from '../../src/server/migrations.ts';

const url = process.argv[2] ?? '';
const store = await openStore({ url, clock: systemClock(), ids: systemIds(), log: silentLog });
await store.migrate(MIGRATIONS);
await store.close();
