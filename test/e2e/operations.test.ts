/** Monitoring by operators: health, metrics, logs without secrets, and the address of the caller. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { lookup } from 'node:dns/promises';
import { once } from 'node:events';
import { connect } from 'node:net';
import { after, before, beforeEach, describe, test } from 'node:test';
import { systemClock } from '../../src/core/clock.ts';
import { logWriter } from '../../src/observability/log-writer.ts';
import { METRICS } from '../../src/observability/metric-list.ts';
import { TestUpstream } from '../support/test-upstream.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { readText } from '../tidy/source-tree.ts';
import { endWithUs } from '../support/end-with-us.ts';
import { until } from '../support/until.ts';

const PROMPT = 'the-secret-of-the-prompt';

describe('operations', () => {
  let upstream: TestUpstream;
  let farebox: TestApp;
  let origin: string;
  let written = '';

  before(async () => {
    upstream = await TestUpstream.start();
    farebox = await startTestApp({
      log: logWriter({
        level: 'debug',
        pretty: false,
        clock: systemClock(),
        write: (text) => (written += text),
      }),
      yaml: `
engines: { one: { url: ${upstream.url}, apiKey: engine-secret-key } }
models: [{ id: m, type: text, context: 4096, maxCompletionTokens: 64, price: { input: 1, output: 2 }, replicas: [{ engine: one }] }]
http: { trustProxy: true }
limits: { guard: { failures: 3, windowSeconds: 60, blockSeconds: 60 } }
`,
    });
    origin = new URL(farebox.url).origin;
  });
  after(async () => {
    await farebox.stop();
    await upstream.kill();
  });
  beforeEach(() => {
    upstream.script.length = 0;
    upstream.otherwise = { kind: 'json', usage: true };
  });

  const chat = (body: object = {}, headers: Record<string, string> = {}): Promise<Response> =>
    fetch(`${farebox.url}/chat/completions`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${farebox.owner.secret}`,
        'content-type': 'application/json',
        ...headers,
      },
      body: JSON.stringify({ model: 'm', messages: [{ role: 'user', content: PROMPT }], ...body }),
    });

  async function metrics(): Promise<string> {
    const answer = await fetch(`${origin}/metrics`);
    assert.equal(answer.status, 200);
    assert.equal(answer.headers.get('content-type'), 'text/plain; version=0.0.4; charset=utf-8');
    return answer.text();
  }

  function value(page: string, series: string): number {
    const line = page.split('\n').find((one) => one.startsWith(`${series} `));
    return Number(line?.slice(series.length + 1) ?? '0');
  }

  /** Requests are counted after their response was sent, which the client can see before. */
  async function eventually(series: string, wanted: number): Promise<string> {
    let page = '';
    await until(
      async () => value((page = await metrics()), series) === wanted,
      () => `${series} is ${value(page, series)}, and ${wanted}`,
    );
    return page;
  }

  test('`HEAD /api/hello` needs no credentials', async () => {
    const hello = await fetch(`${origin}/api/hello`, { method: 'HEAD' });
    assert.equal(hello.status, 204);
    assert.ok(hello.headers.get('x-request-id'));
  });

  test('/livez and /readyz succeed, and list every part', async () => {
    const live = await fetch(`${origin}/livez`);
    assert.deepEqual([live.status, await live.json()], [200, { status: 'alive' }]);
    const ready = await fetch(`${origin}/readyz`);
    assert.equal(ready.status, 200);
    const { status, parts } = (await ready.json()) as { status: string; parts: object };
    assert.equal(status, 'ready');
    assert.deepEqual(Object.keys(parts), ['server', 'database', 'journal', 'engines', 'backups']);
  });

  test('without scheduled backups /metrics has no time of the last one, so that no alert fires', async () => {
    assert.doesNotMatch(await metrics(), /^farebox_backup_last_success_timestamp_seconds/m);
  });

  test('the health check of the image succeeds only with a running server', async () => {
    const [, words = ''] =
      /^HEALTHCHECK [^]*?\n\s*CMD (\[.+\])$/m.exec(readText('Dockerfile')) ?? [];
    const [command, ...rest] = JSON.parse(words) as string[]; // the exec form of a Dockerfile
    assert.equal(command, 'node');
    assert.match(rest.join(' '), /\/livez'/);
    const exitCode = async (port: string): Promise<number | null> => {
      const check = endWithUs(
        spawn(process.execPath, rest, { env: { PORT: port }, stdio: 'ignore' }),
      );
      const [code] = (await once(check, 'exit')) as [number | null];
      return code;
    };
    assert.equal(await exitCode(new URL(origin).port), 0);
    assert.equal(await exitCode('1'), 1);
  });

  test('a host name is bound to each of its addresses', async () => {
    const named = await startTestApp({ yaml: 'listen: { host: localhost }' });
    const { port } = new URL(named.url);
    for (const { address, family } of await lookup('localhost', { all: true })) {
      const host = family === 6 ? `[${address}]` : address;
      assert.equal((await fetch(`http://${host}:${port}/livez`)).status, 200);
    }
    await named.stop();
  });

  test('a server without an available engine is alive and not ready', async () => {
    const gone = await TestUpstream.start();
    const lonely = await startTestApp({
      yaml: `
engines: { gone: { url: ${gone.url}, connectTimeoutMs: 200 } }
models: [{ id: m, type: text, context: 4096, price: { input: 1, output: 2 }, replicas: [{ engine: gone }] }]
`,
    });
    await gone.kill();
    const at = new URL(lonely.url).origin;
    // The breaker opens on failures, so someone has to fail.
    for (let tries = 0; tries < 10; tries += 1) {
      const answer = await fetch(`${lonely.url}/chat/completions`, {
        method: 'POST',
        headers: {
          authorization: `Bearer ${lonely.owner.secret}`,
          'content-type': 'application/json',
        },
        body: '{"model":"m","messages":[{"role":"user","content":"Hi"}]}',
      });
      await answer.text();
    }
    const ready = await fetch(`${at}/readyz`);
    const text = await ready.text();
    assert.equal(ready.status, 503, text);
    assert.match(text, /"engines":\{"ok":false,"models":1,"modelsReady":0\}/);
    assert.doesNotMatch(text, /127\.0\.0\.1|ECONN/);
    assert.equal((await fetch(`${at}/livez`)).status, 200);
    await lonely.stop();
  });

  test('metrics count requests, tokens and money exactly', async () => {
    const before = await metrics();
    for (let count = 0; count < 3; count += 1) await (await chat()).text();
    const series = 'farebox_requests_total{method="POST",route="/chat/completions",status="200"}';
    const page = await eventually(series, value(before, series) + 3);
    const grown = (name: string): number => value(page, name) - value(before, name);
    // 12 prompt tokens at 1 USD and 5 completion tokens at 2 USD a million, three times.
    assert.equal(grown('farebox_tokens_total{model="m",kind="prompt"}'), 36);
    assert.equal(grown('farebox_tokens_total{model="m",kind="completion"}'), 15);
    assert.ok(
      page.includes(
        'farebox_charged_usd_total{kind="chat",model="m",currency="usd"} 0.000066000\n',
      ),
    );
    assert.equal(value(page, 'farebox_holds_open'), 0);
    assert.equal(value(page, 'farebox_database_up'), 1);
    assert.equal(value(page, 'farebox_models_ready'), 1);
    assert.equal(value(page, 'farebox_replica_breaker{engine="one",model="m",state="closed"}'), 1);
    assert.ok(value(page, 'process_resident_memory_bytes') > 1e6);
    for (const { name } of Object.values(METRICS)) {
      if (name.startsWith('farebox_event_loop')) continue; // needs a moment to have a value
      assert.ok(page.includes(`# TYPE ${name} `), `${name} is missing`);
    }
    for (const [, name = ''] of page.matchAll(/^# TYPE (\S+) /gm)) {
      assert.ok(
        Object.values(METRICS).some((metric) => metric.name === name),
        name,
      );
    }
  });

  test('labels never contain values from callers', async () => {
    await (await chat({ model: 'invented-by-the-caller' })).text();
    await (await fetch(`${farebox.url}/invented/path`, { method: 'POST' })).text();
    const page = await metrics();
    assert.doesNotMatch(page, /invented/);
    assert.match(page, /route="unknown"/);
  });

  test('metrics need their token if there is one, and can be disabled', async () => {
    const guarded = await startTestApp({ yaml: 'metrics: { token: scrape-secret }' });
    const at = `${new URL(guarded.url).origin}/metrics`;
    assert.equal((await fetch(at)).status, 401);
    const wrong = await fetch(at, { headers: { authorization: 'Bearer scrape-secre' } });
    assert.equal(wrong.status, 401);
    const right = await fetch(at, { headers: { authorization: 'Bearer scrape-secret' } });
    assert.equal(right.status, 200);
    await guarded.stop();
    const silent = await startTestApp({ yaml: 'metrics: { enabled: false }' });
    assert.equal((await fetch(`${new URL(silent.url).origin}/metrics`)).status, 404);
    await silent.stop();
  });

  test('a request is one line of the log, without secrets and prompts', async () => {
    written = '';
    const answer = await chat({}, { 'x-forwarded-for': '203.0.113.77' });
    const requestId = answer.headers.get('x-request-id');
    await answer.text();
    upstream.script.push({ kind: 'html' }, { kind: 'html' }, { kind: 'html' });
    const failed = await chat();
    await failed.text();
    await eventually('farebox_requests_open', 1);
    const lines = written
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as Line);
    const own = lines.filter((line) => line.requestId === requestId && line.msg === 'Request');
    assert.equal(own.length, 1);
    const { method, route, status, ms, account, key, model, replica, costUsd } = own[0]!;
    assert.deepEqual(
      { method, route, status, account, model, replica, costUsd },
      {
        method: 'POST',
        route: '/chat/completions',
        status: 200,
        account: farebox.owner.accountId,
        model: 'm',
        replica: 'one',
        costUsd: '0.000022000',
      },
    );
    assert.ok(typeof ms === 'number' && typeof key === 'string');
    for (const secret of [PROMPT, farebox.owner.secret, 'engine-secret-key', 'Hello']) {
      assert.ok(!written.includes(secret), `the log holds ${secret}`);
    }
    assert.match(written, /"level":"error"/);
  });

  test('behind a proxy the caller is the last address of X-Forwarded-For', async () => {
    const call = (forwarded: string): Promise<Response> =>
      fetch(`${farebox.url}/chat/completions`, {
        method: 'POST',
        headers: { 'x-forwarded-for': forwarded, authorization: 'Bearer SVC_INFERENCE_KEY_no' },
      });
    const statuses: number[] = [];
    // The caller changes the first address; the guard reads the next one.
    for (let tries = 0; tries < 6; tries += 1) {
      const answer = await call(`198.51.100.${tries}, 203.0.113.9`);
      await answer.text();
      statuses.push(answer.status);
      await eventually('farebox_requests_open', 1);
    }
    assert.deepEqual(statuses, [401, 401, 401, 401, 429, 429]);
    assert.equal((await call('198.51.100.1, 203.0.113.10')).status, 401);
  });

  for (const [name, bytes, status] of [
    ['no HTTP at all', 'SSH-2.0-OpenSSH_9.6\r\n\r\n', 400],
    ['a path that cannot be decoded', 'GET /api/v1/usage/%zz HTTP/1.1\r\nHost: x\r\n\r\n', 400],
    ['headers of 100 KB', `GET / HTTP/1.1\r\nHost: x\r\nA: ${'a'.repeat(100_000)}\r\n\r\n`, 400],
    ['a request without a Host', 'GET /livez HTTP/1.1\r\n\r\n', 400],
    ['a request with two Hosts', 'GET /livez HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n', 400],
    ['an unknown path with two Hosts', 'GET /x HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n', 400],
    ['a Host with a space', 'GET /livez HTTP/1.1\r\nHost: x y\r\n\r\n', 400],
    ['a Host that is a URL', 'GET /x HTTP/1.1\r\nHost: http://x/\r\n\r\n', 400],
    ['a Host with a port in words', 'GET /livez HTTP/1.1\r\nHost: x:http\r\n\r\n', 400],
    [
      'a request with two Authorization headers',
      'GET /api/v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer a\r\nauthorization: Bearer a\r\n\r\n',
      400,
    ],
    [
      'an unknown path with two Authorization headers',
      'GET /x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n',
      400,
    ],
  ] as const) {
    test(`${name} is a ${status} in our words`, async () => {
      const socket = connect(Number(new URL(origin).port), '127.0.0.1');
      await once(socket, 'connect');
      let text = '';
      socket.on('data', (data: Buffer) => (text += data.toString()));
      socket.on('error', () => undefined); // a reset after the response does not matter
      socket.write(bytes);
      await until(
        () => text.includes('}'),
        () => text,
      );
      socket.destroy();
      assert.match(text, new RegExp(`^HTTP/1.1 ${status} `));
      assert.match(text, /"error":"[A-Z][^"]+","code":"[A-Z_]+"/);
      assert.match(text, /\r\nx-content-type-options: nosniff\r\n/);
    });
  }
});

