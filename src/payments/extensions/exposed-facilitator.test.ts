/** The exposed facilitator responds in time with any chain, and settles a payment once. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { SchemeNetworkFacilitator, SettleResponse } from '@x402/core/types';
import { TestClock } from '../../../test/support/test-clock.ts';
import { MINUTE_MS, SECOND_MS } from '../../core/clock.ts';
import type { Fault } from '../../core/faults.ts';
import { silentLog } from '../../core/log.ts';
import { ExposedFacilitator } from './exposed-facilitator.ts';
import { BASE } from '../networks.ts';
import type { Rail } from '../rail.ts';

const accepted = { scheme: 'exact', network: BASE, asset: 'x', amount: '1', payTo: 'y' };
const body = {
  paymentPayload: { x402Version: 2, accepted, payload: { authorization: { from: 'z' } } },
  paymentRequirements: { ...accepted, maxTimeoutSeconds: 300, extra: {} },
};

test('a settlement that takes too long gets 503; the same request joins it and gets its response', async () => {
  const clock = new TestClock();
  const settled = Promise.withResolvers<SettleResponse>();
  let calls = 0;
  const scheme: SchemeNetworkFacilitator = {
    scheme: 'exact',
    caipFamily: 'eip155:*',
    getExtra: () => undefined,
    getSigners: () => [],
    verify: async () => ({ isValid: true }),
    settle: async () => {
      calls += 1;
      return await settled.promise;
    },
  };
  const rail = { network: BASE, exposedScheme: () => scheme } as unknown as Rail; // all that is used
  const facilitator = new ExposedFacilitator({
    clock,
    log: silentLog,
    settleWaitMs: 25 * SECOND_MS,
    rails: new Map([[BASE, rail]]),
  });
  const first = facilitator.call('settle', body);
  clock.advance(MINUTE_MS);
  await assert.rejects(first, (error: Fault) => error.code === 'SERVICE_UNAVAILABLE');
  const second = facilitator.call('settle', body);
  // A slow node receives a bounded number of calls.
  const others = Array.from({ length: 1_000 }, (_, n) => {
    const payload = { authorization: { from: String(n) } };
    const paymentPayload = { ...body.paymentPayload, payload };
    return facilitator.call('settle', { ...body, paymentPayload });
  });
  await assert.rejects(others.at(-1) ?? second, /Too many requests/);
  assert.equal(calls, 1_000);
  const answer = { success: true, transaction: '0x1', network: BASE, payer: 'z' } as const;
  settled.resolve(answer);
  assert.deepEqual(await second, answer);
  await Promise.all(others.slice(0, -1));
  assert.equal(calls, 1_000);
  assert.deepEqual(await facilitator.call('verify', body), { isValid: true });
});
