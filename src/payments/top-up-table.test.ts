import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { storeFixture } from '../../test/databases/stores.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { type Clock, HOUR_MS, MINUTE_MS } from '../core/clock.ts';
import { silentLog } from '../core/log.ts';
import type { Dialect, Store } from '../db/db.ts';
import { PAYMENTS_MIGRATIONS } from './migrations.ts';
import type { SignedPayment } from './payment.ts';
import { TopUpTable } from './top-up-table.ts';

describe('a credit is missing on the chain', () => {
  test('by the clock of the database, if servers have different ones', async () => {
    const store = await storeWithCredit('postgres');
    for (const hours of [1, -1]) {
      const missingMs = await recordVanished(store, new TestClock(Date.now() + hours * HOUR_MS));
      assert.ok(missingMs >= 0 && missingMs < MINUTE_MS, `${missingMs} ms`);
    }
  });

  test('from the first look on, or from a later one after the clock was set back', async () => {
    const store = await storeWithCredit('sqlite');
    const clock = new TestClock();
    assert.equal(await recordVanished(store, clock), 0);
    clock.advance(MINUTE_MS);
    assert.equal(await recordVanished(store, clock), MINUTE_MS);
    clock.setWallBack(HOUR_MS);
    assert.equal(await recordVanished(store, clock), 0);
    clock.advance(MINUTE_MS);
    assert.equal(await recordVanished(store, clock), MINUTE_MS);
  });

  const stores = { sqlite: storeFixture('sqlite'), postgres: storeFixture('postgres') };

  async function storeWithCredit(dialect: Dialect): Promise<Store> {
    const store = await stores[dialect].open(PAYMENTS_MIGRATIONS);
    await store.query(
      `INSERT INTO payments_topup (payment_key, payment_id, network, wallet, amount_units, payload,
         payload_hash, state, start_height, expires_at, lease_owner, lease_until_ms, next_check_ms,
         attempts, created_ms, updated_ms, is_watched)
       VALUES ('one', 'top_1', 'eip155:8453', '0x1', 5, '{}', '', 'credited', 0, 0, '', 0, 0, 0, 0, 0, 1)`,
    );
    return store;
  }

  async function recordVanished(store: Store, clock: Clock): Promise<number> {
    const table = new TopUpTable({ store, clock, owner: 'process', leaseMs: 1, log: silentLog });
    const row = await table.find('one');
    assert.ok(row !== undefined);
    return await table.recordVanished(row);
  }
});

test('a payment in place of a failed one has its own identifier, time and transaction', async () => {
  const store = await storeFixture('sqlite').open(PAYMENTS_MIGRATIONS);
  const clock = new TestClock();
  const table = new TopUpTable({ store, clock, owner: 'process', leaseMs: 1, log: silentLog });
  const position = { startHeight: 1n, startBlock: undefined, expiresAt: 2n };
  const failed = signedPayment('one', 'expired');
  await table.open(failed, position);
  await table.journal(failed.key, '0x1', '0x2');
  await table.fail(failed.key, 'authorization_expired', 0);
  const watched = await table.find(failed.key);
  await table.recordCheck(watched!, { isFinal: true });
  clock.advance(HOUR_MS);
  const identifier = 'order-1234567890';
  const row = await table.open({ ...signedPayment('one', 'again'), identifier }, position);
  assert.deepEqual(
    [row?.identifier, row?.tx_id, row?.raw_tx, row?.created_ms],
    [identifier, null, null, BigInt(clock.nowMs())],
  );
  await assert.rejects(
    table.open({ ...signedPayment('two', 'other'), identifier }, position),
    /identifier belongs to another payment/,
  );
});

function signedPayment(key: string, hash: string): SignedPayment {
  const offer = { network: 'eip155:8453', asset: '0x3', payTo: '0x4', extra: {} };
  const authorization = { kind: 'solana', transaction: '', messageHash: '', source: '' } as const;
  const wallet = '0x1';
  const { network } = offer;
  const payment = { key, id: key, network, wallet, amountUnits: 5n, offer, authorization };
  return { ...payment, inner: {}, hash, identifier: undefined };
}
