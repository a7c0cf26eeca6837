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
import { type Config, loadConfig } from '../../config/config.ts';
import { Fault } from '../../core/faults.ts';
import { TestClock } from '../../../test/support/test-clock.ts';
import { Catalog } from '../../catalog/catalog.ts';
import { LocalEngines } from './embedded.ts';
import { mediaOffers } from './offers.ts';
import { EngineProcess } from './supervisor.ts';
import {
  fetchingOutage,
  ModelFetch,
  type ModelFetchOptions,
  type ModelFile,
} from './model-files.ts';
import { findPackages, missingPackages, packageSet } from './packages.ts';
import { until } from '../../../test/support/until.ts';

const folder = mkdtempSync(join(tmpdir(), 'local-'));
after(() => rmSync(folder, { recursive: true }));
let entries = 0;

/** A child process that runs `code`. */
function childOf(
  code: string,
  clock: Clock = systemClock(),
  onMessage: (message: unknown) => void = () => undefined,
): EngineProcess {
  const path = join(folder, `entry-${(entries += 1)}.mjs`);
  writeFileSync(path, code);
  return new EngineProcess({
    name: 'sample',
    entry: pathToFileURL(path),
    settings: () => ({ greeting: 'hello' }),
    onMessage,
    log: silentLog,
    clock,
    ids: systemIds(),
  });
}

const SERVER = new URL('../../../engines/server/server.ts', import.meta.url).href;

