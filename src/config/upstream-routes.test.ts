import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { test } from 'node:test';
import { TEST_CERTIFICATE, TEST_KEY } from '../../test/support/test-certificate.ts';
import { describeConfig, formatProblem, loadConfig } from './config.ts';
import { diffConfig } from './sections.ts';

const OTHER_KEY = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey.export({
  type: 'pkcs8',
  format: 'pem',
});
const FILES = {
  '/srv/ca.pem': TEST_CERTIFICATE,
  '/srv/cert.pem': TEST_CERTIFICATE,
  '/srv/key.pem': TEST_KEY,
  '/srv/both.pem': `${TEST_CERTIFICATE}\n${TEST_KEY}`,
  '/srv/other.pem': OTHER_KEY,
  '/srv/text.pem': 'no certificate',
};

function load(yaml: string, env: Record<string, string> = {}, files: object = {}) {
  const all = new Map(Object.entries({ ...FILES, ...files, '/srv/farebox.yaml': yaml }));
  return loadConfig({ env, cwd: '/srv', readFile: async (path) => all.get(path) });
}

async function loaded(...given: Parameters<typeof load>) {
  const result = await load(...given);
  assert.ok(result.ok, result.ok ? '' : result.problems.map(formatProblem).join('\n'));
  return result;
}

const engine = (settings: string): string => `engines: { e: { ${settings} } }`;
const TLS = 'ca: ca.pem, cert: cert.pem, key: key.pem';

test('PEM files are read and watched, and a rotated one changes its section', async () => {
  const node = `rpc: { networks: { base-mainnet: { upstreams: [{ url: https://n.example, ${TLS} }] } } }`;
  const yaml = `${engine(`url: https://e.example/v1, ${TLS}`)}\n${node}`;
  const { config, sources } = await loaded(yaml);
  const tls = { ca: TEST_CERTIFICATE, cert: TEST_CERTIFICATE, key: TEST_KEY };
  assert.deepEqual(config.engines['e']?.tls, tls);
  assert.deepEqual(config.rpc.networks['base-mainnet']?.upstreams[0]?.tls, tls);
  const paths = new Set(sources.map(({ path }) => path));
  for (const path of ['/srv/ca.pem', '/srv/cert.pem', '/srv/key.pem']) assert.ok(paths.has(path));
  const rotated = await loaded(yaml, {}, { '/srv/ca.pem': `${TEST_CERTIFICATE}\n` });
  assert.deepEqual(diffConfig(config, rotated.config), {
    changed: ['engines', 'rpc'],
    restart: ['rpc'],
  });
});

test('`describeConfig` shows paths and proxies without keys and credentials', async () => {
  const yaml = `${engine(`url: https://e.example/v1, ${TLS}, proxy: "http://anna:secret@p.example:1"`)}
rpc: { networks: { base-mainnet: { upstreams: [{ url: https://n.example, proxy: "http://tk1@p.example" }] } } }
search: { provider: searxng, url: https://search.example }`;
  const { config } = await loaded(yaml, { HTTPS_PROXY: 'http://bob:hidden@env.example:2' });
  const shown = describeConfig(config);
  assert.match(shown, /proxy: http:\/\/anna:\*{8}@p\.example:1/);
  assert.match(shown, /proxy: http:\/\/\*{8}@p\.example/);
  assert.match(shown, /proxy: http:\/\/bob:\*{8}@env\.example:2/);
  for (const file of ['ca.pem', 'cert.pem', 'key.pem']) assert.ok(shown.includes(file), file);
  assert.doesNotMatch(shown, /secret|hidden|tk1|BEGIN/);
});

test('a `proxy` setting takes precedence over the environment, also for loopback', async () => {
  const own = 'proxy: http://own.example:1';
  const yaml = `engines: { a: { url: http://a.example }, b: { url: http://b.example, ${own} }, c: { url: http://localhost, ${own} }, d: { url: http://localhost } }`;
  const env = { HTTP_PROXY: 'env.example:2', NO_PROXY: 'b.example' };
  const { engines } = (await loaded(yaml, env)).config;
  assert.deepEqual(
    Object.values(engines).map(({ proxy }) => proxy),
    ['http://env.example:2', 'http://own.example:1', 'http://own.example:1', undefined],
  );
});

test('a certificate file may contain its key', async () => {
  await loaded(engine('url: https://e.example, cert: both.pem'));
});

for (const [settings, path, message] of [
  [
    'url: https://e.example, ca: gone.pem',
    'ca',
    /There is no file \/srv\/gone\.pem; write the path/,
  ],
  [
    'url: https://e.example, ca: text.pem',
    'ca',
    /contains no certificate; write the path of a PEM file/,
  ],
  ['url: https://e.example, cert: text.pem', 'cert', /contains no certificate/],
  [
    'url: https://e.example, cert: cert.pem',
    'key',
    /No private key for "cert".*; write the path of a PEM file/,
  ],
  ['url: https://e.example, cert: cert.pem, key: other.pem', 'key', /No private key for "cert"/],
  ['url: https://e.example, key: key.pem', 'key', /Needs "cert"/],
  ['url: http://e.example, ca: ca.pem', 'ca', /write "url" with https:\/\//],
  ['url: "unix:/e.sock:/v1", proxy: http://p', 'proxy', /remove this setting/],
  ['url: https://e.example, proxy: "socks5://anna:secret@p"', 'proxy', /http:\/\/proxy\.example/],
  ['url: https://e.example, proxy: "http://100%:secret@p"', 'proxy', /http:\/\/proxy\.example/],
  [`url: https://e.example, cert: ${JSON.stringify(TEST_KEY)}`, 'cert', /the path of a PEM file/],
] as const) {
  test(`${settings.replaceAll(/-----.*-----/gs, '…')} is reported at ${path}`, async () => {
    const result = await load(engine(settings));
    assert.ok(!result.ok);
    assert.deepEqual(
      result.problems.map((problem) => problem.path),
      [`engines.e.${path}`],
    );
    const text = result.problems.map(formatProblem).join('\n');
    assert.match(text, message);
    assert.doesNotMatch(text, /secret|BEGIN/);
  });
}

test('a variable that is not a proxy URL is ignored with a warning without its value', async () => {
  const { config, warnings } = await loaded('', { HTTPS_PROXY: 'socks5://anna:secret@p' });
  assert.equal(config.proxies.httpsProxy, undefined);
  const [warning] = warnings.map(formatProblem);
  assert.match(warning ?? '', /^environment: HTTPS_PROXY: Must be .* is ignored/);
  assert.doesNotMatch(warning ?? '', /secret/);
});
