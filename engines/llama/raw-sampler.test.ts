import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RawSampler, type RawSampling } from './raw-sampler.ts';

const OPEN: RawSampling = {
  temperature: 1,
  topP: 1,
  topK: 0,
  minP: 0,
  frequencyPenalty: 0,
  presencePenalty: 0,
  logitBias: new Map(),
};
const CHANCES = new Map([
  [10, 0.5],
  [11, 0.3],
  [12, 0.15],
  [13, 0.05],
  [14, 0],
]);
const PICKS = 20_000;

/** Relative frequency with which each token is picked. */
function shares(more: Partial<RawSampling>, recent: readonly number[] = []): Map<number, number> {
  const sampler = new RawSampler({ ...OPEN, ...more }, 7);
  const found = new Map<number, number>();
  for (let at = 0; at < PICKS; at += 1) {
    const token = sampler.pick(CHANCES, recent) ?? -1;
    found.set(token, (found.get(token) ?? 0) + 1 / PICKS);
  }
  return found;
}

function assertShares(
  found: Map<number, number>,
  expected: readonly (readonly [number, number])[],
) {
  assert.deepEqual(new Set(found.keys()), new Set(expected.map(([token]) => token)));
  for (const [token, share] of expected) {
    assert.ok(Math.abs((found.get(token) ?? 0) - share) < 0.02, `${token}: ${found.get(token)}`);
  }
}

test('tokens are picked with their probability, scaled by the temperature', () => {
  assertShares(shares({}), [
    [10, 0.5],
    [11, 0.3],
    [12, 0.15],
    [13, 0.05],
  ]);
  // Squares of the probabilities: 0.25, 0.09, 0.0225, 0.0025; their sum is 0.365.
  assertShares(shares({ temperature: 0.5 }), [
    [10, 0.685],
    [11, 0.247],
    [12, 0.062],
    [13, 0.007],
  ]);
  assertShares(shares({ temperature: 0 }), [[10, 1]]);
});

test('`topK`, `topP` and `minP` exclude unlikely tokens', () => {
  const two = [
    [10, 0.625],
    [11, 0.375],
  ] as const;
  assertShares(shares({ topK: 2 }), two);
  assertShares(shares({ topP: 0.6 }), two);
  assertShares(shares({ minP: 0.5 }), two);
  assertShares(shares({ topP: 0 }), [[10, 1]]);
  assertShares(shares({ topK: 1, temperature: 2 }), [[10, 1]]);
});

test('bias and penalties change the logits before the truncation', () => {
  assertShares(shares({ temperature: 0, logitBias: new Map([[13, 100]]) }), [[13, 1]]);
  assertShares(shares({ topK: 2, logitBias: new Map([[10, -100]]) }), [
    [11, 0.667],
    [12, 0.333],
  ]);
  assertShares(shares({ temperature: 0, presencePenalty: 2 }, [10]), [[11, 1]]);
  assertShares(shares({ temperature: 0, frequencyPenalty: 0.3 }, [10]), [[10, 1]]);
  assertShares(shares({ temperature: 0, frequencyPenalty: 0.3 }, [10, 10]), [[11, 1]]);
});

test('the seed determines the picks, and an empty distribution has none', () => {
  const run = (seed: number): number[] => {
    const sampler = new RawSampler(OPEN, seed);
    return Array.from({ length: 50 }, () => sampler.pick(CHANCES, []) ?? -1);
  };
  assert.deepEqual(run(1), run(1));
  assert.notDeepEqual(run(1), run(2));
  assert.equal(new RawSampler(OPEN, 1).pick(new Map(), []), undefined);
});
