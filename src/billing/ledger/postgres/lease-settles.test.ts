/** Settles with an idempotency key while the database stays unreachable. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bill } from '../../../../test/support/test-ledger.ts';
import { silentLog } from '../../../core/log.ts';
import { systemClock } from '../../../core/clock.ts';
import { type Nano, ZERO } from '../../../core/money.ts';
import { CommitUncertain, type SharedStore, StoreUnavailable } from '../../../db/db.ts';
import { LeaseSettles } from './lease-settles.ts';
import type { LeasedHold, Leases } from './leases.ts';

function stays(isSent: boolean) {
  let nowMs = 0;
  const clock = {
    ...systemClock(),
    monotonicMs: () => nowMs,
    sleep: async () => void (nowMs += 1_000),
  };
  const store = {
    unavailable: () => (isSent && nowMs === 0 ? undefined : 'Unreachable'),
    transaction: () => Promise.reject(new StoreUnavailable('Unreachable')),
  } as unknown as SharedStore; // what a settle uses
  const leases = { retireLease: () => undefined } as unknown as Leases; // the same
  const settles = new LeaseSettles({ store, clock, log: silentLog, leases, journal: undefined });
  const request = bill(clock, 'request', 10n as Nano);
  const held = {
    requestId: 'request',
    grantedNano: 10n,
    usdNano: 10n,
    dailyNano: ZERO,
  } as LeasedHold; // the same
  const settling = settles.settleWith(request, held, () => Promise.resolve(), 'wait');
  return { settles, settling, nowMs: () => nowMs };
}

for (const isSent of [true, false]) {
  const outcome = isSent ? 'is uncertain if it was sent' : 'fails if it was not sent';
  test(`a settle of a database that stays unreachable ${outcome}`, async () => {
    const { settling, nowMs } = stays(isSent);
    await assert.rejects(settling, (error) => error instanceof CommitUncertain === isSent);
    assert.ok(nowMs() >= 30_000);
  });
}

test('a stop ends the wait of a settle for the database', async () => {
  const { settles, settling, nowMs } = stays(true);
  const stopped = settles.stop();
  await assert.rejects(settling, CommitUncertain);
  await stopped;
  assert.ok(nowMs() < 5_000, `${nowMs()} ms`);
});
