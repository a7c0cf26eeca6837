import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { endWithUs } from './end-with-us.ts';
import type { FileTimes } from './file-times.ts';

const RUN_FILES = fileURLToPath(new URL('../run-files.ts', import.meta.url));
const FILE_REPORT = fileURLToPath(new URL('file-report.ts', import.meta.url));
const FILE_TIMES = fileURLToPath(new URL('file-times.ts', import.meta.url));

/** `later` resolves after the work that a test started has thrown. */
const HEAD = `
  import { createServer } from 'node:http';
  import { once } from 'node:events';
  import { setTimeout as later } from 'node:timers/promises';
  import { describe, test } from 'node:test';
`;

describe('a process of tests', () => {
  let folder: string;

  before(() => {
    folder = mkdtempSync(join(tmpdir(), 'test-scopes-'));
  });
  after(() => rmSync(folder, { recursive: true }));

  async function run(source: string) {
    const [list, taken, times] = ['list', 'taken', 'times'].map((name) => join(folder, name));
    const file = join(folder, 'inner.test.mjs');
    writeFileSync(file, HEAD + source);
    writeFileSync(list!, file);
    rmSync(taken!, { recursive: true, force: true });
    mkdirSync(taken!);
    const reporters = Object.entries({ [FILE_REPORT]: 'stdout', [FILE_TIMES]: times });
    const options = reporters.flatMap(([module, to]) => [
      `--test-reporter=${module}`,
      `--test-reporter-destination=${to}`,
    ]);
    const child = endWithUs(
      spawn(process.execPath, ['--test-force-exit', ...options, RUN_FILES, list!, taken!], {
        stdio: ['ignore', 'pipe', 'inherit'],
      }),
    );
    let output = '';
    child.stdout.on('data', (part) => (output += String(part)));
    const [code] = (await once(child, 'close')) as [number];
    const { tests, pass, fail } = JSON.parse(readFileSync(times!, 'utf8')) as FileTimes;
    return { code, output, tests, pass, fail };
  }

  test('an uncaught error fails the test that caused it', async () => {
    const { code, output, ...counts } = await run(`
      const fails = {
        timer: () => setTimeout(() => { throw new Error('of timer'); }),
        tick: () => process.nextTick(() => { throw new Error('of tick'); }),
        rejection: () => void Promise.reject(new Error('of rejection')),
        late: async () => { await later(1); throw new Error('of late'); },
        server: async () => {
          const server = createServer(() => { server.close(); throw new Error('of server'); });
          await once(server.listen(0, '127.0.0.1'), 'listening');
          void fetch('http://127.0.0.1:' + server.address().port).catch(() => undefined);
        },
      };
      await later(1);
      describe('errors', () => {
        for (const [name, begin] of Object.entries(fails)) {
          test(name, async () => { void begin(); await later(20_000); });
          test('after ' + name, () => later(1));
        }
      });
    `);
    assert.deepEqual(counts, { tests: 10, pass: 5, fail: 5 }, output);
    for (const name of ['timer', 'tick', 'rejection', 'late', 'server']) {
      assert.match(
        output,
        new RegExp(`✖ ${name} .*\\n.*Error: of ${name}|\\[Error: of ${name}\\]`),
      );
      assert.match(output, new RegExp(`✔ after ${name}`));
    }
    assert.notEqual(code, 0);
  });

  test('an error after its test fails the process with the message', async () => {
    const { code, output, ...counts } = await run(`
      test('first', () => void setTimeout(() => { throw new Error('too late'); }, 20));
      test('second', () => later(200));
    `);
    assert.deepEqual(counts, { tests: 2, pass: 2, fail: 0 }, output);
    assert.match(output, /Test "first".* created the error "Error: too late"/);
    assert.notEqual(code, 0);
  });

  test('subtests belong to their test', async () => {
    const { code, output, ...counts } = await run(`
      test('outer', async (t) => {
        await later(1);
        await t.test('of t', () => later(1));
        await test('by name', () => later(1));
      });
    `);
    assert.deepEqual(counts, { tests: 3, pass: 3, fail: 0 }, output);
    assert.match(output, /▶ outer\n.*✔ of t .*\n.*✔ by name /);
    assert.equal(code, 0);
  });
});
