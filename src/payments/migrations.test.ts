import assert from 'node:assert/strict';
import { test } from 'node:test';
import { onEachStore } from '../../test/databases/stores.ts';
import { PAYMENTS_MIGRATIONS } from './payments.ts';

const HOUR_MS = 3_600_000;

onEachStore('an upgrade of payments', (fixture) => {
  test('the migration watches credits and failures of the last hour, and takes older ones as final', async () => {
    const store = await fixture.open(PAYMENTS_MIGRATIONS.slice(0, 1));
    const nowMs = 1_790_000_000_000;
    const rows = [
      ['old', 'credited', nowMs - 2 * HOUR_MS],
      ['new', 'credited', nowMs - HOUR_MS / 2],
      ['newest', 'credited', nowMs],
      ['pending', 'sent', nowMs],
      ['failed', 'failed', nowMs - HOUR_MS / 2],
      ['failed-old', 'failed', nowMs - 2 * HOUR_MS],
    ] as const;
    for (const [key, state, updatedMs] of rows) {
      await store.query(
        `INSERT INTO payments_topup (payment_key, payment_id, network, wallet, amount_units, payload,
           payload_hash, state, start_height, expires_at, lease_until_ms, next_check_ms, attempts,
           created_ms, updated_ms)
         VALUES ($1, $1, 'eip155:8453', '0x', 5, '{}', '', $2, 1, 1, 0, 0, 0, $3, $3)`,
        [key, state, updatedMs],
      );
    }
    await store.migrate(PAYMENTS_MIGRATIONS);
    const watched = await store.query<{ payment_key: string }>(
      'SELECT payment_key FROM payments_topup WHERE is_watched = 1 ORDER BY payment_key',
    );
    assert.deepEqual(
      watched.map((row) => row.payment_key),
      ['failed', 'new', 'newest'],
    );
  });
});
