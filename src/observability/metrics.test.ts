import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { figures, histogram, joinedPages, metricsText, moneyFigures } from './metrics.ts';
import { addNano, nano, usdToNano } from '../core/money.ts';

const info = (type: 'counter' | 'gauge' | 'histogram', labels: readonly string[] = []) => ({
  name: 'm',
  type,
  help: 'Help.',
  labels,
});

describe('metrics', () => {
  test('a counter adds by label set, and labels are escaped', () => {
    const counter = figures(info('counter', ['a', 'b']));
    counter.at('x', 'y').value += 1;
    counter.at('x', 'y').value += 2;
    counter.at('"', 'back\\slash\nline').value += 1;
    assert.equal(
      metricsText([counter]),
      '# HELP m Help.\n# TYPE m counter\nm{a="x",b="y"} 3\nm{a="\\"",b="back\\\\slash\\nline"} 1\n',
    );
  });

  test('amounts of money are exact', () => {
    const money = moneyFigures(info('counter'));
    const all = money.at();
    all.value = addNano(all.value, usdToNano('9007199254.740993'));
    for (let count = 0; count < 3; count += 1) all.value = addNano(all.value, nano(1n));
    assert.deepEqual(money.lines(), ['m 9007199254.740993003']);
  });

  test('a histogram counts each value in every bucket that holds it', () => {
    const route = histogram(info('histogram', ['route']), [0.1, 1]);
    for (const value of [0.05, 0.1, 0.5, 7]) route.at('/a').observe(value);
    assert.deepEqual(route.lines(), [
      'm_bucket{route="/a",le="0.1"} 2',
      'm_bucket{route="/a",le="1"} 3',
      'm_bucket{route="/a",le="+Inf"} 4',
      'm_sum{route="/a"} 7.65',
      'm_count{route="/a"} 4',
    ]);
  });

  test('a metric without values has its HELP and TYPE lines', () => {
    assert.equal(metricsText([figures(info('gauge'))]), '# HELP m Help.\n# TYPE m gauge\n');
  });

  test('above a thousand label sets the rest counts as `other`', () => {
    const counter = figures(info('counter', ['id']));
    for (let id = 0; id < 1_500; id += 1) counter.at(String(id)).value += 1;
    const lines = counter.lines();
    assert.equal(lines.length, 1_001);
    assert.equal(lines.at(-1), 'm{id="other"} 500');
  });

  test('labels of the process come before the others', () => {
    const gauge = figures(info('gauge'));
    gauge.at().value = 1;
    const counter = figures(info('counter', ['a']));
    counter.at('x y').value += 1;
    const shared = figures({ ...info('gauge'), isShared: true });
    shared.at().value = 2;
    const text = metricsText([gauge, counter, shared], { worker: '7' });
    assert.match(text, /^m\{worker="7"\} 1$/m);
    assert.match(text, /^m\{worker="7",a="x y"\} 1$/m);
    assert.match(text, /^m 2$/m);
  });

  test('the pages of several processes are joined, with shared values once', () => {
    const page = (worker: string, value: number): string => {
      const own = figures({ ...info('counter', ['a']), name: 'own_total' });
      own.at('x y').value = value;
      const shared = figures({ ...info('gauge'), name: 'shared', isShared: true });
      shared.at().value = value;
      const none = figures({ ...info('gauge'), name: 'none' });
      return metricsText([own, none, shared], { worker });
    };
    assert.equal(
      joinedPages([page('1', 1), page('2', 2)]),
      [
        '# HELP own_total Help.',
        '# TYPE own_total counter',
        'own_total{worker="1",a="x y"} 1',
        'own_total{worker="2",a="x y"} 2',
        '# HELP none Help.',
        '# TYPE none gauge',
        '# HELP shared Help.',
        '# TYPE shared gauge',
        'shared 1',
        '',
      ].join('\n'),
    );
  });
});
