/**
 * Several real processes on one PostgreSQL: money and limits are exact across them, and neither a
 * killed process, a stopped database nor a cut network loses a settle, doubles one, or leaves a
 * hold behind.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { Pool } from 'undici';
import { systemClock } from '../../src/core/clock.ts';
import { type CutProxy, startCutProxy } from '../databases/cut-proxy.ts';
import { type TestPostgres, emptyPostgresDatabase, startPostgres } from '../databases/postgres.ts';
import type { FareboxProcess } from './farebox-process.ts';
import { caps } from './lease-caps.ts';
import {
  AT_ONCE_MS,
  COST_USD,
  PATIENCE_MS,
  ProcessFixture,
  type Seen,
  THINKING,
  ask,
  burst,
  count,
  keepAsking,
  readBooks,
  soon,
} from './process-fixture.ts';

interface View {
  readonly process: string;
  readonly engines: readonly { readonly replicas: readonly { readonly calls: number }[] }[];
}

/** Requests a minute: more than are under way at once. */
const LIMIT = 200;
/** About a dozen callers per process, with a slow engine, so that some requests always run. */
const PAUSE_MS = 90;
/** Callers that reach a limit per minute. */
const CAPS_PAUSE_MS = 10;

let servers: ProcessFixture;
const start: ProcessFixture['start'] = (...of) => servers.start(...of);
const end: ProcessFixture['end'] = (...of) => servers.end(...of);

before(async () => {
  servers = await ProcessFixture.open();
});
after(() => servers.close());

test('two processes that start together create one owner, and 1,000 requests with credit for 200 serve 200', async () => {
  const database = await emptyPostgresDatabase();
  const settings = { database, creditUsd: '0.002' };
  const processes = await Promise.all([start(settings), start(settings)]);
  const secrets = processes.flatMap((one) => one.secret ?? []);
  assert.equal(secrets.length, 1);
  const secret = secrets[0] ?? '';
  // Fewer than can wait for credit at the same time; above that the response is 429.
  const seen = await burst(processes, secret, 1_000, 24);
  const served = count(seen, (one) => one.status === 200);
  assert.deepEqual([served, count(seen, (one) => one.status === 402)], [200, 800]);
  assert.ok(seen.every((one) => one.status !== 200 || one.usd === COST_USD));
  const books = await readBooks(database);
  assert.deepEqual([books.openHolds, books.paid.size], [0, 200]);
  for (const farebox of processes) assert.equal(await end(farebox), 0);
});

test('two processes together serve exactly the limit in each window', async () => {
  const database = await emptyPostgresDatabase();
  const settings = { database, requestsPerMinute: LIMIT };
  const first = await start(settings);
  const second = await start(settings);
  const seen = await burst([first, second], first.secret ?? '', 5 * LIMIT);
  const windows = Map.groupBy(seen, (one) => one.window);
  for (const [window, answers] of windows) {
    const passed = count(answers, (one) => one.status === 200);
    const refused = count(answers, (one) => one.status === 429);
    assert.equal(passed + refused, answers.length, window);
    if (refused > 0) assert.equal(passed, LIMIT, window);
    else assert.ok(passed <= LIMIT, window);
  }
  assert.ok(count(seen, (one) => one.status === 429) > 0);
  for (const farebox of [first, second]) assert.equal(await end(farebox), 0);
});

test('a cap, a budget and a rate limit stay exact if a process with leases is killed', async () => {
  const ends: (() => Promise<unknown>)[] = [];
  const database = await emptyPostgresDatabase();
  try {
    await caps({ servers, database, ends, pauseMs: CAPS_PAUSE_MS }, 1, 2);
  } finally {
    for (const stop of ends) await stop();
  }
});

