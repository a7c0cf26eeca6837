/**
 * Several real processes on one PostgreSQL: money and limits are exact across them, and neither a
 * killed process, a stopped database nor a cut network loses a settle, doubles one, or leaves a
 * hold behind.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Pool } from 'undici';
import { TestUpstream } from '../support/test-upstream.ts';
import { systemClock } from '../../src/core/clock.ts';
import { systemIds } from '../../src/core/ids.ts';
import { silentLog } from '../../src/core/log.ts';
import { Ledger } from '../../src/billing/ledger/ledger.ts';
import { type CutProxy, startCutProxy } from '../databases/cut-proxy.ts';
import { type TestPostgres, emptyPostgresDatabase, startPostgres } from '../databases/postgres.ts';
import { openTestStore } from '../databases/stores.ts';
import { type FareboxProcess, removeFolder, startFarebox } from './farebox-process.ts';

const BODY = '{"model":"m","max_completion_tokens":5,"messages":[{"role":"user","content":"Hi"}]}';
/** Five output tokens at 2 USD a million: what is held is what it costs. */
const COST_USD = 0.00001;

/** How long a busy machine may take for what is seen within a second or two elsewhere. */
const PATIENCE_MS = 30_000;
/** At once, on a machine whose cores are shared. */
const AT_ONCE_MS = 2_000;

let upstream: TestUpstream;
const running = new Set<FareboxProcess>();

before(async () => {
  upstream = await TestUpstream.start();
  upstream.otherwise = { kind: 'json', usage: true };
});

after(async () => {
  for (const farebox of running) {
    await farebox.stop('SIGKILL');
    removeFolder(farebox);
  }
  await upstream.kill();
});

interface Settings {
  readonly database: string;
  readonly creditUsd?: string;
  readonly requestsPerMinute?: number;
  /** Short times, so that faults are noticed within the patience of a test. */
  readonly isNervous?: boolean;
}

function yamlOf(settings: Settings): string {
  const { database, creditUsd = '1000', requestsPerMinute = 10_000_000 } = settings;
  const [reply, dead] = settings.isNervous === true ? [1, 3] : [15, 60];
  return `listen: { host: 127.0.0.1, port: 0 }
database: ${JSON.stringify(database)}
cluster: { replyTimeoutSeconds: ${reply}, deadAfterSeconds: ${dead} }
http: { drainSeconds: 5 }
embedded: { enabled: false }
discovery: { enabled: false }
log: { level: warn }
engines: { fake: { url: ${upstream.url} } }
models:
  - { id: m, type: text, context: 8192, maxCompletionTokens: 64, price: { input: 0, output: 2 }, replicas: [{ engine: fake }] }
limits:
  starterCreditUsd: "${creditUsd}"
  minimumCreditUsd: 0
  keyConcurrency: 100000
  guard: { failures: 1000000 }
  plans: { staff: { text: { XS: &wide { requestsPerMinute: ${requestsPerMinute}, tokensPerMinute: 1000000000 }, S: *wide, M: *wide, L: *wide } } }
`;
}

async function start(settings: Settings, args: readonly string[] = []): Promise<FareboxProcess> {
  const farebox = await startFarebox({ yaml: yamlOf(settings), args });
  running.add(farebox);
  return farebox;
}

async function end(farebox: FareboxProcess, signal?: 'SIGKILL'): Promise<number | null> {
  const code = await farebox.stop(signal);
  running.delete(farebox);
  removeFolder(farebox);
  return code;
}

interface Seen {
  readonly status: number;
  readonly requestId: string;
  readonly usd: number;
  readonly retryAfter: string | undefined;
  /** When the window of the rate limit ends. */
  readonly window: string;
  readonly tookMs: number;
}

async function ask(pool: Pool, secret: string): Promise<Seen> {
  const startedMs = performance.now();
  const answer = await pool.request({
    path: '/api/v1/chat/completions',
    method: 'POST',
    headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
    body: BODY,
  });
  const body = (await answer.body.json()) as { cost?: { usd: number } };
  return {
    status: answer.statusCode,
    requestId: String(answer.headers['x-request-id']),
    usd: body.cost?.usd ?? 0,
    retryAfter: answer.headers['retry-after']?.toString(),
    window: String(answer.headers['x-ratelimit-reset-requests']),
    tookMs: performance.now() - startedMs,
  };
}

/** Sends `count` requests at once through all processes in turn. */
async function burst(
  processes: readonly FareboxProcess[],
  secret: string,
  count: number,
): Promise<Seen[]> {
  const pools = processes.map((one) => new Pool(new URL(one.url).origin, { connections: 64 }));
  const seen: Seen[] = [];
  let sent = 0;
  const client = async (pool: Pool): Promise<void> => {
    while (sent < count) {
      sent += 1;
      seen.push(await ask(pool, secret));
    }
  };
  await Promise.all(pools.flatMap((pool) => Array.from({ length: 64 }, () => client(pool))));
  await Promise.all(pools.map((pool) => pool.close()));
  return seen;
}

