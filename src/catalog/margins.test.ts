import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type LogLine, memoryLog } from '../../test/support/memory-log.ts';
import { call, startWithEngine } from '../../test/app/call.ts';

const MODEL = `  - id: sold
    context: 65536
    price: { input: 2, output: 4, extended: { above: 1000, input: 3, output: 6 }, windows: [{ from: "10:00", to: "12:00", factor: 0.5 }], serviceTiers: { priority: { factor: 3 } } }
    batch: false
    replicas: [{ engine: rack1, model: tiny, cost: { input: 1.5, output: 2, cacheWrite1h: 4, perRequest: 0.001 } }]`;

test('the operator sees each margin, and losses are logged and counted', async () => {
  const lines: LogLine[] = [];
  const bench = await startWithEngine({ model: MODEL, log: memoryLog(lines) });
  try {
    const secret = await bench.farebox.key({ kind: 'ADMIN' });
    const { body } = await call(bench.farebox, '/admin/prices', { secret });
    assert.deepEqual(
      body.data.map(({ model }: { model: string }) => model),
      ['sold'],
    );
    const [{ margins }] = body.data;
    const of = (kind: string, tier: string | null, above: number, from: string) =>
      margins.find(
        (one: { kind: string; tier: string | null; above: number; from: string }) =>
          one.kind === kind && one.tier === tier && one.above === above && one.from === from,
      );
    assert.deepEqual(of('input', null, 0, '12:00'), {
      engine: 'rack1',
      kind: 'input',
      tier: null,
      above: 0,
      from: '12:00',
      list: '2.0000',
      sold: '2.0000',
      cost: '1.5000',
      percent: 25,
    });
    assert.equal(of('input', null, 0, '10:00').percent, -50);
    assert.equal(of('input', null, 1_000, '12:00').percent, 50);
    assert.equal(of('output', 'priority', 0, '12:00').percent, 83.3);
    assert.equal(of('cacheWrite1h', null, 0, '12:00').percent, -100);
    assert.equal(of('perRequest', null, 0, '12:00').percent, null);
    const metrics = await fetch(`${new URL(bench.farebox.url).origin}/metrics`);
    assert.match(await metrics.text(), /farebox_model_losses\{model="sold",engine="rack1"\} \d+/);
    assert.ok(
      lines.some(({ message }) => message === 'A model is sold below its cost'),
      String(lines.length),
    );
    const other = await bench.farebox.account('1', { kind: 'ADMIN' });
    assert.equal(
      (await call(bench.farebox, '/admin/prices', { secret: other.secret })).status,
      403,
    );
  } finally {
    await bench.stop();
  }
});
