import assert from 'node:assert/strict';
import { test } from 'node:test';
import { nano, usdToNano } from '../core/money.ts';
import { systemClock } from '../core/clock.ts';
import { ResponseHeaders } from './response-headers.ts';

const NOTHING = { usdNano: nano(0n), diemNano: nano(0n) };

test('balances are sent even at zero, the remaining balance to wallets only, with six decimals', () => {
  const headers = new ResponseHeaders({ serviceName: 'svc', clock: systemClock() });
  const balances = { usdNano: usdToNano('4.23'), diemNano: nano(0n) };
  assert.deepEqual(headers.balanceHeaders(balances, { kind: 'wallet' }), {
    'x-svc-balance-usd': '4.230000',
    'x-svc-balance-diem': '0.000000',
    'x-balance-remaining': '4.230000',
  });
  const zero = { 'x-svc-balance-usd': '0.000000', 'x-svc-balance-diem': '0.000000' };
  assert.deepEqual(headers.balanceHeaders(NOTHING, { kind: 'wallet' }), {
    ...zero,
    'x-balance-remaining': '0.000000',
  });
  assert.deepEqual(headers.balanceHeaders(NOTHING, { kind: 'key' }), zero);
});