function count<T>(values: readonly T[], test_: (value: T) => boolean): number {
  return values.filter(test_).length;
}

interface Books {
  readonly openHolds: number;
  readonly paid: ReadonlyMap<string, number>;
}

/** Fails on any difference of the audit. */
async function readBooks(database: string): Promise<Books> {
  const store = await openTestStore(database);
  try {
    const ledger = new Ledger({ store, clock: systemClock(), ids: systemIds(), log: silentLog });
    const report = await ledger.audit();
    assert.deepEqual(report.differences, []);
    const rows = await store.query<{ request_id: string; usd_nano: bigint }>(
      'SELECT request_id, usd_nano FROM ledger_usage',
    );
    const paid = new Map(rows.map((row) => [row.request_id, Number(row.usd_nano) / 1e9]));
    return { openHolds: report.openHolds, paid };
  } finally {
    await store.close();
  }
}

/** Waits for what `look` finds; `what` says what was not found in time. */
async function soon<T>(
  what: string | (() => string),
  limitMs: number,
  look: () => Promise<T | undefined>,
) {
  const untilMs = performance.now() + limitMs;
  for (;;) {
    const found = await look();
    if (found !== undefined) return found;
    const isLate = performance.now() > untilMs;
    if (isLate) assert.fail(`${typeof what === 'string' ? what : what()} within ${limitMs} ms`);
    await systemClock().sleep(100);
  }
}

test('two processes that start at once make one owner, and 5,000 requests with money for 1,000 get 1,000', async () => {
  const database = await emptyPostgresDatabase();
  const settings = { database, creditUsd: '0.01' };
  const processes = await Promise.all([start(settings), start(settings)]);
  const secrets = processes.flatMap((one) => one.secret ?? []);
  assert.equal(secrets.length, 1);
  const secret = secrets[0] ?? '';
  const seen = await burst(processes, secret, 5_000);
  // 402 once the money is spent; 429 while what is left of it is held by others.
  const refused = count(seen, (one) => one.status === 402 || one.status === 429);
  assert.deepEqual([count(seen, (one) => one.status === 200), refused], [1_000, 4_000]);
  assert.ok(seen.every((one) => one.status !== 200 || one.usd === COST_USD));
  const books = await readBooks(database);
  assert.deepEqual([books.openHolds, books.paid.size], [0, 1_000]);
  for (const farebox of processes) assert.equal(await end(farebox), 0);
});

test('exactly the allowed number passes in each window, across two processes', async () => {
  const database = await emptyPostgresDatabase();
  const first = await start({ database, requestsPerMinute: 300 });
  const second = await start({ database, requestsPerMinute: 300 });
  const seen = await burst([first, second], first.secret ?? '', 1_500);
  const windows = Map.groupBy(seen, (one) => one.window);
  for (const [window, answers] of windows) {
    const passed = count(answers, (one) => one.status === 200);
    const refused = count(answers, (one) => one.status === 429);
    assert.equal(passed + refused, answers.length, window);
    if (refused > 0) assert.equal(passed, 300, window);
    else assert.ok(passed <= 300, window);
  }
  assert.ok(count(seen, (one) => one.status === 429) > 0);
  for (const farebox of [first, second]) assert.equal(await end(farebox), 0);
});

test('workers share a port; one that is killed comes back, and SIGTERM drains them all', async () => {
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
  assert.equal(await end(farebox), 0);
  const books = await readBooks(database);
  assert.deepEqual([books.openHolds, books.paid.size], [0, 800]);
});

test('more than one worker without PostgreSQL is refused in words', async () => {
  await assert.rejects(
    start({ database: 'sqlite:./farebox.db' }, ['--workers', '2']),
    /workers need a database that they can share/,
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

/** Clients that ask for as long as they are told to, and note every full answer. */
function keepAsking(farebox: () => FareboxProcess | undefined, secret: string, seen: Seen[]) {
  const asking = { isOver: false };
  const client = async (): Promise<void> => {
    let at: string | undefined;
    let pool: Pool | undefined;
    while (!asking.isOver) {
      const target = farebox();
      if (target === undefined) {
        await systemClock().sleep(20);
        continue;
      }
      const origin = new URL(target.url).origin;
      if (origin !== at) {
        void pool?.destroy();
        pool = new Pool(origin, { connections: 1 });
        at = origin;
      }
      try {
        const answer = await ask(pool as Pool, secret); // made above
        seen.push(answer);
        if (answer.status !== 200) await systemClock().sleep(20);
      } catch {
        // The process was killed in the middle: what was not seen in full is not counted.
        await systemClock().sleep(20);
      }
    }
    await pool?.destroy();
  };
  const clients = Array.from({ length: 12 }, client);
  return async (): Promise<void> => {
    asking.isOver = true;
    await Promise.all(clients);
  };
}

test('kill -9, a stopped database and a cut network: nothing is lost, doubled or left held', async () => {
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
  const stopFirst = keepAsking(() => first, secret, seen);
  const stopSecond = keepAsking(() => second, secret, others);
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