test('workers share a port, are restarted after a kill, and drain after SIGTERM', async () => {
  const database = await emptyPostgresDatabase();
  const farebox = await start({ database }, ['--workers', '2']);
  assert.equal(farebox.output().match(/listens on/g)?.length, 1);
  const workers = await soon('two workers', PATIENCE_MS, async () => {
    const found = await childrenOf(farebox.child.pid ?? 0);
    return found.length === 2 ? found : undefined;
  });
  const secret = farebox.secret ?? '';
  const seen = await burst([farebox], secret, 400);
  assert.equal(
    count(seen, (one) => one.status === 200),
    400,
  );
  process.kill(workers[0] ?? 0, 'SIGKILL');
  await soon('a new worker', PATIENCE_MS, async () => {
    const now = await childrenOf(farebox.child.pid ?? 0);
    return now.length === 2 && !now.includes(workers[0] ?? 0) ? now : undefined;
  });
  const again = await burst([farebox], secret, 400);
  assert.equal(
    count(again, (one) => one.status === 200),
    400,
  );
  // Any worker says what all of them have counted since they began.
  const page = await soon('figures of both workers', PATIENCE_MS, async () => {
    const text = await (await fetch(`${new URL(farebox.url).origin}/metrics`)).text();
    const labels = new Set([...text.matchAll(/worker="(\d+)"/g)].map(([, worker]) => worker));
    return labels.size === 2 ? text : undefined;
  });
  const answered = [...page.matchAll(/^farebox_requests_total\{.*status="200"\} (\d+)$/gm)];
  const sum = answered.reduce((total, [, value]) => total + Number(value), 0);
  assert.ok(sum >= 400, page);
  assert.equal(page.match(/^# TYPE farebox_requests_total /gm)?.length, 1);
  // The same of the engines: what one process sees is not all.
  const engines = await fetch(`${farebox.url}/admin/engines`, {
    headers: { authorization: `Bearer ${secret}` },
  });
  const { others, ...own } = (await engines.json()) as View & { others: readonly View[] };
  const views = [own, ...others];
  assert.equal(new Set(views.map((view) => view.process)).size, 2);
  const calls = views.flatMap((view) => view.engines.flatMap(({ replicas }) => replicas));
  assert.ok(calls.reduce((total, replica) => total + replica.calls, 0) >= 400);
  assert.equal(await end(farebox), 0);
  const books = await readBooks(database);
  assert.deepEqual([books.openHolds, books.paid.size], [0, 800]);
});

test('all workers are restarted if all of them are killed at once', async () => {
  const database = await emptyPostgresDatabase();
  const farebox = await start({ database }, ['--workers', '2']);
  const workersOf = () => childrenOf(farebox.child.pid ?? 0);
  const before = await soon('two workers', PATIENCE_MS, async () => {
    const found = await workersOf();
    return found.length === 2 ? found : undefined;
  });
  for (const worker of before) process.kill(worker, 'SIGKILL');
  await soon('two new workers', PATIENCE_MS, async () => {
    const now = await workersOf();
    return now.length === 2 && now.every((one) => !before.includes(one)) ? now : undefined;
  });
  assert.equal(await end(farebox), 0);
});

test('a worker that cannot be started is tried again', async () => {
  const database = await emptyPostgresDatabase();
  const farebox = await start({ database }, ['--workers', '2']);
  const pid = farebox.child.pid ?? 0;
  const limit = (files: number): void => {
    execFileSync('prlimit', ['--pid', String(pid), `--nofile=${files}:`]);
  };
  const [worker = 0, other = 0] = await childrenOf(pid);
  // The first process has more open files already.
  limit(10);
  process.kill(worker, 'SIGKILL');
  await soon('a failed start', PATIENCE_MS, async () =>
    farebox.output().includes('EMFILE') ? true : undefined,
  );
  limit(4_096);
  await soon('a new worker', PATIENCE_MS, async () => {
    const now = await childrenOf(pid);
    return now.length === 2 && now.includes(other) ? now : undefined;
  });
  assert.equal(await end(farebox), 0);
});

test('a worker that cannot start while the database is unreachable starts again', async () => {
  const postgres = await startPostgres();
  try {
    const farebox = await start({ database: postgres.url('postgres') }, ['--workers', '2']);
    const workersOf = () => childrenOf(farebox.child.pid ?? 0);
    const before = await workersOf();
    const news = async () => (await workersOf()).filter((one) => !before.includes(one));
    await postgres.stop('SIGKILL');
    process.kill(before[0] ?? 0, 'SIGKILL');
    const [first] = await soon('a new worker', PATIENCE_MS, async () => {
      const found = await news();
      return found.length === 1 ? found : undefined;
    });
    await soon(
      'its end',
      PATIENCE_MS,
      async () => !(await news()).includes(first ?? 0) || undefined,
    );
    await postgres.start();
    const headers = { authorization: `Bearer ${farebox.secret ?? ''}` };
    await soon('two workers that serve', PATIENCE_MS, async () => {
      const view = await fetch(`${farebox.url}/admin/engines`, { headers });
      const { others } = (await view.json()) as { readonly others?: readonly View[] };
      return others?.length === 1 ? true : undefined;
    });
    assert.equal(await end(farebox), 0);
  } finally {
    await postgres.close();
  }
});

test('a restarted worker has the settings of the others, whatever the file says', async () => {
  const [database, another] = [await emptyPostgresDatabase(), await emptyPostgresDatabase()];
  const farebox = await start({ database }, ['--workers', '2']);
  const file = join(farebox.folder, 'farebox.yaml');
  const yaml = readFileSync(file, 'utf8');
  const moved = yaml.replace(database, another).replace('level: warn', 'level: info');
  const times = (text: string): number => farebox.output().split(text).length - 1;
  for (const [text, report, listening] of [
    [moved, 'Restart the server to apply', 1],
    ['rpc: 5', 'it is not valid', 2],
  ] as const) {
    writeFileSync(file, text);
    await soon(report, PATIENCE_MS, async () => (times(report) >= 2 ? true : undefined));
    const [worker = 0] = await childrenOf(farebox.child.pid ?? 0);
    process.kill(worker, 'SIGKILL');
    await soon('a new worker', PATIENCE_MS, async () =>
      times('Worker listens') === listening ? true : undefined,
    );
    const seen = await burst([farebox], farebox.secret ?? '', 40);
    assert.equal(
      count(seen, (one) => one.status === 200),
      40,
    );
  }
  assert.equal(await end(farebox), 0);
  assert.equal((await readBooks(database)).paid.size, 80);
});

describe('two workers', () => {
  let database: string;
  let farebox: FareboxProcess;
  before(async () => {
    database = await emptyPostgresDatabase();
    // Money for one request, which the first one has.
    const settings = { database, creditUsd: String(COST_USD), drainSeconds: 600 };
    farebox = await start(settings, ['--workers', '2']);
  });

  test('holds and keys of a killed worker are released immediately', async () => {
    const { origin } = new URL(farebox.url);
    const question = { secret: farebox.secret ?? '', key: 'once' };
    const headers = { authorization: `Bearer ${question.secret}` };
    const pool = new Pool(origin, { connections: 1 });
    const path = '/api/v1/admin/engines';
    const engines = await pool.request({ path, method: 'GET', headers });
    const [, pid = ''] = ((await engines.body.json()) as View).process.split('/');
    const { seen, script } = servers.upstream;
    // The engine also receives requests for its models.
    const chats = (): number => count(seen, (one) => one.path.endsWith('/chat/completions'));
    const before = chats();
    script.push({ kind: 'hang' });
    const asked = ask(pool, question);
    await soon('the engine has it', PATIENCE_MS, async () =>
      script.length === 0 ? true : undefined,
    );
    process.kill(Number(pid), 'SIGKILL');
    await assert.rejects(asked);
    const other = new Pool(origin, { connections: 1 });
    const repeated = await ask(other, question);
    assert.equal(repeated.status, 200);
    assert.ok(repeated.tookMs < AT_ONCE_MS, `${repeated.tookMs} ms`);
    const again = await ask(other, question);
    assert.deepEqual([again.status, again.requestId], [200, repeated.requestId]);
    assert.equal(chats(), before + 2);
    await Promise.all([pool.destroy(), other.close()]);
  });

  test('a worker that hangs is ended soon after a second signal to the first process', async () => {
    const workers = await soon('two workers', PATIENCE_MS, async () => {
      const found = await childrenOf(farebox.child.pid ?? 0);
      return found.length === 2 ? found : undefined;
    });
    process.kill(workers[0] ?? 0, 'SIGSTOP');
    const ended = end(farebox);
    // The same signal twice at once, as npm passes it on, is one.
    await new Promise((resolve) => setTimeout(resolve, 1_100));
    process.kill(farebox.child.pid ?? 0, 'SIGTERM');
    // It waits for each of them.
    assert.equal(await ended, 0);
    const books = await readBooks(database);
    assert.deepEqual([books.openHolds, [...books.paid.values()]], [0, [COST_USD]]);
  });
});

test('holds and keys of a killed process are released when it starts again', async () => {
  const settings = { database: await emptyPostgresDatabase(), creditUsd: String(COST_USD) };
  const killed = await start(settings);
  const question = { secret: killed.secret ?? '', key: 'once' };
  const pool = new Pool(new URL(killed.url).origin, { connections: 1 });
  const { script } = servers.upstream;
  script.push({ kind: 'hang' });
  const asked = ask(pool, question);
  await soon('the engine has it', PATIENCE_MS, async () =>
    script.length === 0 ? true : undefined,
  );
  servers.running.delete(killed);
  await Promise.all([killed.stop('SIGKILL'), assert.rejects(asked)]);
  const again = await start({ ...settings, folder: killed.folder });
  const other = new Pool(new URL(again.url).origin, { connections: 1 });
  const repeated = await ask(other, question);
  assert.equal(repeated.status, 200);
  assert.ok(repeated.tookMs < AT_ONCE_MS, `${repeated.tookMs} ms`);
  await Promise.all([pool.destroy(), other.close()]);
  assert.equal(await end(again), 0);
  const books = await readBooks(settings.database);
  assert.deepEqual([books.openHolds, [...books.paid.values()]], [0, [COST_USD]]);
});

for (const workers of ['1', '2']) {
  test(`a start with ${workers} of --workers ends if its port is in use`, async () => {
    const database = await emptyPostgresDatabase();
    const first = await start({ database });
    const args = ['--port', new URL(first.url).port, '--workers', workers];
    await assert.rejects(start({ database }, args), /The server ended with 1/);
    assert.equal(await end(first), 0);
  });
}

test('more than one worker without PostgreSQL is an error', async () => {
  await assert.rejects(
    start({ database: 'sqlite:./farebox.db' }, ['--workers', '2']),
    /workers need a shared database/,
  );
});

/** Linux lists a process's children; elsewhere `ps` does. */
async function childrenOf(pid: number): Promise<number[]> {
  const { execFileSync } = await import('node:child_process');
  const lines = execFileSync('ps', ['-A', '-o', 'pid=,ppid=']).toString().split('\n');
  return lines
    .map((line) => line.trim().split(/\s+/).map(Number))
    .filter(([, parent]) => parent === pid)
    .flatMap(([child]) => child ?? [])
    .filter((child) => child !== pid);
}

test('after kill -9, a stopped database and a cut network no charge is lost or doubled, and no hold is left', async () => {
  servers.upstream.otherwise = THINKING;
  const postgres: TestPostgres = await startPostgres();
  const proxy: CutProxy = await startCutProxy(postgres.socketPath);
  const ends: (() => Promise<void>)[] = [];
  try {
    await survive(postgres, proxy, ends);
  } finally {
    for (const stopAsking of ends) await stopAsking();
    await proxy.close();
    await postgres.close();
  }
});

async function survive(
  postgres: TestPostgres,
  proxy: CutProxy,
  ends: (() => Promise<void>)[],
): Promise<void> {
  const direct = postgres.url('postgres');
  const first = await start({ database: proxy.url('postgres'), isNervous: true });
  const secret = first.secret ?? '';
  let second: FareboxProcess | undefined = await start({ database: direct, isNervous: true });
  const seen: Seen[] = [];
  const others: Seen[] = [];
  const stopFirst = keepAsking(
    () => first,
    () => ({ secret }),
    seen,
    PAUSE_MS,
  );
  const stopSecond = keepAsking(
    () => second,
    () => ({ secret }),
    others,
    PAUSE_MS,
  );
  ends.push(stopFirst, stopSecond);
  const clock = systemClock();

  await clock.sleep(500);
  const killed = second;
  second = undefined;
  await end(killed, 'SIGKILL');
  second = await start({ database: direct, isNervous: true });

  await clock.sleep(500);
  await postgres.stop('SIGKILL');
  await assertRefuses(seen, 'a stopped database');
  await postgres.start();
  await assertServes(seen, 'a started database');
  await assertServes(others, 'a started database, the other process');

  proxy.cut();
  await assertRefuses(seen, 'a cut network');
  // Long enough for the others to close the epoch of the process that they cannot see.
  await clock.sleep(4_500);
  await assertServes(others, 'the process that was not cut off');
  proxy.mend();
  await assertServes(seen, 'a mended network');

  await stopFirst();
  await stopSecond();
  await soon('no hold is left', PATIENCE_MS, async () => {
    return (await readBooks(direct)).openHolds === 0 ? true : undefined;
  });
  for (const farebox of [first, second]) assert.equal(await end(farebox), 0);
  const { paid } = await readBooks(direct);
  for (const answer of [...seen, ...others]) {
    if (answer.status === 200) assert.equal(paid.get(answer.requestId), answer.usd);
  }
  assert.ok(count(seen, (one) => one.status === 200) > 100);
}

function summary(seen: readonly Seen[]): string {
  const groups = Map.groupBy(seen, (one) => one.status);
  return JSON.stringify([...groups].map(([status, some]) => [status, some.length]));
}

/** New work gets 503 with `Retry-After` within seconds, and at once from then on. */
async function assertRefuses(seen: readonly Seen[], when: string): Promise<void> {
  const from = seen.length;
  const refused = await soon(
    () => `503 after ${when}; seen ${summary(seen.slice(from))}`,
    PATIENCE_MS,
    async () => {
      const answers = seen.slice(from).filter((one) => one.status === 503);
      return answers.length >= 30 ? answers : undefined;
    },
  );
  assert.ok(refused.every((one) => Number(one.retryAfter) >= 1));
  assert.ok(
    refused.slice(-10).every((one) => one.tookMs < AT_ONCE_MS),
    `${when}: refusals take ${refused
      .slice(-10)
      .map((one) => Math.round(one.tookMs))
      .join(', ')} ms`,
  );
}

async function assertServes(seen: readonly Seen[], when: string): Promise<void> {
  const from = seen.length;
  await soon(
    () => `200 after ${when}; seen ${summary(seen.slice(from))}`,
    PATIENCE_MS,
    async () => {
      return count(seen.slice(from), (one) => one.status === 200) >= 20 ? true : undefined;
    },
  );
}
