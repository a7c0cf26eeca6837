import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { systemIds } from '../../core/ids.ts';
import { seededIds } from '../../../test/support/seeded-ids.ts';
import { silentLog } from '../../core/log.ts';
import { type Clock, systemClock } from '../../core/clock.ts';
import { Fault } from '../../core/faults.ts';
import { TestClock } from '../../../test/support/test-clock.ts';
import { LocalChild } from './local-child.ts';
import { ModelFetch, type ModelFile } from './model-fetch.ts';
import { optionalPackage } from './optional-package.ts';
import { refusalFault } from './refusal.ts';
import { Turns } from './turns.ts';

const folder = mkdtempSync(join(tmpdir(), 'local-'));
after(() => rmSync(folder, { recursive: true }));
let entries = 0;

/** A child whose whole program is `code`. */
function childOf(code: string, clock: Clock = systemClock()): LocalChild {
  const path = join(folder, `entry-${(entries += 1)}.mjs`);
  writeFileSync(path, code);
  return new LocalChild({
    name: 'sample',
    entry: pathToFileURL(path),
    settings: () => ({ greeting: 'hello' }),
    log: silentLog,
    clock,
    ids: systemIds(),
  });
}

const SERVER = new URL('./local-server.ts', import.meta.url).href;

describe('LocalChild', () => {
  test('tells the sentence with which a start failed, as 503', async () => {
    const child = childOf('');
    await assert.rejects(child.address(), (error: unknown) => {
      assert.ok(error instanceof Fault);
      assert.equal(error.status, 503);
      assert.match(
        error.message,
        /^The sample engine is not available: it ended while it started$/,
      );
      return true;
    });
    await child.close();
    await assert.rejects(child.address(), { code: 'SHUTTING_DOWN' });
  });

  test('tells why the child itself could not start', async () => {
    const child = childOf(
      `import { serveLocal } from '${SERVER}';
       serveLocal(async () => { throw new Error('It needs the optional package "x"'); });`,
    );
    await assert.rejects(child.address(), { message: /needs the optional package "x"$/ });
    await child.close();
  });

  test('serves with its settings to whoever has the secret, at the same port after a crash', async () => {
    const child = childOf(
      `import { answerJson, serveLocal } from '${SERVER}';
       serveLocal(async (settings) => ({
         handle: async (request, response) => {
           if (request.path === '/crash') process.exit(1);
           answerJson(response, 200, { ...settings, environment: Object.keys(process.env).length });
         },
       }));`,
    );
    const before = await child.address();
    const ask = async (path: string, apiKey: string): Promise<Response> =>
      await fetch(`${before.url}${path}`, { headers: { authorization: `Bearer ${apiKey}` } });
    const answer = (await (await ask('/', before.apiKey)).json()) as Record<string, unknown>;
    assert.equal(answer['greeting'], 'hello');
    assert.ok(Number(answer['environment']) <= 3, 'it inherits no environment');
    assert.equal((await ask('/', 'wrong')).status, 401);
    await assert.rejects(ask('/crash', before.apiKey));
    // Nobody asks for it: it comes back by itself.
    const comesBack = async (): Promise<number> =>
      await ask('/', before.apiKey).then(
        ({ status }) => status,
        () => 0,
      );
    while ((await comesBack()) !== 200) await new Promise(setImmediate);
    assert.deepEqual(await child.address(), before);
    const { pid } = child;
    await child.close();
    assert.throws(() => process.kill(pid!, 0), { code: 'ESRCH' });
  });

  test('pauses after repeated crashes, longer each time', async () => {
    const clock = new TestClock();
    const child = childOf('', clock);
    const message = async (): Promise<string> => {
      const error: unknown = await child.address().catch((caught: unknown) => caught);
      while (child.pid !== undefined) await new Promise(setImmediate);
      return error instanceof Error ? error.message : '';
    };
    assert.match(await message(), /it ended while it started/);
    assert.match(await message(), /it ended while it started/);
    assert.match(await message(), /it crashed repeatedly/);
    clock.advance(500);
    assert.match(await message(), /it ended while it started/);
    clock.advance(500);
    assert.match(await message(), /it crashed repeatedly/);
    clock.advance(400);
    assert.match(await message(), /it crashed repeatedly/);
    await child.close();
  });
});

