/** Bad input, one row each: the right status, a code, a sentence that helps, and no charge. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { TestUpstream } from '../support/test-upstream.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';

interface Row {
  readonly name: string;
  readonly body?: unknown;
  readonly raw?: string | Buffer;
  readonly headers?: Record<string, string | undefined>;
  readonly status: number;
  readonly says: RegExp;
  /** Paths that `details` names. */
  readonly names?: string;
}

const HI = [{ role: 'user', content: 'Hi' }];
/** Read on a thread of its own. */
const LARGE = 'word '.repeat(400_000);
const ROWS: readonly Row[] = [
  {
    name: 'no key',
    headers: { authorization: undefined },
    body: { model: 'm', messages: HI },
    status: 402,
    says: /no credentials.*Authorization: Bearer/,
  },
  {
    name: 'a wrong key',
    headers: { authorization: 'Bearer SVC_INFERENCE_KEY_x' },
    body: { model: 'm', messages: HI },
    status: 401,
    says: /unknown API key/,
  },
  {
    name: 'not Bearer',
    headers: { authorization: 'Basic abc' },
    body: { model: 'm', messages: HI },
    status: 401,
    says: /Authorization: Bearer/,
  },
  { name: 'bad JSON', raw: '{"model": ', status: 400, says: /not valid JSON/ },
  { name: 'an empty body', raw: '', status: 400, says: /JSON/ },
  {
    name: 'a wrong Content-Type',
    headers: { 'content-type': 'text/plain' },
    raw: 'hello',
    status: 415,
    says: /application\/json/,
  },
  {
    name: 'a body of 36 MB',
    raw: Buffer.alloc(37 * 1024 * 1024, 97),
    status: 413,
    says: /too large/,
  },
  { name: '2 MB that are no JSON', raw: LARGE, status: 400, says: /not valid JSON/ },
  {
    name: '2 MB with a wrong member',
    body: { model: 'm', messages: [{ role: 'user', content: LARGE }], temperature: 'hot' },
    status: 400,
    says: /temperature/,
    names: 'temperature',
  },
  {
    name: 'a prompt of 2 MB',
    body: { model: 'm', messages: [{ role: 'user', content: LARGE }] },
    status: 400,
    says: /context/,
  },
  { name: 'no model', body: { messages: HI }, status: 400, says: /./, names: 'model' },
  { name: 'no messages', body: { model: 'm' }, status: 400, says: /./, names: 'messages' },
  {
    name: 'empty messages',
    body: { model: 'm', messages: [] },
    status: 400,
    says: /./,
    names: 'messages',
  },
  {
    name: 'temperature 3',
    body: { model: 'm', messages: HI, temperature: 3 },
    status: 400,
    says: /./,
    names: 'temperature',
  },
  {
    name: '5 stops',
    body: { model: 'm', messages: HI, stop: ['a', 'b', 'c', 'd', 'e'] },
    status: 400,
    says: /./,
    names: 'stop',
  },
  {
    name: 'an unknown model',
    body: { model: 'nn', messages: HI },
    status: 404,
    says: /does not exist/,
  },
  {
    name: 'an image to a text model',
    body: {
      model: 'm',
      messages: [
        {
          role: 'user',
          content: [{ type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } }],
        },
      ],
    },
    status: 400,
    says: /image/,
  },
  {
    name: 'tools to a model without tools',
    body: { model: 'm', messages: HI, tools: [{ type: 'function', function: { name: 'f' } }] },
    status: 400,
    says: /tool|function/,
  },
  {
    name: 'a schema to a model without',
    body: { model: 'm', messages: HI, response_format: { type: 'json_object' } },
    status: 400,
    says: /response_format|JSON/i,
  },
  {
    name: 'logprobs to a model without',
    body: { model: 'm', messages: HI, logprobs: true },
    status: 400,
    says: /logprobs/i,
  },
  {
    name: 'an output cap above the model',
    body: { model: 'm', messages: HI, max_completion_tokens: 5000 },
    status: 400,
    says: /64.*5000|5000.*64/,
  },
  {
    name: 'a prompt over the context',
    body: { model: 'm', messages: [{ role: 'user', content: 'word '.repeat(40_000) }] },
    status: 400,
    says: /context/,
  },
  {
    name: 'a lone surrogate and NUL',
    raw: '{"model":"m\\u0000","messages":[{"role":"user","content":"\\ud800"}]}',
    status: 404,
    says: /./,
  },
];

