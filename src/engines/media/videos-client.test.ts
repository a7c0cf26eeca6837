import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { type RequestListener, createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { type TestContext, test } from 'node:test';
import { TestClock } from '../../../test/support/test-clock.ts';
import { until } from '../../../test/support/until.ts';
import { systemClock } from '../../core/clock.ts';
import { systemIds } from '../../core/ids.ts';
import { silentLog } from '../../core/log.ts';
import { Guard } from '../../net/guard.ts';
import { Engines } from '../engines.ts';
import { VideosClient } from './videos-client.ts';

const MAX_BYTES = 1_000_000;
const PIECE = Buffer.alloc(100_000, 'x');
const { signal } = new AbortController();
const ref = { engine: 'studio', engineModel: 'm', engineJobId: 'v' };

/** A client whose only engine is a server on loopback. */
async function clientOf(
  t: TestContext,
  onRequest: RequestListener,
  clock = systemClock(),
): Promise<VideosClient & { readonly port: number }> {
  const server = createServer(onRequest);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const engines = new Engines({ clock, ids: systemIds(), log: silentLog });
  engines.update([{ id: 'studio', protocol: 'openai', url: `http://127.0.0.1:${port}/v1` }]);
  t.after(async () => {
    await engines.close();
    server.close();
  });
  const client = new VideosClient({
    engines,
    replicasOf: () => [{ engine: 'studio', model: 'm' }],
    guard: new Guard({ allow: ['127.0.0.0/8'] }),
    fetchTimeoutMs: 10_000,
    clock,
  });
  return Object.assign(client, { port });
}

test('`download` stops as soon as `canStore` rejects the size', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'farebox-videos-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const closed = Promise.withResolvers<void>();
  const client = await clientOf(t, (request, response) => {
    if (request.url?.includes('small') === true) return void response.end(PIECE);
    response.on('close', closed.resolve);
    function* endless() {
      for (;;) yield PIECE;
    }
    Readable.from(endless()).pipe(response);
  });
  const path = join(folder, 'video');
  const sizes: number[] = [];
  const canStore = (sizeBytes: number): boolean => {
    sizes.push(sizeBytes);
    return sizeBytes <= MAX_BYTES;
  };
  const fetched = (engineJobId: string) =>
    client.download({ ...ref, engineJobId }, path, { canStore, signal });
  assert.deepEqual(await fetched('small'), { kind: 'done' });
  assert.deepEqual(readFileSync(path), PIECE);
  sizes.length = 0;
  assert.equal((await fetched('endless')).kind, 'too-large');
  await closed.promise;
  assert.ok(readFileSync(path).length <= MAX_BYTES);
  assert.equal(sizes.filter((sizeBytes) => sizeBytes > MAX_BYTES).length, 1);
});

test('`poll` understands common spellings of a status, and `away` is the result for unknown ones', async (t) => {
  let body: object = {};
  const client = await clientOf(t, (_request, response) => {
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify(body));
  });
  const oom = { message: 'out of memory', code: 500 };
  for (const [given, kind] of [
    [{ status: 'completed' }, 'done'],
    [{ status: 'SUCCEEDED', error: null }, 'done'],
    [{ status: 'queued' }, 'running'],
    [{ status: 'IN_PROGRESS', progress: '40 %' }, 'running'],
    ...['failed', 'error', 'ERROR', 'cancelled', 'canceled', 'expired', 'timed_out'].map(
      (status) => [{ status, error: 'out of memory' }, 'failed'] as const,
    ),
    [{ status: 'error', error: oom }, 'failed'],
    [{ status: 'error' }, 'failed'],
    [{ status: 'kaput', error: oom }, 'failed'],
    [{ status: 'kaput', error: null }, 'away'],
    [{ status: '' }, 'away'],
    [{}, 'away'],
  ] as const) {
    body = given;
    const result = await client.poll(ref, signal);
    assert.equal(result.kind, kind, JSON.stringify(given));
    if (result.kind === 'failed' && 'error' in given) assert.match(result.detail, /out of memory/);
  }
  body = { status: 'error', error: { code: 'content_policy_violation' } };
  const refused = await client.poll(ref, signal);
  assert.equal(refused.kind === 'failed' && refused.objection, 'policy');
});

test('short calls to a hanging engine end within half a minute', async (t) => {
  let requests = 0;
  const clock = new TestClock();
  const client = await clientOf(t, () => void (requests += 1), clock);
  const job = { ...ref, id: 'j', accountId: 'a', modelId: 'm', attempts: 0, request: {} };
  for (const [call, kind] of [
    [() => client.poll(ref, signal), 'away'],
    [() => client.find(job, signal), 'away'],
    [() => client.remove(ref), undefined],
  ] as const) {
    const before = requests;
    const result = call();
    await until(() => requests > before, 'the request');
    clock.advance(31_000);
    assert.equal((await result)?.kind, kind);
    // After this time the breaker admits the next call.
    clock.advance(60_000);
  }
});

