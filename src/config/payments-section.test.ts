/** Defaults of the payments section. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PaymentsSection } from './payments-section.ts';

test('an empty section has the amounts of the specification and no rail', () => {
  const section = PaymentsSection.parse({});
  assert.deepEqual(
    [section.minimumTopUpUsd, section.suggestedTopUpUsd, section.maximumTopUpUsd],
    [5, 10, 10_000],
  );
  assert.equal(section.base, undefined);
  assert.equal(section.facilitator.expose, false);
});

test('a rail needs a receiver and a node; its other settings have defaults', () => {
  const payTo = '0x1111111111111111111111111111111111111111';
  const { base } = PaymentsSection.parse({ base: { payTo, rpcUrl: 'https://base.example' } });
  assert.equal(base?.network, 'eip155:8453');
  assert.equal(base?.maxGas, 300_000);
  for (const bad of [
    { base: { payTo } },
    { base: { payTo: '0x12', rpcUrl: 'https://base.example' } },
    { base: { payTo, rpcUrl: 'ftp://base.example' } },
    { base: { payTo, rpcUrl: [] } },
    { base: { payTo, rpcUrl: ['https://base.example', 'base.example'] } },
    { base: { payTo, rpcUrl: 'https://base.example', gasKey: 'secret' } },
    { base: { payTo, rpcUrl: 'https://base.example', network: 'eip155:1' } },
    { solana: { payTo, rpcUrl: 'https://solana.example' } },
    { minimumTopUpUsd: -1 },
    { unknown: true },
  ]) {
    assert.equal(PaymentsSection.safeParse(bad).success, false, JSON.stringify(bad));
  }
});
