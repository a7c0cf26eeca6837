import assert from 'node:assert/strict';
import { mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';

import { type Clock, systemClock } from '../core/clock.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { ConfigWatch, formatProblem, loadConfig, type LoadedConfig } from './config.ts';

/** A configuration that makes `onConfig` throw. */
const BROKEN = 13;

async function setUp(t: TestContext, clock: Clock) {
  const folder = await mkdtemp(join(tmpdir(), 'farebox-config-'));
  const file = join(folder, 'farebox.yaml');
  await writeFile(file, 'limits: { walletConcurrency: 5 }\n');
  const load = () => loadConfig({ env: {}, cwd: folder });
  const first = await load();
  assert.ok(first.ok);
  const seen: string[] = [];
  const failures: LoadedConfig[] = [];
  let loads = 0;
  let wake: () => void = () => undefined;
  const watch = new ConfigWatch({
    current: first,
    files: [file],
    load: async () => {
      loads += 1;
      return failures.shift() ?? load();
    },
    clock,
    onConfig: (config, difference) => {
      seen.push(`${config.limits.walletConcurrency} ${difference.changed.join(',')}`);
      wake();
      if (config.limits.walletConcurrency === BROKEN) throw new Error('It could not be applied');
    },
    onProblems: (problems) => {
      seen.push(problems.map(formatProblem).join('\n'));
      wake();
    },
  });
  t.after(async () => {
    watch.stop();
    await rm(folder, { recursive: true });
  });
  const next = () => new Promise<void>((resolve) => (wake = resolve));
  return { file, seen, failures, watch, next, loads: () => loads };
}

test('unchanged files are not loaded again', async (t) => {
  const { file, watch, loads } = await setUp(t, new TestClock());
  await watch.check();
  assert.equal(loads(), 0);
  const prices = join(file, '..', 'prices.json');
  await writeFile(prices, '{}');
  await writeFile(file, 'priceFile: prices.json\n');
  await watch.check();
  await watch.check();
  assert.equal(loads(), 1);
  await watch.check(true);
  assert.equal(loads(), 2);
});

test('the first check finds a change between loading and watching', async (t) => {
  const { file, seen, watch } = await setUp(t, new TestClock());
  await writeFile(file, 'limits: { walletConcurrency: 6 }\n');
  await watch.check();
  assert.deepEqual(seen, ['6 limits']);
});

test('a failed check does not prevent the next one', async (t) => {
  const { file, seen, watch } = await setUp(t, new TestClock());
  await writeFile(file, `limits: { walletConcurrency: ${BROKEN} }\n`);
  await assert.rejects(watch.check(), /could not be applied/);
  await writeFile(file, 'limits: { walletConcurrency: 6 }\n');
  await watch.check();
  assert.deepEqual(seen, [`${BROKEN} limits`, '6 limits']);
});

test('a changed file that could not be read is loaded again', async (t) => {
  const { file, seen, failures, watch } = await setUp(t, new TestClock());
  const prices = join(file, '..', 'prices.json');
  const priced = (input: string) =>
    writeFile(prices, `{"m": {"input_cost_per_token": ${input}, "output_cost_per_token": 1e-06}}`);
  await priced('1e-06');
  await writeFile(file, 'priceFile: prices.json\nmodels: [{ id: a, import: m, context: 10 }]\n');
  await watch.check();
  const problem = { file: 'configuration', path: '', message: 'Could not be loaded: no memory' };
  const failure = { ok: false, problems: [problem], sources: [] } as const;
  failures.push(failure, failure);
  await priced('2e-06');
  for (let checks = 0; checks < 4; checks += 1) await watch.check();
  await priced('3e-06');
  await watch.check();
  assert.deepEqual(seen, ['5 models', formatProblem(problem), '5 models', '5 models']);
});

test('valid changes are reported as configurations and invalid ones as problems', async (t) => {
  const { file, seen, watch } = await setUp(t, new TestClock());
  await watch.check();
  assert.deepEqual(seen, [], 'an unchanged file is no news');
  await writeFile(file, 'limits: { walletConcurrency: 6 }\n');
  await watch.check();
  await writeFile(file, 'limits: { walletConcurrency: many }\n');
  await watch.check();
  await watch.check(true);
  await writeFile(file, '# a comment\nlimits: { walletConcurrency: 6 }\n');
  await watch.check();
  await writeFile(file, 'limits: { walletConcurrency: 7 }\n');
  await watch.check();
  assert.deepEqual(seen, [
    '6 limits',
    'farebox.yaml:1:30: limits.walletConcurrency: Must be a whole number, not "many"',
    '7 limits',
  ]);
});

test('a section that needs a restart is reported until the file has its old value again', async (t) => {
  const { file, seen, watch } = await setUp(t, new TestClock());
  const limits = (walletConcurrency: number) =>
    `limits: { walletConcurrency: ${walletConcurrency} }\n`;
  for (const text of [
    `${limits(5)}listen: { port: 1 }\n`,
    `${limits(6)}listen: { port: 1 }\n`,
    limits(6),
    limits(5),
  ]) {
    await writeFile(file, text);
    await watch.check();
  }
  assert.deepEqual(seen, ['5 listen', '6 listen,limits', '5 limits']);
});

test('the settings of a file that disappears stay in force', async (t) => {
  const { file, seen, watch } = await setUp(t, new TestClock());
  await rm(file);
  for (const isForced of [false, false, true]) await watch.check(isForced);
  await writeFile(file, 'limits: { walletConcurrency: 6 }\n');
  await watch.check();
  assert.deepEqual(seen, [
    'farebox.yaml: The file does not exist any more; an empty file removes all settings',
    '6 limits',
  ]);
});

test('a price file is watched after the configuration names it', async (t) => {
  const { file, seen, watch } = await setUp(t, new TestClock());
  const prices = join(file, '..', 'prices.json');
  await writeFile(
    prices,
    '{"m": {"input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06, "max_tokens": 10}}',
  );
  await writeFile(file, 'priceFile: prices.json\nmodels: [{ id: a, import: m }]\n');
  await watch.check();
  await writeFile(
    prices,
    '{"m": {"input_cost_per_token": 3e-06, "output_cost_per_token": 2e-06, "max_tokens": 10}}',
  );
  await watch.check();
  assert.deepEqual(seen, ['5 models', '5 models']);
});

test('a change is found without polling, also if an editor replaces the file', async (t) => {
  const { file, seen, watch, next } = await setUp(t, systemClock());
  await watch.check();
  const changed = next();
  await writeFile(`${file}.new`, 'limits: { walletConcurrency: 9 }\n');
  await rename(`${file}.new`, file);
  await changed;
  assert.deepEqual(seen, ['9 limits']);
});

test('a stopped watch reports nothing more', async (t) => {
  const { file, seen, watch } = await setUp(t, new TestClock());
  watch.stop();
  await writeFile(file, 'limits: { walletConcurrency: 6 }\n');
  await watch.check();
  assert.deepEqual(seen, []);
});