test('a video that the engine names by a URL is fetched through the guard', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'farebox-videos-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  let body: object = {};
  const client = await clientOf(t, (request, response) => {
    if (request.url === '/file') return void response.end(PIECE);
    if (request.url === '/v1/videos/v') return void response.end(JSON.stringify(body));
    response.writeHead(404).end('{}');
  });
  const path = join(folder, 'video');
  const download = (most = MAX_BYTES) =>
    client.download(ref, path, { canStore: (sizeBytes) => sizeBytes <= most, signal });
  const url = `http://127.0.0.1:${client.port}/file`;
  for (const given of [
    { url },
    { output: [url] },
    { video: { url } },
    { data: [{ url }] },
    { result: { video_url: url } },
  ]) {
    body = { status: 'completed', ...given };
    assert.deepEqual(await download(), { kind: 'done' }, JSON.stringify(given));
    assert.deepEqual(readFileSync(path), PIECE);
  }
  assert.equal((await download(1_000)).kind, 'too-large');
  for (const [given, kind] of [
    [{ url: 'http://10.0.0.1/video' }, 'away'],
    [{ url: 'file:///etc/passwd' }, 'lost'],
    [{}, 'lost'],
  ] as const) {
    body = { status: 'completed', ...given };
    assert.equal((await download()).kind, kind, JSON.stringify(given));
  }
});

test('a job of an engine without DELETE is cancelled', async (t) => {
  const seen: string[] = [];
  const client = await clientOf(t, (request, response) => {
    seen.push(`${request.method} ${request.url}`);
    response.writeHead(request.method === 'POST' ? 200 : 405).end('{}');
  });
  await client.remove(ref);
  assert.deepEqual(seen, ['DELETE /v1/videos/v', 'POST /v1/videos/v/cancel']);
});

test('an unknown parameter is omitted once and for later jobs, and a required one is not', async (t) => {
  let rejected = 'negative_prompt';
  const orders: string[] = [];
  const client = await clientOf(t, (request, response) => {
    let text = '';
    request.setEncoding('utf8').on('data', (piece: string) => (text += piece));
    request.on('end', () => {
      orders.push(text);
      const isBad = text.includes(`name="${rejected}"`);
      const error = { message: `Unknown parameter: '${rejected}'.` };
      response.writeHead(isBad ? 400 : 200).end(JSON.stringify(isBad ? { error } : { id: 'v' }));
    });
  });
  const request = { prompt: 'A sea', seconds: '5', negative_prompt: 'boats' };
  const job = {
    id: 'j',
    accountId: 'a',
    modelId: 'm',
    attempts: 0,
    engine: '',
    engineModel: '',
    request,
  };
  const create = () => client.create({ job, inputs: [], beforeOrder: async () => true }, signal);
  assert.equal((await create()).kind, 'created');
  assert.equal((await create()).kind, 'created');
  assert.deepEqual(
    orders.map((text) => text.includes('boats')),
    [true, false, false],
  );
  rejected = 'seconds';
  assert.equal((await create()).kind, 'refused');
});

test('`find` reads further pages of a list that is longer than one', async (t) => {
  const ids = Array.from({ length: 250 }, (_, place) => `v${place}`);
  let pages = 0;
  let readsPages = true;
  const client = await clientOf(t, (request, response) => {
    pages += 1;
    const after = new URL(request.url ?? '', 'http://studio').searchParams.get('after');
    const start = readsPages ? ids.indexOf(after ?? '') + 1 : 0;
    const page = ids.slice(start, start + 100).map((id) => {
      return { id, metadata: { idempotency_key: id === 'v249' ? 'j-0' : null } };
    });
    const list = { object: 'list', data: page, has_more: start + 100 < ids.length };
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify(list));
  });
  const job = { ...ref, id: 'j', accountId: 'a', modelId: 'm', attempts: 0, request: {} };
  assert.deepEqual(await client.find(job, signal), {
    kind: 'created',
    ...ref,
    engineJobId: 'v249',
  });
  assert.equal(pages, 3);
  // An engine that ignores `after` repeats its first page.
  readsPages = false;
  assert.deepEqual(await client.find(job, signal), { kind: 'unknown' });
  assert.equal(pages, 5);
});

test('`find` reports a job as unknown only if the engine has sent its list, or has none', async (t) => {
  let answer: RequestListener = () => undefined;
  const client = await clientOf(t, (request, response) => answer(request, response));
  const job = { ...ref, id: 'j', accountId: 'a', modelId: 'm', attempts: 0, request: {} };
  const status = (code: number): RequestListener => {
    return (_request, response) => response.writeHead(code).end('{}');
  };
  const cut: RequestListener = (_request, response) => {
    response.writeHead(200, { 'content-length': 100 }).write('{"data":[', () => response.destroy());
  };
  for (const [given, kind] of [
    [status(200), 'unknown'],
    [status(404), 'unknown'],
    [status(400), 'unknown'],
    [status(501), 'unknown'],
    [status(503), 'away'],
    [status(429), 'away'],
    [status(502), 'away'],
    [cut, 'away'],
  ] as const) {
    answer = given;
    assert.equal((await client.find(job, signal)).kind, kind);
  }
});
