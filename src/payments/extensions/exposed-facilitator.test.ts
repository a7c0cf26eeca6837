/** The exposed facilitator responds in time with any chain, and settles a payment once. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
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

const SUCCESS = { success: true, transaction: '0x1', network: BASE, payer: 'z' } as const;

/** A facilitator whose settlements all end with `settled`. */
function opened() {
  const clock = new TestClock();
  const settled = Promise.withResolvers<SettleResponse>();
  const counted = { calls: 0 };
  const scheme: SchemeNetworkFacilitator = {
    scheme: 'exact',
    caipFamily: 'eip155:*',
    getExtra: () => undefined,
    getSigners: () => [],
    verify: async () => ({ isValid: true }),
    settle: async () => {
      counted.calls += 1;
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
  return { clock, settled, counted, facilitator };
}

const isUnavailable = (error: Fault): boolean => error.code === 'SERVICE_UNAVAILABLE';

test('a settlement that takes too long gets 503; the same request joins it and gets its response', async () => {
  const { clock, settled, counted, facilitator } = opened();
  const first = facilitator.call('settle', body);
  clock.advance(MINUTE_MS);
  await assert.rejects(first, isUnavailable);
  const second = facilitator.call('settle', body);
  // A slow node receives a bounded number of calls.
  const others = Array.from({ length: 1_000 }, (_, n) => {
    const payload = { authorization: { from: String(n) } };
    const paymentPayload = { ...body.paymentPayload, payload };
    return facilitator.call('settle', { ...body, paymentPayload });
  });
  await assert.rejects(others.at(-1) ?? second, /Too many requests/);
  assert.equal(counted.calls, 1_000);
  settled.resolve(SUCCESS);
  assert.deepEqual(await second, SUCCESS);
  await Promise.all(others.slice(0, -1));
  assert.equal(counted.calls, 1_000);
  assert.deepEqual(await facilitator.call('verify', body), { isValid: true });
});

test('of two requests at once with the same payment, one is settled', async () => {
  const { settled, counted, facilitator } = opened();
  const first = facilitator.call('settle', body);
  const second = facilitator.call('settle', body);
  settled.resolve(SUCCESS);
  assert.deepEqual(await first, SUCCESS);
  assert.deepEqual(await second, {
    success: false,
    errorReason: 'duplicate_settlement',
    transaction: '',
    network: BASE,
  });
  assert.equal(counted.calls, 1);
});

test('the request after one that was disconnected joins its settlement', async () => {
  const { settled, counted, facilitator } = opened();
  const gone = new AbortController();
  const first = facilitator.call('settle', body, gone.signal);
  gone.abort();
  const second = facilitator.call('settle', body);
  settled.resolve(SUCCESS);
  await first;
  assert.deepEqual(await second, SUCCESS);
  assert.equal(counted.calls, 1);
});

test('the response of a settlement that ends without a caller is for the next request, once', async () => {
  const { clock, settled, counted, facilitator } = opened();
  const first = facilitator.call('settle', body);
  clock.advance(MINUTE_MS);
  await assert.rejects(first, isUnavailable);
  settled.resolve(SUCCESS);
  await nextTurn();
  assert.deepEqual(await facilitator.call('settle', body), SUCCESS);
  assert.equal(counted.calls, 1);
  await facilitator.call('settle', body);
  assert.equal(counted.calls, 2);
});
