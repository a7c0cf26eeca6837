/**
 * Unhandled errors in real servers: an unhandled rejection ends nothing, in one process and in each
 * worker; an uncaught exception ends its process.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { emptyPostgresDatabase, startPostgres, type TestPostgres } from '../databases/postgres.ts';
import { type FareboxProcess, removeFolder, startFarebox } from './farebox-process.ts';

const STRAY = `
process.on('SIGUSR2', () => {
  const error = new Error('HTTP request failed at https://node.test/v2/access-key-1234 with Bearer abcdef');
  error.cause = new Error('key 0x' + 'ab'.repeat(32) + ' of SVC_INFERENCE_KEY_abcdefghijklmnopqrstuvwxyz');
  void Promise.reject(error);
});
process.on('SIGALRM', () => { throw new TypeError('Cannot read half of it'); });
`;
const PATIENCE_MS = 90_000;
const YAML = `listen: { host: 127.0.0.1, port: 0 }
embedded: { enabled: false }
discovery: { enabled: false }
`;

let folder: string;
let postgres: TestPostgres;

before(async () => {
  folder = mkdtempSync(join(tmpdir(), 'farebox-stray-'));
  writeFileSync(join(folder, 'stray.mjs'), STRAY);
  postgres = await startPostgres();
});

after(async () => {
  await postgres.stop();
  rmSync(folder, { recursive: true, force: true });
});

async function start(yaml: string, args: readonly string[] = []): Promise<FareboxProcess> {
  const nodeOptions = `--import=${pathToFileURL(join(folder, 'stray.mjs')).href}`;
  return await startFarebox({ yaml: `${YAML}${yaml}`, args, nodeOptions });
}

async function until(farebox: FareboxProcess, isTrue: () => Promise<boolean>): Promise<void> {
  for (const endMs = Date.now() + PATIENCE_MS; !(await isTrue());) {
    assert.ok(Date.now() < endMs, farebox.output());
    await new Promise((resolve) => {
      setTimeout(resolve, 20);
    });
  }
}

/** Metrics of the process that responds. */
async function counted(farebox: FareboxProcess): Promise<number> {
  const answer = await fetch(`${new URL(farebox.url).origin}/readyz`, {
    headers: { connection: 'close' },
  });
  const { parts } = (await answer.json()) as {
    parts: { server: { unhandledRejections: number } };
  };
  return parts.server.unhandledRejections;
}

function assertLogged(farebox: FareboxProcess): void {
  assert.match(farebox.output(), /Unhandled promise rejection/);
  assert.match(farebox.output(), /Error: HTTP request failed at <url>/);
  assert.match(farebox.output(), /stray\.mjs:3/);
  for (const secret of ['access-key', 'abcdef', 'abababab']) {
    assert.ok(!farebox.output().includes(secret), secret);
  }
}

test('an unhandled rejection is logged and counted, and the server continues', async () => {
  const farebox = await start('');
  try {
    assert.equal(await counted(farebox), 0);
    for (const count of [1, 2]) {
      farebox.child.kill('SIGUSR2');
      await until(farebox, async () => (await counted(farebox)) === count);
    }
    const metrics = await (await fetch(`${new URL(farebox.url).origin}/metrics`)).text();
    assert.match(metrics, /^farebox_unhandled_rejections_total 2$/m);
    assertLogged(farebox);
    // An uncaught exception ends the process immediately; the data on disk is consistent.
    farebox.child.kill('SIGALRM');
    await until(farebox, async () => await Promise.resolve(farebox.child.exitCode !== null));
    assert.equal(farebox.child.exitCode, 1);
    assert.match(farebox.output(), /uncaught exception ends this process/);
    assert.match(farebox.output(), /TypeError: Cannot read half of it/);
  } finally {
    await farebox.stop('SIGKILL');
    removeFolder(farebox);
  }
});

test('an unhandled rejection does not end a worker or the first process, and an ended worker is restarted', async () => {
  const database = await emptyPostgresDatabase();
  const farebox = await start(`database: ${JSON.stringify(database)}\n`, ['--workers', '2']);
  try {
    const workers = (): number[] =>
      [...farebox.output().matchAll(/"worker":(\d+),"msg":"Worker listens"/g)].map(([, pid]) =>
        Number(pid),
      );
    await until(farebox, async () => await Promise.resolve(workers().length === 2));
    const [first = 0] = workers();
    process.kill(first, 'SIGUSR2');
    await until(farebox, async () => (await counted(farebox)) === 1);
    farebox.child.kill('SIGUSR2');
    const lines = (): number => farebox.output().split('Unhandled promise rejection').length - 1;
    await until(farebox, async () => await Promise.resolve(lines() === 2));
    assertLogged(farebox);
    process.kill(first, 'SIGALRM');
    await until(farebox, async () => await Promise.resolve(workers().length === 3));
    assert.equal(farebox.child.exitCode, null);
  } finally {
    await farebox.stop();
    removeFolder(farebox);
  }
});