test('all valid forms of the Host header are accepted', async () => {
  const farebox = await startTestApp();
  try {
    const port = Number(new URL(farebox.url).port);
    for (const host of ['api.example', 'my_host:8080', '10.0.0.1:80', '[::1]:8080', 'x:', '']) {
      const socket = connect(port, '127.0.0.1');
      socket.end(`GET /livez HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
      const [head] = (await once(socket, 'data')) as [Buffer]; // its one argument
      assert.match(head.toString(), /^HTTP\/1\.1 200 /, host);
      socket.destroy();
    }
  } finally {
    await farebox.stop();
  }
});

test('a slow body gets 408 after the configured timeout', async () => {
  const farebox = await startTestApp({ yaml: 'http: { requestTimeoutSeconds: 1 }' });
  try {
    const socket = connect(Number(new URL(farebox.url).port), '127.0.0.1');
    await once(socket, 'connect');
    let text = '';
    socket.on('data', (data: Buffer) => (text += data.toString()));
    socket.write(
      `POST /api/v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${farebox.owner.secret}\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{`,
    );
    // Node looks for such by itself only every half minute.
    await once(socket, 'close', { signal: AbortSignal.timeout(25_000) });
    assert.match(text, /^HTTP\/1\.1 408 [^]*"REQUEST_TOO_SLOW"/);
  } finally {
    await farebox.stop();
  }
});

interface Line {
  readonly requestId?: string;
  readonly msg?: string;
  readonly method?: string;
  readonly route?: string;
  readonly status?: number;
  readonly ms?: number;
  readonly account?: string;
  readonly key?: string;
  readonly model?: string;
  readonly replica?: string;
  readonly costUsd?: string;
}
