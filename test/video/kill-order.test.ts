/**
 * A server is killed between an order without a clear response and its retry: an accepted order is
 * found again; an order that the engine does not list is sent once more under the same key and then
 * given up. There is one video and one charge, or a refund; on both databases.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { type ServerResponse, createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { type Clock, systemClock } from '../../src/core/clock.ts';
import { onEachStore, openTestStore } from '../databases/stores.ts';
import { type Place, openVideo } from './open-video.ts';
import { childEnvironment } from '../support/child-environment.ts';
import { endWithUs } from '../support/end-with-us.ts';
import { fastClock } from '../support/fast-clock.ts';
import { until } from '../support/until.ts';

const folder = mkdtempSync(join(tmpdir(), 'kill-order-'));
const clock = systemClock();
const fast = fastClock(10);
/** Leases of a dead process have expired a minute later. The server polls a job every few seconds. */
const later: Clock = { ...fast, nowMs: () => fast.nowMs() + 60_000 };

/** Behaviour of the engine for an order, and whether it lists its orders. */
interface Behaviour {
  readonly order: (response: ServerResponse) => void;
  readonly shows: boolean;
}

const hangs = (): void => undefined;
const fails = (response: ServerResponse): void => void response.writeHead(500).end('{}');
let behaviour: Behaviour;
let keys: string[] = [];
let ordered = Promise.withResolvers<void>();
const engine = createServer((request, response) => {
  const { method, url = '', headers } = request;
  request.resume();
  request.on('end', () => {
    if (method === 'POST') {
      keys.push(String(headers['idempotency-key']));
      behaviour.order(response);
      ordered.resolve();
      return;
    }
    if (url.endsWith('/content')) {
      response.writeHead(200, { 'content-type': 'video/mp4' }).end('the film');
      return;
    }
    const data = keys.map((key) => ({ id: 'mine', metadata: { idempotency_key: key } }));
    const isList = url.startsWith('/v1/videos?');
    response.writeHead(isList && !behaviour.shows ? 404 : 200, {
      'content-type': 'application/json',
    });
    response.end(JSON.stringify(isList ? { data } : { id: 'mine', status: 'completed' }));
  });
});

before(async () => {
  engine.listen(0, '127.0.0.1');
  await once(engine, 'listening');
});
after(() => {
  engine.closeAllConnections();
  engine.close();
  rmSync(folder, { recursive: true, force: true });
});

/** Starts an owner, and kills it when the engine has its order. Returns the id of the job. */
async function killedAfterOrder(place: Place): Promise<string> {
  const owner: ChildProcess = endWithUs(
    fork(new URL('./owner-process.ts', import.meta.url), [], {
      // Removes the environment of the test run.
      env: childEnvironment(),
      execArgv: [],
    }),
  );
  const imagePath = join(place.folder, 'given.png');
  writeFileSync(imagePath, 'a picture');
  owner.send({ ...place, imagePath });
  const [{ id }] = (await once(owner, 'message')) as [{ id: string }]; // from the process file
  await ordered.promise;
  // A clear failure is also written to the table; a hanging order is not.
  if (behaviour.order === fails) await clock.sleep(300);
  owner.kill('SIGKILL');
  await once(owner, 'exit');
  return id;
}

onEachStore('an order whose server is killed', (stores) => {
  async function run(given: Behaviour, afterKill: Behaviour['order']) {
    behaviour = given;
    keys = [];
    ordered = Promise.withResolvers();
    const home = mkdtempSync(join(folder, 'home-'));
    const { port } = engine.address() as AddressInfo; // a listening TCP server has one
    const place: Place = {
      databaseUrl: await stores.freshUrl(),
      folder: home,
      engineUrl: `http://127.0.0.1:${port}/v1`,
      engineKey: 'key',
    };
    const id = await killedAfterOrder(place);
    behaviour = { ...given, order: afterKill };
    const store = await openTestStore(place.databaseUrl);
    const { video, engines, money } = openVideo(place, store, later);
    try {
      video.start();
      let moves: string[] = [];
      await until(
        async () => (moves = await money.moves(id)).length >= 2,
        'the end of the job',
        50,
      );
      assert.deepEqual(new Set(keys), new Set([`${id}-0`]));
      return { orders: keys.length, moves };
    } finally {
      await video.stop();
      await engines.close();
      await store.close();
    }
  }

  test('is found at an engine that lists it, and not sent again', async () => {
    for (const order of [hangs, fails]) {
      const { orders, moves } = await run({ order, shows: true }, hangs);
      assert.deepEqual([orders, moves], [1, ['hold', 'settle']]);
    }
  });

  test('is sent once more to an engine that lists none, and then given up', async () => {
    for (const order of [hangs, fails]) {
      const { orders, moves } = await run({ order, shows: false }, fails);
      assert.deepEqual([orders, moves], [2, ['hold', 'refund']]);
    }
  });
});
