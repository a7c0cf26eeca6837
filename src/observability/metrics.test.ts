import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Counter, Gauge, Histogram, MoneyCounter, metricsText } from './metrics.ts';
import { nano, usdToNano } from '../core/money.ts';

const info = (type: 'counter' | 'gauge' | 'histogram', labels: readonly string[] = []) => ({
  name: 'm',
  type,
  help: 'Help.',
  labels,
});

describe('metrics', () => {
  test('a counter adds by label set, and labels are escaped', () => {
    const counter = new Counter(info('counter', ['a', 'b']));
    counter.add(['x', 'y']);
    counter.add(['x', 'y'], 2);
    counter.add(['"', 'back\\slash\nline']);
    assert.equal(
      metricsText([counter]),
      '# HELP m Help.\n# TYPE m counter\nm{a="x",b="y"} 3\nm{a="\\"",b="back\\\\slash\\nline"} 1\n',
    );
  });

  test('money is exact, however much and however little', () => {
    const money = new MoneyCounter(info('counter'));
    money.add([], usdToNano('9007199254.740993'));
    for (let count = 0; count < 3; count += 1) money.add([], nano(1n));
    assert.deepEqual(money.lines(), ['m 9007199254.740993003']);
  });

  test('a histogram counts each value in every bucket that holds it', () => {
    const histogram = new Histogram(info('histogram', ['route']), [0.1, 1]);
    for (const value of [0.05, 0.1, 0.5, 7]) histogram.observe(['/a'], value);
    assert.deepEqual(histogram.lines(), [
      'm_bucket{route="/a",le="0.1"} 2',
      'm_bucket{route="/a",le="1"} 3',
      'm_bucket{route="/a",le="+Inf"} 4',
      'm_sum{route="/a"} 7.65',
      'm_count{route="/a"} 4',
    ]);
  });

  test('a gauge forgets what is gone', () => {
    const gauge = new Gauge(info('gauge', ['engine']));
    gauge.set(['one'], 1);
    gauge.clear();
    gauge.set(['two'], 2);
    assert.deepEqual(gauge.lines(), ['m{engine="two"} 2']);
  });

  test('past a thousand label sets the rest is counted as other', () => {
    const counter = new Counter(info('counter', ['id']));
    for (let id = 0; id < 1_500; id += 1) counter.add([String(id)]);
    const lines = counter.lines();
    assert.equal(lines.length, 1_001);
    assert.equal(lines.at(-1), 'm{id="other"} 500');
  });

  test('labels for every value stand before the others', () => {
    const gauge = new Gauge(info('gauge'));
    gauge.set([], 1);
    const counter = new Counter(info('counter', ['a']));
    counter.add(['x y']);
    const text = metricsText([gauge, counter], { process: '7' });
    assert.match(text, /^m\{process="7"\} 1$/m);
    assert.match(text, /^m\{process="7",a="x y"\} 1$/m);
  });
});
