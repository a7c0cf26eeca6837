import assert from 'node:assert/strict';
import { test } from 'node:test';
import { systemIds } from '../../core/ids.ts';
import { nano } from '../../core/money.ts';
import { MachinePayments } from './mpp.ts';

test('challenges of the same moment have different ids', () => {
  const payments = new MachinePayments({
    secret: 'x'.repeat(32),
    realm: 'api.example.com',
    maxTimeoutSeconds: 300,
    clock: { nowMs: () => 1_700_000_000_000 },
    ids: systemIds(),
    offers: () => [
      {
        network: 'eip155:8453',
        asset: '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913',
        payTo: '0x00000000000000000000000000000000000fa12b',
        extra: {},
      },
    ],
  });
  const ids = Array.from({ length: 3 }, () => {
    return /id="([^"]+)"/.exec(
      payments.challenge(nano(1_000_000_000n), 'Authorization') ?? '',
    )?.[1];
  });
  assert.equal(new Set(ids).size, 3);
});
