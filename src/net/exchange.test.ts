/** Time limits of an exchange whose reader pauses, on a clock of the test. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Dispatcher } from 'undici';
import { InFlight } from '../core/in-flight.ts';
import { Exchange, type ExchangeOwner, type UpstreamFailureKind } from './exchange.ts';

const LIMITS = { connectMs: 1_000, firstByteMs: 1_000, idleMs: 1_000, totalMs: 10_000 };
const HALF_AN_HOUR_MS = 1_800_000;

/** An exchange in its body, and what its sweep says of it at a time. */
function streaming() {
  let nowMs = 0;
  const failures: UpstreamFailureKind[] = [];
  const owner: ExchangeOwner = {
    running: new InFlight<Exchange>(),
    isStale: () => false,
    monotonicMs: () => nowMs,
  };
  let isPaused = false;
  const controller = {
    get paused() {
      return isPaused;
    },
    pause: () => (isPaused = true),
    resume: () => (isPaused = false),
    abort: () => undefined,
  } as unknown as Dispatcher.DispatchController; // what an exchange uses of it
  const exchange = new Exchange(
    owner,
    {
      method: 'POST',
      path: '/',
      headers: [],
      body: null,
      limits: LIMITS,
      maxResponseBytes: 1_000,
    },
    {
      onHead: () => undefined,
      onData: () => undefined,
      onEnd: () => undefined,
      onFailure: ({ kind }) => failures.push(kind),
      onReleased: () => undefined,
    },
    undefined,
  );
  exchange.onRequestStart(controller);
  exchange.onResponseStart(controller, 200, {});
  const data = (): void => exchange.onResponseData(controller, Buffer.from('x'));
  data();
  const at = (ms: number): void => {
    nowMs = ms;
    exchange.checkLimits(ms);
  };
  return { exchange, data, at, failures };
}

test('the total time does not run while the reader pauses', () => {
  const { exchange, data, at, failures } = streaming();
  at(900);
  exchange.pause();
  exchange.pause();
  at(60_000);
  exchange.resume();
  // 900 ms have run; 9,100 are left.
  for (let ms = 60_900; ms <= 69_000; ms += 900) {
    data();
    at(ms);
  }
  assert.deepEqual(failures, []);
  data();
  at(69_200);
  assert.deepEqual(failures, ['total-timeout']);
});

test('pauses have a limit of their own, over all of them', () => {
  const { exchange, data, at, failures } = streaming();
  exchange.pause();
  at(HALF_AN_HOUR_MS - 1_000);
  exchange.resume();
  data();
  at(HALF_AN_HOUR_MS - 500);
  exchange.pause();
  at(HALF_AN_HOUR_MS + 400);
  assert.deepEqual(failures, []);
  at(HALF_AN_HOUR_MS + 600);
  assert.deepEqual(failures, ['paused-timeout']);
});
