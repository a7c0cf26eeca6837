import assert from 'node:assert/strict';
import { test } from 'node:test';
import { nano, usdToNano } from '../kernel/money.ts';
import { standingHeaders } from './answer-headers.ts';

const NOTHING = { usdNano: nano(0n), diemNano: nano(0n) };

test('a wallet always hears what remains, with six decimals; a key never does', () => {
  const balances = { usdNano: usdToNano('4.23'), diemNano: nano(0n) };
  assert.deepEqual(standingHeaders(balances, { kind: 'wallet' }, 'svc'), {
    'x-svc-balance-usd': '4.230000',
    'x-balance-remaining': '4.230000',
  });
  assert.deepEqual(standingHeaders(NOTHING, { kind: 'wallet' }, 'svc'), {
    'x-balance-remaining': '0.000000',
  });
  assert.deepEqual(standingHeaders(NOTHING, { kind: 'key' }, 'svc'), {});
});
