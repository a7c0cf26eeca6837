/**
 * Downloads videos from a server on loopback; a video that exceeds the disk space is not downloaded
 * completely.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { test } from 'node:test';
import { TestClock } from '../../../test/support/test-clock.ts';
import { until } from '../../../test/support/until.ts';
import { systemClock } from '../../core/clock.ts';
import { systemIds } from '../../core/ids.ts';
import { silentLog } from '../../core/log.ts';
import { Engines } from '../engines.ts';
import { VideosClient } from './videos-client.ts';

const ROOM_BYTES = 1_000_000;
const PIECE = Buffer.alloc(100_000, 'x');

test('a film is fetched while there is room for it, and no further', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'farebox-films-'));
  const left = Promise.withResolvers<void>();
  const server = createServer((request, response) => {
    if (request.url?.includes('small') === true) return void response.end(PIECE);
    response.on('close', left.resolve);
    function* endless() {
      for (;;) yield PIECE;
    }
    Readable.from(endless()).pipe(response);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const engines = new Engines({ clock: systemClock(), ids: systemIds(), log: silentLog });
  engines.update([{ id: 'studio', protocol: 'openai', url: `http://127.0.0.1:${port}/v1` }]);
  t.after(async () => {
    await engines.close();
    server.close();
    rmSync(folder, { recursive: true, force: true });
  });
  const client = new VideosClient(engines, () => []);
  const path = join(folder, 'film');
  const sizes: number[] = [];
  const hasRoom = (sizeBytes: number): boolean => {
    sizes.push(sizeBytes);
    return sizeBytes <= ROOM_BYTES;
  };
  const { signal } = new AbortController();
  const fetched = (engineJobId: string) =>
    client.download({ engine: 'studio', engineModel: 'm', engineJobId }, path, { hasRoom, signal });
  assert.deepEqual(await fetched('small'), { kind: 'done' });
  assert.deepEqual(readFileSync(path), PIECE);
  sizes.length = 0;
  const answer = await fetched('endless');
  assert.equal(answer.kind, 'too-large');
  await left.promise;
  assert.ok(readFileSync(path).length <= ROOM_BYTES);
  assert.equal(sizes.filter((sizeBytes) => sizeBytes > ROOM_BYTES).length, 1, 'and asked no more');
});

test('a status is read in every spelling, and an unknown one holds no job', async (t) => {
  let body: object = {};
  const server = createServer((_request, response) => {
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify(body));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const engines = new Engines({ clock: systemClock(), ids: systemIds(), log: silentLog });
  engines.update([{ id: 'studio', protocol: 'openai', url: `http://127.0.0.1:${port}/v1` }]);
  t.after(async () => {
    await engines.close();
    server.close();
  });
  const client = new VideosClient(engines, () => []);
  const ref = { engine: 'studio', engineModel: 'm', engineJobId: 'v' };
  const { signal } = new AbortController();
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
    const answer = await client.poll(ref, signal);
    assert.equal(answer.kind, kind, JSON.stringify(given));
    if (answer.kind === 'failed' && 'error' in given) assert.match(answer.detail, /out of memory/);
  }
  body = { status: 'error', error: { code: 'content_policy_violation' } };
  const refused = await client.poll(ref, signal);
  assert.equal(refused.kind === 'failed' && refused.objection, 'policy');
});

test('an engine that hangs keeps nobody who only asks it for minutes', async (t) => {
  let asked = 0;
  const server = createServer(() => void (asked += 1));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const clock = new TestClock();
  const engines = new Engines({ clock, ids: systemIds(), log: silentLog });
  engines.update([{ id: 'studio', protocol: 'openai', url: `http://127.0.0.1:${port}/v1` }]);
  t.after(async () => {
    await engines.close();
    server.close();
  });
  const client = new VideosClient(engines, () => []);
  const ref = { engine: 'studio', engineModel: 'm', engineJobId: 'v' };
  const job = { ...ref, id: 'j', modelId: 'm', attempts: 0, request: {} };
  const { signal } = new AbortController();
  for (const [ask, kind] of [
    [() => client.poll(ref, signal), 'away'],
    [() => client.find(job, signal), 'away'],
    [() => client.remove(ref), undefined],
  ] as const) {
    const before = asked;
    const answer = ask();
    await until(() => asked > before, 'the question');
    clock.advance(31_000);
    assert.equal((await answer)?.kind, kind);
    // After this time the breaker admits the next call.
    clock.advance(60_000);
  }
});
