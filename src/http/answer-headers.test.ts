import assert from 'node:assert/strict';
import { test } from 'node:test';
import { nano, usdToNano } from '../core/money.ts';
import { systemClock } from '../core/clock.ts';
import { AnswerHeaders } from './answer-headers.ts';

const NOTHING = { usdNano: nano(0n), diemNano: nano(0n) };

test('a wallet always hears what remains, with six decimals; a key never does', () => {
  const headers = new AnswerHeaders({ serviceName: 'svc', clock: systemClock() });
  const balances = { usdNano: usdToNano('4.23'), diemNano: nano(0n) };
  assert.deepEqual(headers.balanceHeaders(balances, { kind: 'wallet' }), {
    'x-svc-balance-usd': '4.230000',
    'x-balance-remaining': '4.230000',
  });
  assert.deepEqual(headers.balanceHeaders(NOTHING, { kind: 'wallet' }), {
    'x-balance-remaining': '0.000000',
  });
  assert.deepEqual(headers.balanceHeaders(NOTHING, { kind: 'key' }), {});
});
