import assert from 'node:assert/strict';
import { test } from 'node:test';

import fc from 'fast-check';

import { TestClock } from '../../test/support/test-clock.ts';
import { CircuitBreaker, REFUSED } from './circuit-breaker.ts';
import type { BreakerSettings } from './circuit-breaker.ts';

const SETTINGS: BreakerSettings = {
  openMs: 1_000,
  maxOpenMs: 8_000,
  window: { sizeMs: 10_000, minFailures: 3, failureShare: 0.5 },
};

function breakerAndClock(settings = SETTINGS): { breaker: CircuitBreaker; clock: TestClock } {
  const clock = new TestClock(0);
  return { breaker: new CircuitBreaker(clock, settings), clock };
}

function fail(breaker: CircuitBreaker, times: number): void {
  for (let count = 0; count < times; count += 1) breaker.settle(breaker.admit(), 'failure');
}

test('the breaker opens at the minimum number of failures', () => {
  const { breaker } = breakerAndClock();
  fail(breaker, 2);
  assert.equal(breaker.state, 'closed');
  fail(breaker, 1);
  assert.equal(breaker.state, 'open');
  assert.equal(breaker.admit(), REFUSED);
  assert.equal(breaker.opensInMs, 1_000);
});

test('the breaker stays closed while the share of failures is small', () => {
  const { breaker } = breakerAndClock();
  for (let count = 0; count < 20; count += 1) breaker.settle(breaker.admit(), 'success');
  fail(breaker, 19);
  assert.equal(breaker.state, 'closed');
  fail(breaker, 1);
  assert.equal(breaker.state, 'open');
});

test('failures older than the window do not count', () => {
  const { breaker, clock } = breakerAndClock();
  fail(breaker, 2);
  clock.advance(10_001);
  fail(breaker, 2);
  assert.equal(breaker.state, 'closed');
});

test('a half-open breaker admits one call, whose success closes it', () => {
  const { breaker, clock } = breakerAndClock();
  fail(breaker, 3);
  clock.advance(1_000);
  const probe = breaker.admit();
  assert.notEqual(probe, REFUSED);
  assert.equal(breaker.admit(), REFUSED);
  breaker.settle(probe, 'success');
  assert.equal(breaker.state, 'closed');
  fail(breaker, 2);
  assert.equal(breaker.state, 'closed');
});

test('a failed probe doubles the open period up to the cap', () => {
  const { breaker, clock } = breakerAndClock();
  fail(breaker, 3);
  const periods: number[] = [];
  for (let round = 0; round < 6; round += 1) {
    periods.push(breaker.opensInMs);
    clock.advance(breaker.opensInMs);
    breaker.settle(breaker.admit(), 'failure');
  }
  assert.deepEqual(periods, [1_000, 2_000, 4_000, 8_000, 8_000, 8_000]);
});

test('a probe without a result allows another one', () => {
  const { breaker, clock } = breakerAndClock();
  fail(breaker, 3);
  clock.advance(1_000);
  breaker.settle(breaker.admit(), 'unknown');
  assert.equal(breaker.state, 'half-open');
  assert.equal(breaker.canAdmit, true);
});

test('a result of a call from before an opening has no effect', () => {
  const { breaker, clock } = breakerAndClock();
  const slow = breaker.admit();
  fail(breaker, 3);
  breaker.settle(slow, 'success');
  assert.equal(breaker.state, 'open');
  clock.advance(1_000);
  assert.equal(breaker.state, 'half-open');
  breaker.settle(slow, 'failure');
  assert.equal(breaker.state, 'half-open');
});

type Step =
  | { readonly kind: 'admit' }
  | {
      readonly kind: 'settle';
      readonly which: number;
      readonly result: 'success' | 'failure' | 'unknown';
    }
  | { readonly kind: 'advance'; readonly ms: number };

const steps: fc.Arbitrary<Step[]> = fc.array(
  fc.oneof(
    { weight: 3, arbitrary: fc.constant<Step>({ kind: 'admit' }) },
    {
      weight: 3,
      arbitrary: fc.record({
        kind: fc.constant('settle' as const),
        which: fc.nat(20),
        result: fc.constantFrom(
          'success' as const,
          'failure' as const,
          'failure' as const,
          'unknown' as const,
        ),
      }),
    },
    {
      weight: 1,
      arbitrary: fc.record({ kind: fc.constant('advance' as const), ms: fc.nat(3_000) }),
    },
  ),
  { maxLength: 120 },
);

test('in any order of calls and results an open breaker admits none, a half-open one one at a time', () => {
  fc.assert(
    fc.property(steps, (list) => {
      const { breaker, clock } = breakerAndClock();
      let running: { ticket: number; isProbe: boolean }[] = [];
      for (const step of list) {
        if (step.kind === 'advance') clock.advance(step.ms);
        else if (step.kind === 'admit') {
          const before = breaker.state;
          const probes = running.filter((one) => one.isProbe).length;
          const ticket = breaker.admit();
          if (before === 'open') assert.equal(ticket, REFUSED);
          if (before === 'closed') assert.notEqual(ticket, REFUSED);
          if (before === 'half-open') assert.equal(ticket === REFUSED, probes > 0);
          if (ticket !== REFUSED) running.push({ ticket, isProbe: before === 'half-open' });
        } else if (running.length > 0) {
          const index = step.which % running.length;
          const one = running[index]!;
          const before = breaker.state;
          breaker.settle(one.ticket, step.result);
          running = running.filter((_, at) => at !== index);
          if (one.isProbe && before === 'half-open') {
            const next = { success: 'closed', failure: 'open', unknown: 'half-open' } as const;
            assert.equal(breaker.state, next[step.result]);
          }
          if (before === 'closed' && step.result !== 'failure')
            assert.equal(breaker.state, 'closed');
        }
        if (breaker.state !== 'half-open')
          running = running.map((one) => ({ ...one, isProbe: false }));
      }
    }),
    { numRuns: 1_000 },
  );
});

test('without a window the breaker opens and closes by its methods, each time for longer', () => {
  const { breaker, clock } = breakerAndClock({ openMs: 1_000, maxOpenMs: 3_000 });
  fail(breaker, 100);
  assert.equal(breaker.state, 'closed');
  for (const periodMs of [1_000, 2_000, 3_000, 3_000]) {
    breaker.open();
    assert.deepEqual([breaker.canAdmit, breaker.opensInMs], [false, periodMs]);
    clock.advance(periodMs);
    assert.deepEqual([breaker.canAdmit, breaker.state], [true, 'half-open']);
  }
  breaker.close();
  breaker.open();
  assert.equal(breaker.opensInMs, 1_000);
});
