/** Large bodies of many requests at once: what is refused, and that others are served meanwhile. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type ClientRequest, type IncomingMessage, request } from 'node:http';
import { connect } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import { type Bench, call, chatBody, startWithEngine } from '../../test/app/call.ts';
import { heapBytes } from '../../test/support/heap-bytes.ts';
import { until } from '../../test/support/until.ts';

const LARGE_BYTES = 1_900_000;

describe('memory for bodies', () => {
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
    const reservedBytes = bodyMemory.reservedBytes + LARGE_BYTES;
    sending.write(large().slice(0, -1));
    await until(() => bodyMemory.reservedBytes >= reservedBytes, 'the body');
    return sending;
  }

  const send = (secret: string) =>
    call(bench.farebox, '/chat/completions', { secret, body: large() });

  /** Bodies of other requests may still be in memory. */
  async function isTaken(secret: string): Promise<void> {
    await until(async () => (await send(secret)).status === 404, 'that it is taken');
  }

  test('is limited to a half per caller and to the whole for all, and is released', async () => {
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

  test('is not exceeded by a body of single bytes', async () => {
    const { secret } = await bench.farebox.account('5');
    const { bodyMemory } = bench.farebox.app.server;
    const { hostname, port, pathname } = new URL(`${bench.farebox.url}/chat/completions`);
    const usedBytes = heapBytes();
    const socket = connect(Number(port), hostname);
    socket.write(
      `POST ${pathname} HTTP/1.1\r\nHost: farebox\r\nAuthorization: Bearer ${secret}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n`,
    );
    const pieces = 300_000;
    socket.write('1\r\na\r\n'.repeat(pieces));
    await until(() => bodyMemory.reservedBytes >= pieces, 'the body');
    const grownBytes = heapBytes() - usedBytes;
    socket.destroy();
    await until(() => bodyMemory.reservedBytes === 0, 'the release');
    assert.ok(grownBytes < 40 * pieces, String(grownBytes));
  });

  test('counts the decoded size of a compressed body', async () => {
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

describe('small compressed bodies of large size', () => {
  const BODIES = 60;
  const BODY_BYTES = 7_900_000;
  const MEMORY_MB = 32;
  let bench: Bench;
  before(async () => {
    bench = await startWithEngine({
      yaml: `http: { bodiesMb: ${MEMORY_MB}, jsonLimitBytes: 8000000 }\nlimits: { keyConcurrency: 100, guard: { failures: 1000 } }`,
    });
  });
  after(() => bench.stop());

  const packed = brotliCompressSync(
    JSON.stringify(chatBody({ model: 'nothing', filler: ' '.repeat(BODY_BYTES) })),
  );

  /**
   * Sends all of them at once; the statuses, and the most memory that was held and used meanwhile.
   */
  async function sendAll(secrets: readonly string[]) {
    const { bodyMemory } = bench.farebox.app.server;
    const usedBytes = process.memoryUsage().arrayBuffers;
    let reservedBytes = 0;
    let grownBytes = 0;
    const look = setInterval(() => {
      reservedBytes = Math.max(reservedBytes, bodyMemory.reservedBytes);
      grownBytes = Math.max(grownBytes, process.memoryUsage().arrayBuffers - usedBytes);
    }, 1);
    try {
      const answers = await Promise.all(
        Array.from({ length: BODIES }, (_, at) =>
          fetch(`${bench.farebox.url}/chat/completions`, {
            method: 'POST',
            headers: {
              authorization: `Bearer ${secrets[at % secrets.length]}`,
              'content-type': 'application/json',
              'content-encoding': 'br',
            },
            body: new Uint8Array(packed),
          }),
        ),
      );
      const statuses = answers.map(({ status }) => status);
      for (const answer of answers) await answer.arrayBuffer();
      return { statuses, reservedBytes, grownBytes };
    } finally {
      clearInterval(look);
    }
  }

  for (const accounts of [1, 6]) {
    test(`of ${accounts} accounts never exceed the memory limit, and all get a response`, async () => {
      assert.ok(packed.length < 200, String(packed.length));
      const secrets: string[] = [];
      for (let at = 0; at < accounts; at += 1) {
        secrets.push((await bench.farebox.account('5')).secret);
      }
      const { statuses, reservedBytes, grownBytes } = await sendAll(secrets);
      const served = statuses.filter((status) => status === 404).length;
      const refused = statuses.filter((status) => status === 429 || status === 503).length;
      assert.equal(served + refused, BODIES, String(statuses));
      assert.ok(served > 0);
      const boundBytes = MEMORY_MB * 1024 * 1024;
      assert.ok(
        reservedBytes <= (accounts === 1 ? boundBytes / 2 : boundBytes),
        String(reservedBytes),
      );
      // Unpacked, joined and waiting for the garbage collector; all of them together are 474 MB.
      assert.ok(grownBytes < 6 * boundBytes, String(grownBytes));
      assert.equal(bench.farebox.app.server.bodyMemory.reservedBytes, 0);
    });
  }
});
