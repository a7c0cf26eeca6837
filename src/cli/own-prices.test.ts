/** `farebox accounts prices`, plans with own names, and prices of plans in `farebox check`. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { makeSqliteDatabase } from '../../test/databases/stores.ts';
import { runCli } from '../../test/support/run-cli.ts';
import { MIGRATIONS } from '../server/migrations.ts';

const CONFIG = `
embedded: { enabled: false }
discovery: { enabled: false }
rpc: { enabled: false }
engines: { rack: { url: "http://127.0.0.1:9/v1" } }
models:
  - { id: atlas, context: 8192, price: { input: 2, output: 4 }, replicas: [{ engine: rack, cost: { input: 1.9, output: 2 } }] }
plans:
  gold: { prices: { discountPercent: 10 } }
`;

describe('prices from the command line', () => {
  const folder = mkdtempSync(join(tmpdir(), 'farebox-cli-'));
  after(() => rmSync(folder, { recursive: true, force: true }));
  before(async () => {
    writeFileSync(join(folder, 'farebox.yaml'), CONFIG);
    await makeSqliteDatabase(`sqlite:${join(folder, 'data', 'farebox.db')}`, MIGRATIONS);
    const { code, err } = await farebox('accounts', 'create', 'alice', '--plan', 'gold');
    assert.equal(code, 0, err);
  });

  const farebox = (...argv: string[]) =>
    runCli(folder, argv, { FAREBOX_DATA: join(folder, 'data') });

  async function pricesOf(...options: string[]) {
    const { code, out, err } = await farebox('accounts', 'prices', 'alice', ...options, '--json');
    assert.equal(code, 0, err);
    const { own, prices } = JSON.parse(out); // printed by the command
    const [{ source, list, sold, cost, percent }] = prices;
    return { own, first: [source, list, sold, cost, percent] };
  }

  test('the prices of an account are shown, set, read from a file and removed', async () => {
    const ofPlan = ['plan', '2.0000', '1.8000', '1.9000', -5.5];
    assert.deepEqual(await pricesOf(), { own: null, first: ofPlan });
    assert.deepEqual(await pricesOf('--discount', '2.5'), {
      own: { discountPercent: '2.5' },
      first: ['account', '2.0000', '1.9500', '1.9000', 2.5],
    });
    const file = join(folder, 'prices.yaml');
    writeFileSync(file, 'models: { atlas: { price: { input: 3, output: 3 } } }');
    const { first } = await pricesOf('--file', file);
    assert.deepEqual(first.slice(0, 3), ['account', '2.0000', '3.0000']);
    assert.deepEqual(await pricesOf('--clear'), { own: null, first: ofPlan });
    const shown = await farebox('accounts', 'prices', 'alice');
    assert.match(shown.out, /atlas +input +2\.0000 +1\.8000 +1\.9000 +loss -5\.5 % +plan/);
  });

  test('invalid prices and plans are rejected with a reason', async () => {
    const file = join(folder, 'wrong.yaml');
    writeFileSync(file, 'models: { nothing: { discountPercent: 3 } }');
    const cases: readonly [argv: string[], message: RegExp][] = [
      [['accounts', 'prices', 'alice', '--discount', '120'], /percentage from 0 to 100/],
      [['accounts', 'prices', 'alice', '--file', file], /No configured model has this id/],
      [['accounts', 'prices', 'alice', '--clear', '--discount', '1'], /Use one of/],
      [['accounts', 'update', 'alice', '--plan', 'gol'], /There is no plan "gol".*gold/],
    ];
    for (const [argv, message] of cases) {
      const { code, err } = await farebox(...argv);
      assert.notEqual(code, 0, argv.join(' '));
      assert.match(err, message);
    }
  });

  test('`check` reports a plan that sells below the cost', async () => {
    const { out, err } = await farebox('check');
    assert.match(out + err, /price of atlas, plan gold/);
  });
});