describe('EngineProcess', () => {
  test('`address` rejects with 503 and the reason if the process cannot start', async () => {
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

  test('the reason that the process itself reports is in the error', async () => {
    const child = childOf(
      `import { serveEngine } from '${SERVER}';
       serveEngine(async () => { throw new Error('It needs the optional package "x"'); });`,
    );
    await assert.rejects(child.address(), { message: /needs the optional package "x"$/ });
    await child.close();
  });

  test('the process requires the secret, inherits no environment, and restarts at the same port', async () => {
    const child = childOf(
      `import { sendJson, serveEngine } from '${SERVER}';
       serveEngine(async (settings) => ({
         routes: {
           'GET /crash': () => process.exit(1),
           'GET /': (_request, response) =>
             sendJson(response, 200, { ...settings, environment: Object.keys(process.env).length }),
         },
       }));`,
    );
    const before = await child.address();
    const call = async (path: string, apiKey: string): Promise<Response> =>
      await fetch(`${before.url}${path}`, { headers: { authorization: `Bearer ${apiKey}` } });
    const body = (await (await call('/', before.apiKey)).json()) as Record<string, unknown>;
    assert.equal(body['greeting'], 'hello');
    assert.ok(Number(body['environment']) <= 3, 'it inherits no environment');
    assert.equal((await call('/', 'wrong')).status, 401);
    await assert.rejects(call('/crash', before.apiKey));
    // Restarts without a request.
    const comesBack = async (): Promise<number> =>
      await call('/', before.apiKey).then(
        ({ status }) => status,
        () => 0,
      );
    await until(async () => (await comesBack()) === 200, 'the next process');
    assert.deepEqual(await child.address(), before);
    const { pid } = child;
    await child.close();
    assert.throws(() => process.kill(pid!, 0), { code: 'ESRCH' });
  });

  test('a message sent while the process starts arrives when it serves', async () => {
    const echoed = Promise.withResolvers<unknown>();
    const child = childOf(
      `import { serveEngine } from '${SERVER}';
       serveEngine(async (settings, report) => {
         await new Promise((resolve) => setTimeout(resolve, 50));
         return { routes: {}, onMessage: (message) => report({ type: 'echo', message }) };
       });`,
      systemClock(),
      (message) => echoed.resolve(message),
    );
    const address = child.address();
    child.send({ type: 'early' });
    await address;
    assert.deepEqual(await echoed.promise, { type: 'echo', message: { type: 'early' } });
    await child.close();
  });

  test('a process that does not respond is killed and restarted', async () => {
    const clock = new TestClock();
    let echo = Promise.withResolvers<unknown>();
    const child = childOf(
      `import { serveEngine } from '${SERVER}';
       serveEngine(async (settings, report) => ({ routes: {}, onMessage: report }));`,
      clock,
      (message) => echo.resolve(message),
    );
    const before = await child.address();
    const { pid } = child;
    for (let check = 0; check < 20; check += 1) {
      clock.advance(15_000);
      // Messages arrive in order.
      echo = Promise.withResolvers();
      child.send({ type: 'echo' });
      await echo.promise;
    }
    assert.equal(child.pid, pid);
    process.kill(pid!, 'SIGSTOP');
    clock.advance(8 * 15_000);
    assert.equal(child.pid, pid, 'it has two minutes to respond');
    clock.advance(15_000);
    await until(() => child.pid !== pid, 'the end of the process');
    assert.equal(child.runningAt, undefined);
    clock.advance(100);
    assert.deepEqual(await child.address(), before);
    assert.notEqual(child.pid, pid);
    await child.close();
  });

  test('the pause before a restart grows with each crash', async () => {
    const clock = new TestClock();
    const child = childOf('', clock);
    const message = async (): Promise<string> => {
      const error: unknown = await child.address().catch((caught: unknown) => caught);
      await until(() => child.pid === undefined, 'the end of the process');
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

describe('ModelFetch', () => {
  const file = (name: string, sizeBytes: number): ModelFile => {
    return { name, url: `https://models.example/${name}`, sizeBytes, sha256: '', license: 'MIT' };
  };

  test('it reports the outage over all files, and returns their paths', async () => {
    const steps: Parameters<ModelFetchOptions['fetchModel']>[1][] = [];
    const gates = [Promise.withResolvers<string>(), Promise.withResolvers<string>()];
    const ready: string[][] = [];
    const fetch = new ModelFetch({
      name: 'sample',
      files: [file('a', 100), file('b', 300)],
      fetchModel: (_file, onProgress) => gates[steps.push(onProgress) - 1]!.promise,
      onReady: (paths) => ready.push([...paths]),
      log: silentLog,
      clock: new TestClock(),
    });
    fetch.start();
    fetch.start();
    assert.equal(steps.length, 1, 'a second use starts nothing');
    gates[0]!.resolve('/models/a');
    await until(() => steps.length === 2, 'the second file');
    steps[1]!({ bytesDone: 100, bytesPerSecond: 50 });
    assert.equal(fetch.outage()?.reason, 'is being downloaded: 50 %');
    gates[1]!.resolve('/models/b');
    await until(() => ready.length > 0, 'the end of the fetch');
    assert.deepEqual(ready, [['/models/a', '/models/b']]);
    assert.equal(fetch.outage(), undefined);
  });

  test('it retries a failed fetch on a use ten minutes later', async () => {
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
    fetch.start();
    const failed = { reason: 'could not be downloaded; the server tries again' };
    await until(() => fetch.outage()?.reason === failed.reason, 'the end of the fetch');
    assert.deepEqual(fetch.outage(), failed);
    fetch.start();
    clock.advance(599_999);
    fetch.start();
    assert.equal(tries, 1);
    clock.advance(1);
    fetch.start();
    assert.equal(tries, 2);
  });
});

test('`fetchingOutage` computes percentage and return time from the rate of the network', () => {
  const cases = [
    [{ bytesDone: 600, bytesPerSecond: 100 }, 60, 4_000],
    [{ bytesDone: 0, bytesPerSecond: 0 }, 0, 60_000],
    [{ bytesDone: 600, bytesPerSecond: 0.000_1 }, 60, 3_600_000],
  ] as const;
  for (const [fetched, percent, backAtMs] of cases) {
    const reason = `is being downloaded: ${percent} %`;
    assert.deepEqual(fetchingOutage(1_000, fetched, 0), { reason, backAtMs });
  }
});

test('`missingPackages` names the command that downloads them', () => {
  const nowhere = join(tmpdir(), seededIds(3).hex(4));
  const missing = { ...packageSet('cutout'), folder: 'cutout-of-another-version' };
  assert.equal(findPackages(missing, nowhere), undefined);
  assert.equal(
    missingPackages('cutout'),
    '"farebox engines pull cutout" downloads the missing onnxruntime-node, sharp',
  );
});

test('`packageSet` selects the packages of the lock for one kind of machine', () => {
  const on = (os: string, cpu: string, libc?: 'glibc' | 'musl'): string[] =>
    packageSet('cutout', { os, cpu, libc }).packages.map(({ name }) => name);
  assert.ok(on('linux', 'x64', 'glibc').includes('@img/sharp-linux-x64'));
  assert.ok(on('linux', 'arm64', 'musl').includes('@img/sharp-linuxmusl-arm64'));
  assert.ok(on('darwin', 'arm64').includes('@img/sharp-libvips-darwin-arm64'));
  assert.ok(!on('darwin', 'arm64').some((name) => /linux|win32|x64/.test(name)));
  const linux = { os: 'linux', cpu: 'x64', libc: 'glibc' } as const;
  const llama = packageSet('llama', linux).packages.map(({ name }) => name);
  assert.deepEqual(
    llama.filter((name) => name.startsWith('@node-llama-cpp/')),
    ['@node-llama-cpp/linux-x64'],
  );
  assert.ok(llama.length > 50, 'with all that it depends on');
  const sentences = packageSet('sentences', linux).packages.map(({ name }) => name);
  assert.ok(sentences.includes('@energetic-ai/core'), 'with a peer');
});

test('an engine of a provider package serves until a changed one runs, also after two changes', async () => {
  const configWith = (key: string): Promise<Config> =>
    configOf(`
embedded: { enabled: false }
discovery: { enabled: false }
engines: { clips: { provider: kling, settings: { accessKey: ${key}, secretKey: s } } }
`);
  const config = await configWith('one');
  const parts = { clock: systemClock(), ids: systemIds(), log: silentLog };
  const local = new LocalEngines({ ...parts, config, onChange: () => undefined });
  try {
    await local.start();
    const [first] = local.engines();
    assert.ok(first !== undefined);
    local.configure(await configWith('two'));
    local.configure(await configWith('three'));
    for (let last = first.url; last === first.url;) {
      const [now] = local.engines();
      assert.ok(now !== undefined, 'an engine serves at any time');
      last = now.url;
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  } finally {
    await local.stop();
  }
});

test('a changed default price applies to the embedded background removal', async () => {
  const configWith = (perImage: string): Promise<Config> =>
    configOf(`defaults: { price: { image: { perImage: ${perImage} } } }\n`);
  const config = await configWith('0.03');
  const parts = { clock: systemClock(), ids: systemIds(), log: silentLog };
  const onChange = (): void => undefined;
  const [describe] = await mediaOffers({ ...parts, config, onChange }, folder);
  const offer = describe!(onChange);
  const catalog = new Catalog({ settings: config, clock: parts.clock });
  const prices: unknown[] = [];
  for (const perImage of ['0.03', '0.05']) {
    catalog.configure(await configWith(perImage));
    catalog.setDiscovered(offer.models());
    const [model] = catalog.models();
    prices.push(model?.type, model?.price?.perImage);
  }
  assert.deepEqual(prices, ['inpaint', 30_000_000n, 'inpaint', 50_000_000n]);
});

async function configOf(yaml: string): Promise<Config> {
  const readFile = async (path: string) => (path.endsWith('farebox.yaml') ? yaml : undefined);
  const loaded = await loadConfig({ env: { FAREBOX_DATA: folder }, cwd: folder, readFile });
  assert.ok(loaded.ok);
  return loaded.config;
}
