/** Large bodies of many requests at once: what is refused, and that others are served meanwhile. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type ClientRequest, type IncomingMessage, request } from 'node:http';
import { after, before, describe, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { type Bench, call, chatBody, startWithEngine } from '../../test/app/call.ts';
import { until } from '../../test/support/until.ts';

const LARGE_BYTES = 1_900_000;

describe('room for bodies', () => {
  let bench: Bench;
  before(async () => {
    bench = await startWithEngine({
      yaml: 'http: { bodiesMb: 4 }\nlimits: { guard: { failures: 1000 } }',
    });
  });
  after(() => bench.stop());

  /** A body that is refused once it was read. */
  const large = (bytes = LARGE_BYTES) =>
    JSON.stringify(
      chatBody({ model: 'nothing', messages: [{ role: 'user', content: 'x'.repeat(bytes) }] }),
    );

  /** Sends a body but for its end. */
  async function begin(secret: string): Promise<ClientRequest> {
    const sending = request(`${bench.farebox.url}/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
    });
    sending.on('error', () => undefined); // it is cut below
    const { bodyMemory } = bench.farebox.app.server;
    const heldBytes = bodyMemory.heldBytes + LARGE_BYTES;
    sending.write(large().slice(0, -1));
    await until(() => bodyMemory.heldBytes >= heldBytes, 'the body');
    return sending;
  }

  const send = (secret: string) =>
    call(bench.farebox, '/chat/completions', { secret, body: large() });

  /** What others sent may still be held. */
  async function isTaken(secret: string): Promise<void> {
    await until(async () => (await send(secret)).status === 404, 'that it is taken');
  }

  test('one caller has half of it, all together have no more, and it comes back', async () => {
    const accounts = await Promise.all([1, 2, 3].map(() => bench.farebox.account('5')));
    const [one = '', two = '', three = ''] = accounts.map(({ secret }) => secret);
    const first = await begin(one);
    const own = await send(one);
    assert.deepEqual([own.status, own.body.code], [429, 'RATE_LIMIT_EXCEEDED']);
    assert.equal(own.headers.get('retry-after'), '2');
    const second = await begin(two);
    const full = await send(three);
    assert.deepEqual([full.status, full.body.code], [503, 'SERVICE_UNAVAILABLE']);
    // A small body is not counted.
    const small = await call(bench.farebox, '/chat/completions', { secret: one, body: chatBody() });
    assert.equal(small.status, 200, small.text);
    second.destroy();
    await isTaken(three);
    first.end('}');
    const [response] = (await once(first, 'response')) as [IncomingMessage]; // its one argument
    assert.equal(response.statusCode, 404);
    response.resume();
    await isTaken(one);
  });

  test('a packed body counts as what it becomes', async () => {
    const { secret } = await bench.farebox.account('5');
    const pack = (bytes: number) =>
      fetch(`${bench.farebox.url}/chat/completions`, {
        method: 'POST',
        headers: {
          authorization: `Bearer ${secret}`,
          'content-type': 'application/json',
          'content-encoding': 'gzip',
        },
        body: gzipSync(large(bytes)),
      });
    assert.equal((await pack(LARGE_BYTES)).status, 404);
    assert.equal((await pack(2 * LARGE_BYTES)).status, 429);
  });
});
