/** Encodings and size limits of request bodies, and responses to HEAD. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { type Bench, call, chatBody, startWithEngine } from '../app/call.ts';

const JSON_LIMIT = 20_000;
const FILE_LIMIT = 5_000;

describe('bodies', () => {
  let bench: Bench;
  let secret: string;

  before(async () => {
    bench = await startWithEngine({
      yaml: [
        `http: { jsonLimitBytes: ${JSON_LIMIT}, fileLimitBytes: ${FILE_LIMIT} }`,
        'personas:',
        '  list:',
        ...['ann', 'bob', 'cy'].map(
          (slug) => `    - { slug: ${slug}, name: ${slug}, prompt: Hi, model: atlas }`,
        ),
      ].join('\n'),
    });
    ({ secret } = await bench.farebox.account('5'));
  });
  after(() => bench.stop());

  const ask = (path: string, options: Parameters<typeof call>[2] = {}) =>
    call(bench.farebox, path, { secret, ...options });

  /** Bytes as they are, with a type and maybe a coding. */
  const post = (path: string, body: Uint8Array<ArrayBuffer> | FormData, headers = {}) =>
    fetch(bench.farebox.url + path, {
      method: 'POST',
      headers: { authorization: `Bearer ${secret}`, ...headers },
      body,
    });
  const json = { 'content-type': 'application/json' };

  test('a JSON body may have the configured size', async () => {
    const padded = (content: string) => chatBody({ messages: [{ role: 'user', content }] });
    const frame = JSON.stringify(padded('')).length;
    const largest = await ask('/chat/completions', {
      body: padded('x'.repeat(JSON_LIMIT - frame)),
    });
    assert.equal(largest.status, 200, largest.text);
    const larger = await ask('/chat/completions', {
      body: padded('x'.repeat(JSON_LIMIT - frame + 1)),
    });
    assert.deepEqual([larger.status, larger.body.code], [413, 'PAYLOAD_TOO_LARGE']);
  });

  test('a file may have the configured size, in a form and in a chat', async () => {
    for (const [size, status] of [
      [FILE_LIMIT + 1, 413],
      // Not too large; there is no engine for it.
      [FILE_LIMIT, 503],
    ] as const) {
      const form = new FormData();
      form.set('image', new Blob([new Uint8Array(size)]));
      const answer = await post('/image/background-remove', form);
      assert.equal(answer.status, status, await answer.text());
    }
    const file = (bytes: number) => ({
      type: 'file',
      file: {
        filename: 'a.txt',
        file_data: `data:text/plain;base64,${Buffer.alloc(bytes, 'a').toString('base64')}`,
      },
    });
    const withFile = (bytes: number) =>
      ask('/chat/completions', {
        body: chatBody({ messages: [{ role: 'user', content: [file(bytes)] }] }),
      });
    assert.equal((await withFile(FILE_LIMIT)).status, 200);
    const larger = await withFile(FILE_LIMIT + 1);
    assert.deepEqual([larger.status, larger.body.code], [413, 'PAYLOAD_TOO_LARGE']);
  });

  test('a compressed body is limited by its uncompressed size', async () => {
    const packed = Buffer.from(gzipSync(JSON.stringify(chatBody())));
    const answer = await post('/chat/completions', packed, { ...json, 'content-encoding': 'gzip' });
    assert.equal(answer.status, 200, await answer.text());
    const bomb = Buffer.from(gzipSync(Buffer.alloc(10_000_000)));
    const refused = await post('/chat/completions', bomb, { ...json, 'content-encoding': 'gzip' });
    assert.equal(refused.status, 413);
    const other = await post('/chat/completions', packed, { ...json, 'content-encoding': 'zstd' });
    assert.equal(other.status, 415);
    assert.equal(other.headers.get('accept-encoding'), 'gzip, deflate, br');
  });

  test('a retry with an idempotency key may use another compression', async () => {
    const headers = { ...json, 'idempotency-key': 'packed' };
    const body = JSON.stringify(chatBody());
    const first = await post('/chat/completions', Buffer.from(body), headers);
    assert.equal(first.status, 200);
    const packed = { ...headers, 'content-encoding': 'gzip' };
    const second = await post('/chat/completions', Buffer.from(gzipSync(body)), packed);
    assert.equal(second.headers.get('idempotent-replayed'), 'true');
    assert.equal(await second.text(), await first.text());
  });

  test('HEAD returns the headers of GET without the body, on every route', async () => {
    for (const path of ['/models', '/usage', '/billing/balance', '/characters', '/models/traits']) {
      const got = await ask(path);
      const head = await ask(path, { method: 'HEAD' });
      assert.deepEqual([head.status, head.text], [got.status, ''], path);
      for (const name of ['content-length', 'content-type', 'x-pagination-total']) {
        assert.equal(head.headers.get(name), got.headers.get(name), `${path} ${name}`);
      }
    }
    assert.equal((await call(bench.farebox, '/usage', { method: 'HEAD' })).status, 402);
    assert.equal((await ask('/nowhere', { method: 'HEAD' })).status, 404);
    assert.equal((await ask('/chat/completions', { method: 'HEAD' })).status, 405);
    const put = await ask('/models', { method: 'PUT' });
    assert.deepEqual([put.status, put.headers.get('allow')], [405, 'GET, HEAD']);
  });

  test('`GET /characters` returns the number of the page', async () => {
    const page = await ask('/characters?limit=2&offset=2');
    assert.equal(page.body.data.length, 1);
    const shown = ['limit', 'page', 'total', 'total-pages'].map((name) =>
      page.headers.get(`x-pagination-${name}`),
    );
    assert.deepEqual(shown, ['2', '2', '3', '2']);
  });
});
