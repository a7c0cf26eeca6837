/** For tests that decide the order of two transactions on PostgreSQL. */
import type { Queryable } from '../../src/db/db.ts';
import { until } from '../support/until.ts';

/** Waits until a transaction of this database waits for a lock. */
export async function untilBlocked(store: Queryable): Promise<void> {
  await until(async () => {
    const blocked = await store.query(
      `SELECT pid FROM pg_stat_activity
       WHERE wait_event_type = 'Lock' AND datname = current_database()`,
    );
    return blocked.length > 0;
  }, 'a transaction that waits for a lock');
}
