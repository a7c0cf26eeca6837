/**
 * `/mcp` through two unmodified official clients and the conformance suite of the protocol: results
 * of tools, charges and errors.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { after, before, beforeEach, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import * as modern from '@modelcontextprotocol/client';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { usdToNano } from '../../src/core/money.ts';
import { type Bench, call, chatBody, startWithEngine } from '../app/call.ts';
import { type TestNode, echoNode, sendText, startNode } from '../rpc/node.ts';
import { childEnvironment } from '../support/child-environment.ts';
import { endWithUs } from '../support/end-with-us.ts';
import { chatEvents } from '../support/test-upstream.ts';
import { until } from '../support/until.ts';
import { TestWeb } from '../web/test-web.ts';

const CONFORMANCE = fileURLToPath(
  new URL('../node_modules/@modelcontextprotocol/conformance/dist/index.js', import.meta.url),
);
const INFO = { name: 'test', version: '1' };
const META = {
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientCapabilities': {},
};
const PROMPT = { prompt: 'Hello', max_tokens: 50 };

describe('the MCP server', () => {
  let bench: Bench;
  let node: TestNode;
  let web: TestWeb;
  let url: URL;
  let secret: string;
  let accountId: string;

  before(async () => {
    web = await TestWeb.start();
    node = await startNode('0x1');
    bench = await startWithEngine({
      model: [
        '  - { id: vectors, type: embedding, price: { input: 0.1 }, embedding: { dimensions: 3, maxInputTokens: 8192 }, replicas: [{ engine: rack1 }] }',
        '  - { id: film, type: video, replicas: [{ engine: rack1 }], video: { task: text-to-video, durations: [1 gen], pricing: { kind: generation, perGeneration: 0.1 } } }',
      ].join('\n'),
      yaml: [
        `search: { provider: searxng, url: "${web.url}" }`,
        'fetch: { allow: ["127.0.0.0/8"] }',
        `rpc: { publicNodes: false, networks: { ethereum-mainnet: { upstreams: [{ url: "${node.url}" }] } } }`,
        'limits: { guard: { failures: 1000 } }',
      ].join('\n'),
    });
    url = new URL('/mcp', bench.farebox.app.address);
  });
  after(async () => {
    await bench.farebox.audit();
    await bench.stop();
    await node.close();
    await web.stop();
  });
  beforeEach(async () => {
    ({ secret, accountId } = await bench.farebox.account('1'));
    bench.upstream.otherwise = {
      kind: 'answer',
      content: 'Hello there',
      promptTokens: 5,
      completionTokens: 3,
    };
  });

  const authorized = (): { requestInit: { headers: Record<string, string> } } => ({
    requestInit: { headers: { authorization: `Bearer ${secret}` } },
  });
  const legacyClient = async (options = authorized()): Promise<Client> => {
    const client = new Client(INFO);
    await client.connect(new StreamableHTTPClientTransport(url, options));
    return client;
  };
  const modernClient = async (): Promise<modern.Client> => {
    const client = new modern.Client(INFO, { versionNegotiation: { mode: 'auto' } });
    await client.connect(new modern.StreamableHTTPClientTransport(url, authorized()));
    return client;
  };
  const spent = async (): Promise<bigint> =>
    usdToNano('1') - (await bench.farebox.app.stores.ledger.balances(accountId)).usdNano;
  /** One message over plain HTTP. */
  const post = async (
    body: unknown,
    headers: Readonly<Record<string, string | undefined>> = {},
  ): Promise<{
    status: number;
    headers: Headers;
    text: string;
    body: ReturnType<typeof JSON.parse>;
  }> => {
    const answer = await fetch(url, {
      method: 'POST',
      headers: Object.entries({
        authorization: `Bearer ${secret}`,
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        ...headers,
      }).flatMap(([name, value]) => (value === undefined ? [] : [[name, value]])),
      body: typeof body === 'string' ? body : JSON.stringify(body),
    });
    const text = await answer.text();
    const isJson = answer.headers.get('content-type')?.startsWith('application/json') === true;
    return {
      status: answer.status,
      headers: answer.headers,
      text,
      body: isJson ? JSON.parse(text) : {},
    };
  };
  const request = (method: string, params: object = {}) => ({
    jsonrpc: '2.0',
    id: 1,
    method,
    params,
  });

  test('a client with `initialize` lists tools, calls one and receives progress notifications', async () => {
    const client = await legacyClient();
    assert.equal(client.getServerVersion()?.title, 'Farebox');
    const { tools } = await client.listTools();
    assert.deepEqual(
      tools.map(({ name }) => name),
      [
        'chat',
        'web_search',
        'embeddings',
        'quote_video',
        'generate_video',
        'video_status',
        'cancel_video',
        'blockchain_rpc',
        'balance',
        'list_models',
      ],
    );
    for (const { description, annotations, outputSchema } of tools) {
      assert.match(description ?? '', /Price/);
      assert.equal(typeof annotations?.readOnlyHint, 'boolean');
      assert.equal(outputSchema?.type, 'object');
    }
    assert.match(tools[0]?.description ?? '', /atlas: 1 USD per million input tokens, 2 USD per/);
    bench.upstream.script.push({ kind: 'stream', chunks: 60, everyMs: 20 });
    const told: number[] = [];
    const result = await client.callTool(
      { name: 'chat', arguments: { prompt: 'Hello' } },
      undefined,
      { onprogress: ({ progress }) => told.push(progress) },
    );
    assert.ok(told.length >= 2 && told.every((one, at) => at === 0 || one > (told[at - 1] ?? 0)));
    const { text, cost_usd: costUsd } = result.structuredContent as {
      text: string;
      cost_usd: number;
    };
    assert.match(text, /^ w0 w1 .* w59$/);
    assert.deepEqual(result.content, [{ type: 'text', text }]);
    assert.equal(await spent(), usdToNano(String(costUsd)));
    await client.close();
  });

  test('a client with protocol version 2026-07-28 pays the price of the HTTP route', async () => {
    const client = await modernClient();
    assert.equal(client.getNegotiatedProtocolVersion(), '2026-07-28');
    const { tools } = await client.listTools();
    assert.equal(tools.length, 10);
    const result = await client.callTool({ name: 'chat', arguments: PROMPT });
    assert.deepEqual(result.structuredContent, {
      text: 'Hello there',
      model: 'atlas',
      finish: 'stop',
      usage: { input_tokens: 5, output_tokens: 3, total_tokens: 8 },
      cost_usd: 0.000011,
      sources: [],
    });
    const byTool = await spent();
    await call(bench.farebox, '/chat/completions', { secret, body: chatBody() });
    assert.deepEqual([byTool, await spent()], [usdToNano('0.000011'), usdToNano('0.000022')]);
    const seen = bench.upstream.seen.at(-2);
    assert.deepEqual(JSON.parse(seen?.body ?? '').messages, [{ role: 'user', content: 'Hello' }]);
    await client.close();
  });

  test('search, vectors, a chain, the balance and the models are tools too', async () => {
    const client = await legacyClient();
    await client.listTools();
    web.results = [{ title: 'Tides', url: 'https://example.com/tides', content: 'The moon' }];
    const found = await client.callTool({ name: 'web_search', arguments: { query: 'Why tides?' } });
    const { sources } = found.structuredContent as { sources: unknown };
    assert.deepEqual(sources, [{ title: 'Tides', url: 'https://example.com/tides' }]);
    assert.equal(await spent(), usdToNano('0.010011'));
    bench.upstream.otherwise = { kind: 'embeddings', usage: true };
    const vectors = await client.callTool({
      name: 'embeddings',
      arguments: { texts: ['one', 'three'], model: 'vectors' },
    });
    const { embeddings } = vectors.structuredContent as { embeddings: number[][] };
    assert.deepEqual(
      embeddings.map(({ length }) => length),
      [3, 3],
    );
    const asked = await client.callTool({
      name: 'blockchain_rpc',
      arguments: { network: 'ethereum-mainnet', method: 'eth_gasPrice' },
    });
    assert.deepEqual(asked.structuredContent, { result: 'eth_gasPrice done' });
    const quote = await client.callTool({ name: 'quote_video', arguments: { duration: '1 gen' } });
    assert.deepEqual(quote.structuredContent, { quote_usd: 0.1 });
    const listed = await client.callTool({ name: 'list_models', arguments: { type: 'text' } });
    const { models } = listed.structuredContent as { models: { id: string }[] };
    assert.deepEqual(
      models.map(({ id }) => id),
      ['atlas'],
    );
    const left = await client.callTool({ name: 'balance', arguments: {} });
    const { balance_usd: balanceUsd } = left.structuredContent as { balance_usd: number };
    assert.equal(usdToNano('1') - usdToNano(String(balanceUsd)), await spent());
    await client.close();
  });

  test('a completion with an unknown finish reason is returned', async () => {
    bench.upstream.script.push({
      kind: 'own',
      answer: (response) => {
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        response.end(chatEvents('atlas', 3, true).join('').replace('"stop"', '"tool_use"'));
      },
    });
    const { body } = await post(request('tools/call', { name: 'chat', arguments: PROMPT }));
    const { text, finish } = body.result.structuredContent;
    assert.deepEqual([text, finish], [' w0 w1 w2', 'tool_calls']);
  });

  test('numbers of a node beyond 2^53 stay exact', async () => {
    node.respond = ({ calls }, response) => {
      const [start] = JSON.stringify({ jsonrpc: '2.0', id: calls[0]?.id, result: {} }).split('{}');
      sendText(response, `${start}{"rentEpoch":18446744073709551615}}`);
    };
    const given = { network: 'ethereum-mainnet', method: 'eth_gasPrice' };
    const { text } = await post(
      request('tools/call', { name: 'blockchain_rpc', arguments: given }),
    );
    node.respond = echoNode();
    assert.equal(text.split('18446744073709551615').length, 3, text);
  });

  test('error responses of the route, and invalid arguments, are results with isError', async () => {
    const client = await legacyClient();
    const failed = async (name: string, given: object): Promise<string> => {
      const { isError, content } = await client.callTool({ name, arguments: { ...given } });
      assert.equal(isError, true);
      return (content as { text: string }[])[0]?.text ?? '';
    };
    assert.match(await failed('chat', {}), /^prompt: /);
    assert.match(await failed('chat', { prompt: 'x', colour: 'red' }), /colour/);
    assert.match(await failed('chat', { prompt: 'x', model: 'nothing' }), /MODEL_NOT_FOUND/);
    assert.match(await failed('video_status', { queue_id: 'none' }), /MEDIA_NOT_FOUND/);
    bench.upstream.otherwise = { kind: 'status', status: 500 };
    assert.match(await failed('chat', PROMPT), /INFERENCE_FAILED/);
    ({ secret } = await bench.farebox.account('0.000001'));
    const poor = await legacyClient();
    const refusal = await poor.callTool({ name: 'chat', arguments: PROMPT });
    assert.match(JSON.stringify(refusal.content), /INSUFFICIENT_BALANCE/);
    assert.equal(refusal.structuredContent, undefined);
    await poor.close();
    await client.close();
  });

  test('without a key tools are listed, and a call returns an authentication error', async () => {
    const client = await legacyClient({ requestInit: { headers: {} } });
    assert.equal((await client.listTools()).tools.length, 10);
    for (const name of ['chat', 'balance']) {
      const { isError, content } = await client.callTool({ name, arguments: PROMPT });
      assert.equal(isError, true);
      assert.match(JSON.stringify(content), /API key|prompt/);
    }
    await client.close();
  });

  test('a cancelled call ends, and its output is charged', async () => {
    for (const client of [await legacyClient(), await modernClient()]) {
      ({ accountId } = await bench.farebox.app.stores.identity.keys.callerOf(secret));
      const before = await spent();
      const abandoned = bench.upstream.abandoned;
      bench.upstream.script.push({ kind: 'stream', chunks: 2_000, everyMs: 5 });
      const left = new AbortController();
      const options = { signal: left.signal, onprogress: () => left.abort() };
      const given = { name: 'chat', arguments: { prompt: 'Hello' } };
      const running =
        client instanceof Client
          ? client.callTool(given, undefined, options)
          : client.callTool(given, options);
      await assert.rejects(running);
      await until(async () => (await spent()) > before);
      await until(async () => bench.upstream.abandoned === abandoned + 1);
      assert.ok((await spent()) - before < usdToNano('0.002'));
      await client.close();
    }
    await until(async () => bench.farebox.app.server.open === 0);
  });

  test('a client cannot cancel the call of another one', async () => {
    const gate = Promise.withResolvers<void>();
    bench.upstream.script.push({ kind: 'answer', after: gate.promise, content: 'Done' });
    const asked = bench.upstream.seen.length;
    const headers = { 'mcp-session-id': 'one' };
    const running = post(request('tools/call', { name: 'chat', arguments: PROMPT }), headers);
    await until(() => bench.upstream.seen.length > asked);
    const cancel = { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 1 } };
    const { secret: other } = await bench.farebox.account('1');
    await post(cancel, { ...headers, authorization: `Bearer ${other}` });
    await post(cancel, { 'mcp-session-id': 'two' });
    await post({ ...cancel, params: { requestId: '1' } }, headers);
    gate.resolve();
    assert.equal((await running).body.result.structuredContent.text, 'Done');
  });

  test('a repeated call can be cancelled after the first one has ended', async () => {
    const headers = { 'mcp-session-id': 'repeated' };
    const start = async (after: Promise<void>) => {
      const before = bench.upstream.seen.length;
      bench.upstream.script.push({ kind: 'answer', after, content: 'Done' });
      const running = post(request('tools/call', { name: 'chat', arguments: PROMPT }), headers);
      await until(() => bench.upstream.seen.length > before);
      return running;
    };
    const gates = [Promise.withResolvers<void>(), Promise.withResolvers<void>()] as const;
    const first = start(gates[0].promise);
    await until(() => bench.farebox.app.server.open >= 2);
    const second = start(gates[1].promise);
    await until(() => bench.farebox.app.server.open >= 4);
    gates[0].resolve();
    assert.equal((await first).status, 200);
    const params = { requestId: 1 };
    await post({ jsonrpc: '2.0', method: 'notifications/cancelled', params }, headers);
    setTimeout(gates[1].resolve, 1_000);
    assert.equal((await second).status, 204);
  });

  test('an idempotency key in the call replays its result, and charges once', async () => {
    const client = await legacyClient();
    const params = { name: 'chat', arguments: PROMPT, _meta: { 'idempotency-key': 'once-1' } };
    const first = await client.callTool(params);
    const again = await client.callTool(params);
    assert.deepEqual(again.structuredContent, first.structuredContent);
    assert.equal(again._meta?.['idempotent-replayed'], true);
    assert.equal(await spent(), usdToNano('0.000011'));
    await client.close();
  });

  test('a call is tagged by its own tags, and otherwise by the request header', async () => {
    const { requestInit } = authorized();
    const headers = { ...requestInit.headers, 'x-svc-metadata': '{"user":"anna","run":"1"}' };
    const client = await legacyClient({ requestInit: { headers } });
    const tagsOf = async (_meta?: Record<string, unknown>) => {
      const result = await client.callTool({ name: 'chat', arguments: PROMPT, _meta });
      if (result.isError === true) return JSON.stringify(result.content);
      const id = String(result._meta?.['x-request-id']);
      return (await call(bench.farebox, `/usage/${id}`, { secret })).body.metadata;
    };
    assert.deepEqual(await tagsOf(), { user: 'anna', run: '1' });
    const own = { user: 'Zoë\x7f', project: '探す' };
    assert.deepEqual(await tagsOf({ 'x-svc-metadata': own }), { ...own, run: '1' });
    for (const wrong of ['anna', { user: 'x'.repeat(513) }, { user: 'x'.repeat(20_000) }]) {
      assert.match(String(await tagsOf({ 'x-svc-metadata': wrong })), /x-svc-metadata/);
    }
    assert.equal(await spent(), usdToNano('0.000022'));
    await client.close();
  });

  test('an invalid request gets an error of the protocol', async () => {
    const cases: [unknown, Record<string, string>, number, number][] = [
      ['{"jsonrpc":', {}, 400, -32_700],
      [{ id: 1, method: 'ping' }, {}, 400, -32_600],
      [{ ...request('ping'), id: null }, {}, 400, -32_600],
      [[], {}, 400, -32_600],
      [request('prompts/list'), {}, 200, -32_601],
      [request('tools/call', { name: 'nothing' }), {}, 200, -32_602],
      [request('tools/call', { name: 'chat', arguments: 'x' }), {}, 200, -32_602],
      [request('tools/list', { cursor: '7000' }), {}, 200, -32_602],
      [request('tools/list', { cursor: { toString: 1 } }), {}, 200, -32_602],
      [request('tools/call', { name: { toString: 1 } }), {}, 200, -32_602],
      [{ ...request('ping'), id: 1e300 }, {}, 400, -32_600],
      [request('ping'), { 'mcp-protocol-version': '1900-01-01' }, 400, -32_022],
      [request('ping'), { 'mcp-protocol-version': '2026-07-28' }, 400, -32_602],
      [request('server/discover', { _meta: META }), {}, 400, -32_020],
    ];
    for (const [body, headers, status, code] of cases) {
      const answer = await post(body, headers);
      const said = JSON.stringify(body);
      assert.deepEqual([answer.status, answer.body.error?.code], [status, code], said);
    }
    const modernHeaders = { 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'tools/call' };
    const named = (name: string) =>
      post(request('tools/call', { name: 'balance', _meta: META }), {
        ...modernHeaders,
        'mcp-name': name,
      });
    const mismatched = (await named('chat')).body;
    assert.deepEqual([mismatched.id, mismatched.error.code], [1, -32_020]);
    const encoded = `=?base64?${Buffer.from('balance').toString('base64')}?=`;
    assert.equal((await named(encoded)).body.result.resultType, 'complete');
    const unknown = { ...modernHeaders, 'mcp-method': 'prompts/list' };
    const missing = await post(request('prompts/list', { _meta: META }), unknown);
    assert.deepEqual([missing.status, missing.body.id, missing.body.error.code], [404, 1, -32_601]);
  });

  test('other methods, origins and keys are rejected, and large bodies of anonymous requests', async () => {
    assert.equal((await fetch(url)).status, 405);
    assert.equal((await fetch(url, { method: 'DELETE' })).status, 405);
    const ping = request('ping');
    const foreign = await post(ping, { origin: 'https://evil.example' });
    assert.deepEqual([foreign.status, foreign.body.error.data.code], [403, 'UNAUTHORIZED']);
    assert.equal((await post(ping, { origin: 'http://localhost:6274' })).status, 200);
    assert.equal((await post(ping, { origin: url.origin })).status, 200);
    const unknown = await post(ping, { authorization: 'Bearer nobody' });
    assert.deepEqual([unknown.status, unknown.body.error.code], [401, 401]);
    const large = request('ping', { padding: 'x'.repeat(1_100_000) });
    assert.equal((await post(large)).status, 200);
    assert.equal((await post(large, { authorization: undefined })).status, 413);
    assert.equal((await post({ jsonrpc: '2.0', method: 'notifications/initialized' })).status, 202);
  });

  test('a batch of an older protocol revision gets its responses in order', async () => {
    const { body } = await post([
      { ...request('ping'), id: 'a' },
      { jsonrpc: '2.0', method: 'notifications/initialized' },
      { ...request('tools/call', { name: 'chat', arguments: PROMPT }), id: 'b' },
    ]);
    assert.deepEqual(
      body.map(({ id }: { id: string }) => id),
      ['a', 'b'],
    );
    assert.equal(body[1].result.structuredContent.text, 'Hello there');
  });

  test('an invalid message in a batch fails alone', async () => {
    const chat = { name: 'chat', arguments: PROMPT };
    const { status, body } = await post([
      { ...request('tools/call', chat), id: 'paid' },
      { id: 'not-rpc', method: 'ping' },
      { ...request('ping'), id: null },
      'text',
      { ...request('tools/list', { _meta: META }), id: 'other-revision' },
      { ...request('prompts/list'), id: 'unknown' },
      { ...request('tools/call', { ...chat, arguments: 'x' }), id: 'arguments' },
      { ...request('tools/call', chat), id: 'paid too' },
    ]);
    assert.equal(status, 200);
    const answered = body.map((one: { id?: string; error?: { code: number } }) => [
      one.id,
      one.error?.code,
    ]);
    assert.deepEqual(answered, [
      ['paid', undefined],
      ['not-rpc', -32_600],
      [undefined, -32_600],
      [undefined, -32_600],
      ['other-revision', -32_020],
      ['unknown', -32_601],
      ['arguments', -32_602],
      ['paid too', undefined],
    ]);
    assert.equal(await spent(), usdToNano('0.000022'));
  });

  test('a server with `mcp.enabled: false` has no such path', async () => {
    const without = await startWithEngine({ yaml: 'mcp: { enabled: false }' });
    const { status } = await fetch(new URL('/mcp', without.farebox.app.address), {
      method: 'POST',
    });
    await without.stop();
    assert.equal(status, 404);
  });

  test('examples/mcp/call.sh runs unchanged', async () => {
    const file = fileURLToPath(new URL('../../examples/mcp/call.sh', import.meta.url));
    const env = { FAREBOX_ORIGIN: url.origin, FAREBOX_KEY: secret };
    const said = await outputOf('sh', [file, 'Name a colour'], env);
    assert.match(said, /"name":"list_models"/);
    assert.match(said, /"text":"Hello there"/);
  });

  for (const scenario of [
    'server-initialize',
    'ping',
    'tools-list',
    'server-sse-multiple-streams',
    'dns-rebinding-protection',
  ]) {
    test(`conformance: ${scenario}`, async () => {
      const at = `http://localhost:${url.port}/mcp`;
      const said = await outputOf(process.execPath, [
        CONFORMANCE,
        'server',
        '--url',
        at,
        '--scenario',
        scenario,
      ]);
      assert.match(said, /Passed: ([1-9])\/\1, 0 failed, 0 warnings/);
    });
  }
});

async function outputOf(
  command: string,
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<string> {
  const child = endWithUs(
    spawn(command, args, { env: childEnvironment(env), stdio: ['ignore', 'pipe', 'pipe'] }),
  );
  let said = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (piece: Buffer) => {
      said += piece.toString();
    });
  }
  await new Promise((resolve) => child.on('close', resolve));
  return said;
}
