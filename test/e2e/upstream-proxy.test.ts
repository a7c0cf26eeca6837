/** Engines and RPC nodes behind an HTTP proxy, and behind TLS with a private authority and client certificates. */
import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { rootCertificates } from 'node:tls';
import { loadConfig } from '../../src/config/config.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { startNode } from '../rpc/node.ts';
import { startProxy } from '../support/connect-proxy.ts';
import { type LogLine, memoryLog } from '../support/memory-log.ts';
import { rawServer } from '../support/raw-server.ts';
import { TEST_CERTIFICATE, TEST_KEY } from '../support/test-certificate.ts';
import { TestUpstream } from '../support/test-upstream.ts';

const SECRETS = /hidden|s3cret|czNjcmV0|aGlkZGVu|PRIVATE KEY/;

const modelOn = (engine: string): string =>
  `  - { id: ${engine}, type: text, context: 4096, price: { input: 1, output: 2 }, replicas: [{ engine: ${engine} }] }`;

function chat(farebox: TestApp, model: string): Promise<Response> {
  return post(farebox, '/chat/completions', {
    model,
    messages: [{ role: 'user', content: 'Hi' }],
  });
}

function post(farebox: TestApp, path: string, body: unknown): Promise<Response> {
  return fetch(farebox.url + path, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${farebox.owner.secret}`,
      'content-type': 'application/json',
    },
    body: JSON.stringify(body),
  });
}

/** An engine, the same behind TLS with required client certificates, and the PEM files for it. */
async function startEngine(t: TestContext) {
  const engine = await TestUpstream.start();
  const folder = await mkdtemp(join(tmpdir(), 'farebox-pem-'));
  t.after(async () => {
    await engine.kill();
    await rm(folder, { recursive: true });
  });
  const origin = await rawServer(
    t,
    (socket) => {
      const behind = connect(engine.port, '127.0.0.1').on('error', () => socket.destroy());
      socket.on('close', () => behind.destroy());
      socket.pipe(behind).pipe(socket);
    },
    { key: TEST_KEY, cert: TEST_CERTIFICATE, ca: TEST_CERTIFICATE, requestCert: true },
  );
  const [ca, key] = [join(folder, 'cert.pem'), join(folder, 'key.pem')];
  await writeFile(ca, TEST_CERTIFICATE);
  await writeFile(key, TEST_KEY);
  return { engine, secureUrl: `${origin}/v1`, ca, key };
}

test('engines and nodes are reached through the proxy of their setting or of the environment', async (t) => {
  const { engine, secureUrl, ca, key } = await startEngine(t);
  const node = await startNode('0x1');
  const own = await startProxy(t);
  const environment = await startProxy(t, {
    'engine.example:80': engine.port,
    'node.example:8545': Number(new URL(node.url).port),
  });
  const names = ['secure', 'stranger', 'named', 'local', 'refused', 'closed'];
  const lines: LogLine[] = [];
  const farebox = await startTestApp({
    log: memoryLog(lines),
    env: {
      HTTP_PROXY: `bob:hidden@${environment.host}`,
      https_proxy: `http://bob:hidden@${environment.host}`,
    },
    yaml: `
engines:
  secure: { url: ${secureUrl}, ca: ${ca}, cert: ${ca}, key: ${key}, proxy: "http://anna:s3cret%40@${own.host}" }
  stranger: { url: ${secureUrl}, ca: ${ca} }
  named: { url: http://engine.example/v1 }
  local: { url: ${engine.url} }
  refused: { url: http://refused.example/v1 }
  closed: { url: http://closed.example/v1 }
models:
${names.map(modelOn).join('\n')}
rpc: { networks: { ethereum-mainnet: { upstreams: [{ url: http://node.example:8545 }] } } }
`,
  });
  t.after(async () => {
    await farebox.audit();
    await farebox.stop();
    await node.close();
  });
  const targets = (): string[] => environment.seen.map(({ target }) => target);

  await t.test('TLS with a client certificate runs through the tunnel', async () => {
    const response = await chat(farebox, 'secure');
    assert.equal(response.status, 200, await response.text());
    const authorization = `Basic ${Buffer.from('anna:s3cret@').toString('base64')}`;
    assert.deepEqual(own.seen, [{ target: new URL(secureUrl).host, authorization }]);
    assert.deepEqual(targets(), []);
  });

  await t.test('a node is reached through the proxy of the environment', async () => {
    const call = { jsonrpc: '2.0', id: 1, method: 'eth_gasPrice', params: [] };
    const response = await post(farebox, '/crypto/rpc/ethereum-mainnet', call);
    assert.match(await response.text(), /eth_gasPrice done/);
    assert.deepEqual([...new Set(targets())], ['node.example:8545']);
  });

  await t.test('the proxy resolves host names, and loopback is direct', async () => {
    environment.seen.length = 0;
    assert.equal((await chat(farebox, 'local')).status, 200);
    assert.deepEqual(targets(), []);
    assert.equal((await chat(farebox, 'named')).status, 200);
    const authorization = `Basic ${Buffer.from('bob:hidden').toString('base64')}`;
    assert.deepEqual(environment.seen, [{ target: 'engine.example:80', authorization }]);
  });

  await t.test('a public node is reached through the proxy of the environment', async () => {
    environment.seen.length = 0;
    environment.behaviour = 403;
    const call = { jsonrpc: '2.0', id: 1, method: 'eth_gasPrice', params: [] };
    const response = await post(farebox, '/crypto/rpc/base-mainnet', call);
    assert.equal(response.status, 503, await response.text());
    assert.ok(targets().length > 0);
    assert.ok(targets().every((target) => target.endsWith(':443')));
  });

  for (const [model, behaviour] of [
    ['refused', 407],
    ['closed', 'close'],
  ] as const) {
    await t.test(`a proxy that answers CONNECT with "${behaviour}" is an outage`, async () => {
      environment.behaviour = behaviour;
      const response = await chat(farebox, model);
      assert.equal(response.status, 503);
      assert.doesNotMatch(await response.text(), SECRETS);
    });
  }

  await t.test('no client certificate is an outage', async () => {
    assert.equal((await chat(farebox, 'stranger')).status, 503);
  });

  await t.test('no credential or key is logged or shown', async () => {
    const secret = await farebox.key({ kind: 'ADMIN' });
    const headers = { authorization: `Bearer ${secret}` };
    for (const path of ['/admin/config', '/admin/engines', '/admin/check']) {
      const response = await fetch(farebox.url + path, { headers });
      const text = await response.text();
      assert.equal(response.status, 200, text);
      assert.doesNotMatch(text, SECRETS, path);
    }
    assert.doesNotMatch(await (await fetch(`${farebox.app.address}/metrics`)).text(), SECRETS);
    assert.doesNotMatch(JSON.stringify(lines), SECRETS);
  });
});

test('a rotated certificate file is used without a restart', async (t) => {
  const { secureUrl, ca, key } = await startEngine(t);
  const yaml = `
discovery: { enabled: false }
embedded: { enabled: false }
engines: { secure: { url: ${secureUrl}, ca: ${ca}, cert: ${ca}, key: ${key} } }
models:
${modelOn('secure')}`;
  const authority = `${ca}.authority`;
  const withAuthority = yaml.replace(`ca: ${ca}`, `ca: ${authority}`);
  await writeFile(authority, rootCertificates[0] ?? '');
  const farebox = await startTestApp({ yaml: withAuthority.split('\n').slice(3).join('\n') });
  t.after(() => farebox.stop());
  assert.equal((await chat(farebox, 'secure')).status, 503);
  await writeFile(authority, TEST_CERTIFICATE);
  const loaded = await loadConfig({
    env: {},
    cwd: farebox.config.dataFolder,
    readFile: async (path) =>
      path.endsWith('.yaml') ? withAuthority : await readFile(path, 'utf8'),
  });
  assert.ok(loaded.ok);
  farebox.app.configure(loaded.config);
  assert.equal((await chat(farebox, 'secure')).status, 200);
});
