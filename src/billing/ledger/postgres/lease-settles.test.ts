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

for (const isSent of [true, false]) {
  const outcome = isSent ? 'is uncertain if it was sent' : 'fails if it was not sent';
  test(`a settle of a database that stays unreachable ${outcome}`, async () => {
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
    await assert.rejects(settling, (error) => error instanceof CommitUncertain === isSent);
    assert.ok(nowMs >= 30_000);
  });
}