describe('bad input', () => {
  let upstream: TestUpstream;
  let farebox: TestApp;

  before(async () => {
    upstream = await TestUpstream.start();
    farebox = await startTestApp({
      yaml: `
engines: { one: { url: ${upstream.url} } }
models: [{ id: m, type: text, context: 4096, maxCompletionTokens: 64, price: { input: 1, output: 2 }, replicas: [{ engine: one }] }]
limits: { guard: { failures: 100000 } }
`,
    });
  });
  after(async () => {
    await farebox.stop();
    await upstream.kill();
  });

  for (const row of ROWS) {
    test(`${row.name}: ${row.status}`, async () => {
      const headers = Object.entries({
        authorization: `Bearer ${farebox.owner.secret}`,
        'content-type': 'application/json',
        ...row.headers,
      }).filter((pair): pair is [string, string] => pair[1] !== undefined);
      const answer = await fetch(`${farebox.url}/chat/completions`, {
        method: 'POST',
        headers,
        body: (row.raw ?? JSON.stringify(row.body)) as string,
      });
      const body = (await answer.json()) as { error: unknown; details?: Record<string, unknown> };
      assert.equal(answer.status, row.status, JSON.stringify(body));
      assert.match(JSON.stringify(body), row.says);
      if (row.names !== undefined)
        assert.ok(row.names in (body.details ?? {}), JSON.stringify(body));
      assert.ok(answer.statusText.length > 0);
      assert.ok(answer.headers.get('x-svc-host-name'));
      assert.equal(upstream.seen.length, 0, 'the engine was asked');
    });
  }

  test('a path without the version gets 404 with the path of the API', async () => {
    const answer = await fetch(`${new URL(farebox.url).origin}/v1/chat/completions`, {
      method: 'POST',
    });
    assert.equal(answer.status, 404);
    assert.match(((await answer.json()) as { error: string }).error, /\/api\/v1/);
  });

  test('an unknown path or method gets its error, independent of the body', async () => {
    const large = Buffer.alloc(2_000_000, 97);
    const { origin } = new URL(farebox.url);
    for (const [path, body, type, status] of [
      ['/nowhere', '{}', 'application/json, text/plain', 404],
      ['/nowhere', large, 'text/plain', 404],
      ['/models', large, 'text/plain', 405],
    ] as const) {
      const answer = await fetch(`${origin}/api/v1${path}`, {
        method: 'POST',
        headers: { 'content-type': type },
        body,
      });
      assert.equal(answer.status, status, await answer.text());
    }
  });

  test('a wrong method is 405 with Allow', async () => {
    const answer = await fetch(`${farebox.url}/chat/completions`);
    assert.deepEqual([answer.status, answer.headers.get('allow')], [405, 'POST']);
  });

  test('Allow names the methods of every path that a request can mean', async () => {
    const answer = await fetch(`${farebox.url}/crypto/rpc/networks`, { method: 'PUT' });
    assert.deepEqual([answer.status, answer.headers.get('allow')], [405, 'GET, HEAD, POST']);
  });

  test('an absolute URL on the request line is served by its path', async () => {
    const { hostname, port } = new URL(farebox.url);
    const socket = connect(Number(port), hostname);
    const line = `POST ${farebox.url}/chat/completions?a=1 HTTP/1.1`;
    const head = `${line}\r\nhost: a\r\nconnection: close\r\ncontent-length: 0\r\n\r\n`;
    socket.end(head);
    const parts: Buffer[] = await socket.toArray();
    const [status = '', body = ''] = Buffer.concat(parts).toString().split('\r\n\r\n');
    assert.match(status, /^HTTP\/1\.1 402 /);
    const { resource } = JSON.parse(body) as { resource: { url: string } }; // checked by the document
    assert.equal(new URL(resource.url).pathname, '/api/v1/chat/completions');
  });

  test('a caller that disconnects while it sends a body to an unknown path ends the request', async () => {
    const { hostname, port, origin } = new URL(farebox.url);
    const socket = connect(Number(port), hostname);
    socket.end('POST /nowhere HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n{');
    socket.resume();
    await once(socket, 'close');
    let metrics = '';
    // The server closes its end of the connection a moment later.
    for (let turn = 0; turn < 100 && !/^farebox_requests_open 1$/m.test(metrics); turn += 1) {
      metrics = await (await fetch(`${origin}/metrics`)).text();
    }
    // The request for the metrics itself.
    assert.match(metrics, /^farebox_requests_open 1$/m);
  });

  test('no invalid request was charged', async () => {
    const { ledger } = farebox.app.stores;
    assert.equal(
      (await ledger.balances(farebox.owner.accountId)).usdNano,
      farebox.owner.creditNano,
    );
    assert.equal((await ledger.audit()).openHolds, 0);
  });
});
