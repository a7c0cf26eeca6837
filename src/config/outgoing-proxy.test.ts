import assert from 'node:assert/strict';
import { test } from 'node:test';
import { environmentProxies, proxyOf } from './outgoing-proxy.ts';

const PROXIES = { httpProxy: 'http://plain:1', httpsProxy: 'http://secure:2' };

test('the scheme of the target selects the proxy', () => {
  const proxies = { ...PROXIES, noProxy: undefined };
  assert.equal(proxyOf(proxies, 'http://engine.example/v1'), 'http://plain:1');
  assert.equal(proxyOf(proxies, 'https://engine.example/v1'), 'http://secure:2');
  assert.equal(proxyOf({ ...proxies, httpsProxy: undefined }, 'https://engine.example'), undefined);
});

for (const url of [
  'http://localhost:8000/v1',
  'http://a.localhost',
  'https://127.0.0.1',
  'https://127.9.9.9:1',
  'http://[::1]:80',
  'http://[::ffff:127.0.0.1]',
  'unix:/run/engine.sock:/v1',
]) {
  test(`${url} uses no proxy`, () => {
    assert.equal(proxyOf({ ...PROXIES, noProxy: undefined }, url), undefined);
  });
}

for (const [noProxy, target, isDirect] of [
  ['*', 'https://any.example', true],
  ['engine.example', 'https://engine.example', true],
  ['ENGINE.example', 'https://engine.EXAMPLE.', true],
  ['engine.example', 'https://a.engine.example', true],
  ['engine.example', 'https://myengine.example', false],
  ['.example', 'https://engine.example', true],
  ['*.example', 'https://engine.example', true],
  ['.engine.example', 'https://other.example', false],
  ['a.example, b.example c.example', 'https://c.example', true],
  ['engine.example:443', 'https://engine.example', true],
  ['engine.example:80', 'http://engine.example', true],
  ['engine.example:8443', 'https://engine.example', false],
  ['engine.example:8443', 'https://engine.example:8443', true],
  ['10.0.0.5', 'http://10.0.0.5:8000', true],
  ['10.0.0.5:8000', 'http://10.0.0.5:8000', true],
  ['10.0.0.0/8', 'http://10.200.0.5:8000', true],
  ['10.0.0.0/8', 'http://11.0.0.5', false],
  ['10.0.0.0/8', 'http://engine.example', false],
  ['fd00::/8', 'http://[fd12::1]:8000', true],
  ['fd00::/8', 'http://10.0.0.5', false],
  ['[fd12::1]:8000', 'http://[fd12::1]:8000', true],
  ['fd12::1', 'http://[fd12::1]', true],
  [',, .', 'https://engine.example', false],
] as const) {
  test(`NO_PROXY="${noProxy}" sends ${target} ${isDirect ? 'directly' : 'through the proxy'}`, () => {
    assert.equal(proxyOf({ ...PROXIES, noProxy }, target) === undefined, isDirect);
  });
}

test('lower-case variables take precedence, a host without scheme is valid, and other values are listed in `ignored`', () => {
  const { ignored, ...proxies } = environmentProxies({
    HTTPS_PROXY: 'http://upper:1',
    https_proxy: 'lower:2',
    HTTP_PROXY: 'socks5://anna:secret@proxy:1080',
    NO_PROXY: 'a.example',
  });
  assert.deepEqual(ignored, ['HTTP_PROXY']);
  assert.deepEqual(proxies, {
    httpProxy: undefined,
    httpsProxy: 'http://lower:2',
    noProxy: 'a.example',
  });
});
