import assert from 'node:assert/strict';
import { test } from 'node:test';

import { parseUpstreamUrl } from './upstream-url.ts';

test('http, https and unix URLs are parsed', () => {
  assert.deepEqual(parseUpstreamUrl('http://10.0.0.5:8000/v1/'), {
    origin: 'http://10.0.0.5:8000',
    basePath: '/v1',
    query: '',
    socketPath: null,
  });
  assert.deepEqual(parseUpstreamUrl('https://api.example.com'), {
    origin: 'https://api.example.com',
    basePath: '',
    query: '',
    socketPath: null,
  });
  assert.deepEqual(parseUpstreamUrl('unix:/run/engine.sock:/v1'), {
    origin: 'http://localhost',
    basePath: '/v1',
    query: '',
    socketPath: '/run/engine.sock',
  });
  assert.deepEqual(
    parseUpstreamUrl('https://acme.openai.azure.com/openai/deployments/gpt-4o/?api-version=1'),
    {
      origin: 'https://acme.openai.azure.com',
      basePath: '/openai/deployments/gpt-4o',
      query: 'api-version=1',
      socketPath: null,
    },
  );
  assert.equal(parseUpstreamUrl('unix:/run/engine.sock').socketPath, '/run/engine.sock');
});

test('other URLs are rejected', () => {
  for (const url of ['', 'ftp://x', '10.0.0.5:8000', 'http://u:p@x/v1', 'http://x/v1#a', 'unix:']) {
    assert.throws(() => parseUpstreamUrl(url), RangeError, url);
  }
});
