import assert from 'node:assert/strict';
import type { Socket } from 'node:net';
import { test, type TestContext } from 'node:test';
import { startProxy } from '../../test/support/connect-proxy.ts';
import { rawServer } from '../../test/support/raw-server.ts';
import { TEST_CERTIFICATE, TEST_KEY } from '../../test/support/test-certificate.ts';
import { systemClock } from '../core/clock.ts';
import type { Route } from './connector.ts';
import { UpstreamPool, fetchWhole } from './upstream-pool.ts';

const OK = 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok';
const LIMITS = { connectMs: 2_000, firstByteMs: 2_000, idleMs: 2_000, totalMs: 5_000 };

/** Sends a request over `route`: the body of the response, or why it failed. */
async function send(t: TestContext, url: string, route: Route): Promise<string> {
  const clock = systemClock();
  const pool = new UpstreamPool({ url, maxConnections: 2, connectMs: 2_000, clock, ...route });
  t.after(() => pool.destroy());
  const fetched = await fetchWhole(pool, {
    method: 'GET',
    path: '/',
    headers: [],
    body: null,
    limits: LIMITS,
    maxResponseBytes: 1_000,
  });
  return fetched.ok ? fetched.body.toString() : `${fetched.kind}: ${fetched.message}`;
}

const serveOk = (socket: Socket): void => void socket.on('data', () => socket.write(OK));

test('a proxy opens a tunnel to http and https, with the credentials of its address', async (t) => {
  const { host, seen } = await startProxy(t);
  const plain = await rawServer(t, serveOk);
  const secure = await rawServer(t, serveOk, { key: TEST_KEY, cert: TEST_CERTIFICATE });
  const tls = { ca: TEST_CERTIFICATE };
  assert.equal(await send(t, plain, { proxy: `http://${host}` }), 'ok');
  assert.equal(await send(t, secure, { proxy: `http://anna:a%40b@${host}`, tls }), 'ok');
  const authorization = `Basic ${Buffer.from('anna:a@b').toString('base64')}`;
  assert.deepEqual(seen, [
    { target: new URL(plain).host, authorization: undefined },
    { target: new URL(secure).host, authorization },
  ]);
});

test('a proxy that rejects, closes or is unreachable fails the connection at once, without its password in the error', async (t) => {
  const url = await rawServer(t, serveOk);
  const refusing = await startProxy(t);
  refusing.behaviour = 407;
  let connections = 0;
  const closing = await rawServer(t, (socket) => {
    connections += 1;
    socket.once('data', () => socket.destroy());
  });
  for (const proxy of [
    `http://anna:secret@${refusing.host}`,
    closing.replace('http://', 'http://anna:secret@'),
    'http://anna:secret@127.0.0.1:1',
  ]) {
    const startedMs = Date.now();
    const failure = await send(t, url, { proxy });
    assert.match(failure, /^connect: .*proxy|^connect: No tunnel/);
    assert.doesNotMatch(failure, /secret|anna/);
    assert.ok(Date.now() - startedMs < 1_000, failure);
  }
  assert.equal(connections, 1);
});

test('a configured authority is trusted, and a client certificate is sent', async (t) => {
  const url = await rawServer(t, serveOk, {
    key: TEST_KEY,
    cert: TEST_CERTIFICATE,
    ca: TEST_CERTIFICATE,
    requestCert: true,
  });
  const ca = TEST_CERTIFICATE;
  assert.match(await send(t, url, {}), /^connect: .*self-signed certificate/);
  assert.match(await send(t, url, { tls: { ca } }), /^(?!ok)/);
  const tls = { ca, cert: TEST_CERTIFICATE, key: TEST_KEY };
  assert.equal(await send(t, url, { tls }), 'ok');
});