describe('Turns', () => {
  const limits = { running: 1, waiting: 1, retryAfterSeconds: 3 };
  const calm = new AbortController().signal;

  test('work runs one after the other, and beyond the line it is refused', async () => {
    const turns = new Turns(limits);
    const gate = Promise.withResolvers<string>();
    const first = turns.run(() => gate.promise, calm);
    const second = turns.run(async () => 'second', calm);
    await assert.rejects(
      turns.run(async () => 'third', calm),
      { code: 'MODEL_AT_CAPACITY' },
    );
    gate.resolve('first');
    assert.deepEqual(await Promise.all([first, second]), ['first', 'second']);
    assert.equal(await turns.run(async () => 'later', calm), 'later');
  });

  test('whoever leaves the line gives its place back', async () => {
    const turns = new Turns(limits);
    const gate = Promise.withResolvers<void>();
    const first = turns.run(() => gate.promise, calm);
    const aborter = new AbortController();
    const left = turns.run(async () => 'never', aborter.signal);
    aborter.abort();
    await assert.rejects(left, { name: 'AbortError' });
    const next = turns.run(async () => 'next', calm);
    gate.resolve();
    await first;
    assert.equal(await next, 'next');
  });

  test('the long line of one holder holds nobody else up, and is bounded by itself', async () => {
    const turns = new Turns({ running: 2, waiting: 10, waitingOfHolder: 4, retryAfterSeconds: 3 });
    const order: string[] = [];
    const gate = Promise.withResolvers<void>();
    const work = (name: string, holder: string): Promise<void> =>
      turns.run(
        async () => {
          order.push(name);
          await gate.promise;
        },
        calm,
        holder,
      );
    const all = [1, 2, 3, 4, 5, 6].map((index) => work(`greedy ${index}`, 'greedy'));
    await assert.rejects(work('greedy 7', 'greedy'), { code: 'MODEL_AT_CAPACITY' });
    all.push(work('other 1', 'other'), work('other 2', 'other'));
    gate.resolve();
    await Promise.all(all);
    assert.deepEqual(order.slice(0, 4), ['greedy 1', 'greedy 2', 'other 1', 'greedy 3']);
    assert.equal(order.length, 8);
  });

  test('work that throws passes the turn on', async () => {
    const turns = new Turns(limits);
    await assert.rejects(
      turns.run(() => Promise.reject(new Error('no')), calm),
      /no/,
    );
    assert.equal(await turns.run(async () => 1, calm), 1);
  });
});

describe('ModelFetch', () => {
  const file = (name: string, sizeBytes: number): ModelFile => {
    return { name, url: `https://models.example/${name}`, sizeBytes, sha256: '', license: 'MIT' };
  };

  test('tells fraction and remaining time over all files, and hands the paths over', async () => {
    const clock = new TestClock();
    const steps: ((bytes: number) => void)[] = [];
    const gates = [Promise.withResolvers<string>(), Promise.withResolvers<string>()];
    const ready: string[][] = [];
    const fetch = new ModelFetch({
      name: 'sample',
      files: [file('a', 100), file('b', 300)],
      fetchModel: (_file, onProgress) => gates[steps.push(onProgress) - 1]!.promise,
      onReady: (paths) => ready.push([...paths]),
      log: silentLog,
      clock,
    });
    assert.deepEqual(fetch.progress(), {
      state: 'idle',
      fraction: 0,
      remainingMs: undefined,
      error: undefined,
    });
    fetch.want();
    fetch.want();
    assert.equal(steps.length, 1, 'a second wish starts nothing');
    // Half of it was here from an earlier try: it does not count for the pace.
    steps[0]!(50);
    clock.advance(1_000);
    steps[0]!(100);
    assert.equal(fetch.progress().fraction, 0.25);
    assert.equal(fetch.progress().remainingMs, 6_000);
    gates[0]!.resolve('/models/a');
    await new Promise(setImmediate);
    gates[1]!.resolve('/models/b');
    await new Promise(setImmediate);
    assert.deepEqual(ready, [['/models/a', '/models/b']]);
    assert.deepEqual([fetch.progress().state, fetch.progress().fraction], ['ready', 1]);
  });

  test('a failed fetch is told and tried again at a wish ten minutes later', async () => {
    const clock = new TestClock();
    let tries = 0;
    const fetch = new ModelFetch({
      name: 'sample',
      files: [file('a', 100)],
      fetchModel: () => Promise.reject(new Error(`no network ${(tries += 1)}`)),
      onReady: () => assert.fail('never ready'),
      log: silentLog,
      clock,
    });
    fetch.want();
    await new Promise(setImmediate);
    assert.deepEqual([fetch.progress().state, fetch.progress().error], ['failed', 'no network 1']);
    fetch.want();
    clock.advance(599_999);
    fetch.want();
    assert.equal(tries, 1);
    clock.advance(1);
    fetch.want();
    assert.equal(tries, 2);
  });
});

test('optionalPackage() says how to add a package that is missing', async () => {
  const name = `missing-${seededIds(3).hex(4)}`;
  await assert.rejects(optionalPackage(name, 'Background removal'), {
    code: 'SERVICE_UNAVAILABLE',
    message: `Background removal needs the optional package "${name}": run \`npm install ${name}\` beside Farebox and start again`,
  });
});

describe('refusalFault()', () => {
  const byStatus = { 422: 'CORRUPTED_IMAGE' } as const;
  const fault = (status: number, body: string, isOwn = true): string[] => {
    const { code, message } = refusalFault(
      { status, body: Buffer.from(body), isOwn },
      byStatus,
      'INFERENCE_FAILED',
    );
    return [code, message];
  };

  test('takes the code and the words of our own engines', () => {
    assert.deepEqual(fault(400, '{"error":"Too small","code":"IMAGE_TOO_SMALL"}'), [
      'IMAGE_TOO_SMALL',
      'Too small',
    ]);
  });

  test('goes by the status for engines of others, and never takes a code of another status', () => {
    const said = '{"error":{"message":"cuda out of memory at 0x7f"},"code":"IMAGE_TOO_SMALL"}';
    for (const status of [400, 422]) {
      const [code, message] = fault(status, said, false);
      assert.equal(code, status === 422 ? 'CORRUPTED_IMAGE' : 'INFERENCE_FAILED');
      assert.doesNotMatch(message!, /cuda/);
    }
    assert.equal(fault(422, '{"error":"x","code":"INSUFFICIENT_BALANCE"}')[0], 'CORRUPTED_IMAGE');
    assert.equal(fault(418, '<html>')[0], 'INFERENCE_FAILED');
  });
});
