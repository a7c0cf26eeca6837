/**
 * Every failure explains itself: injected faults of engines, nodes, chains, the database, limits
 * and money are explained from its request id by the operator API, the command line, the console and
 * the log.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { type Called, call } from '../app/call.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { type FaultProxy, startFaultProxy } from '../chains/fault-proxy.ts';
import { type NodeResponse, type TestNode, echoNode, startNode } from '../rpc/node.ts';
import { launchChromium } from '../support/chromium.ts';
import { freePort } from '../support/free-port.ts';
import { type LogLine, memoryLog } from '../support/memory-log.ts';
import { runCli } from '../support/run-cli.ts';
import type { Behaviour } from '../support/test-upstream.ts';
import { until } from '../support/until.ts';
import { Visitor } from './console-fixture.ts';
import { type WalletFixture, evmPayment, startWalletFixture } from './wallet-fixture.ts';

/** The prompt of every chat: it must be in no record. */
const PROMPT = 'The violet otter counts seventeen lanterns at dusk';
const ENGINE_KEY = 'k-engine-credential-5521';

interface Expected {
  readonly status: number;
  /** `null` after a success. */
  readonly code: string | null;
  /** Results of the tries. */
  readonly tries?: readonly string[];
  readonly words?: RegExp;
  readonly charge: RegExp;
  readonly step: RegExp;
}

interface Case extends Expected {
  readonly name: string;
  readonly run: () => Promise<Called>;
}

const broken = (kind: 'html' | 'reset' | 'head-hang' | 'half-json'): Behaviour => ({ kind });
const rejecting = (status: number, message: string, more: object = {}): Behaviour => ({
  kind: 'status',
  status,
  body: JSON.stringify({ error: { message, ...more } }),
});

describe('explanations of failed requests', () => {
  let fixture: WalletFixture;
  let proxy: FaultProxy;
  let node: TestNode;
  let farebox: TestApp;
  let operator: string;
  const lines: LogLine[] = [];

  before(async () => {
    fixture = await startWalletFixture();
    proxy = await startFaultProxy(fixture.anvil.rpcUrl);
    node = await startNode('0x1');
    const wrongChain = await startNode('0x5');
    const closed = await freePort();
    const names = Array.from({ length: 16 }, (_, at) => `e${at}`);
    const engines = names.map(
      (name) =>
        `${name}: { url: ${fixture.upstream.url}, apiKey: ${ENGINE_KEY}, firstByteTimeoutMs: 300${name === 'e9' ? ', concurrency: 1, maxQueued: 1' : ''} }`,
    );
    const models = [...names, 'off'].map(
      (name) =>
        `  - { id: ${name}, type: text, context: 8192, maxCompletionTokens: 64, price: { input: 1, output: 2 }, replicas: [{ engine: ${name}, model: weights }] }`,
    );
    const yaml = fixture.yaml
      .replace(fixture.anvil.rpcUrl, proxy.url)
      .replace(
        /^engines: \{/m,
        `engines: { off: { url: "http://127.0.0.1:${closed}/v1" }, ${engines.join(', ')},`,
      )
      .replace(/^models:$/m, `models:\n${models.join('\n')}`);
    farebox = await startTestApp({
      port: fixture.port,
      log: memoryLog(lines),
      yaml: `${yaml}
limits: { guard: { failures: 100000 } }
rpc:
  publicNodes: false
  networks:
    ethereum-mainnet: { upstreams: [{ url: "${node.url}", name: node-one }] }
    polygon-mainnet: { upstreams: [{ url: "${wrongChain.url}", name: node-two }] }`,
    });
    await wrongChain.close();
    operator = await farebox.key({ kind: 'ADMIN' });
  });
  after(async () => {
    await farebox.stop();
    await node.close();
    await proxy.stop();
    await fixture.stop();
  });

  const chat = (model: string, more: object = {}, secret = farebox.owner.secret) =>
    call(farebox, '/chat/completions', {
      secret,
      body: { model, messages: [{ role: 'user', content: PROMPT }], temperature: 0.5, ...more },
    });
  /** A chat while the engine shows the behaviour. */
  const during =
    (model: string, behaviour: Behaviour, more: object = {}) =>
    async () => {
      fixture.upstream.otherwise = behaviour;
      try {
        return await chat(model, more);
      } finally {
        fixture.upstream.otherwise = { kind: 'json', usage: true };
      }
    };
  const rpc =
    (respond: NodeResponse, network = 'ethereum-mainnet') =>
    async () => {
      node.respond = respond;
      const body = { jsonrpc: '2.0', id: 1, method: 'eth_call', params: [{ data: '0x01' }] };
      try {
        return await call(farebox, `/crypto/rpc/${network}`, {
          secret: farebox.owner.secret,
          body,
        });
      } finally {
        node.respond = echoNode();
      }
    };
  const plain =
    (status: number, text: string): NodeResponse =>
    (_request, response) =>
      response.writeHead(status, { 'content-type': 'text/plain' }).end(text);
  const topUp = async (header: string): Promise<Called> =>
    call(farebox, '/x402/top-up', { method: 'POST', headers: { 'payment-signature': header } });
  const admin = (path: string, options: object = {}) =>
    call(farebox, `/admin${path}`, { secret: operator, ...options });

  const queued = (): number =>
    farebox.app.engines.status().find(({ id }) => id === 'e9')?.queued ?? 0;

  /** Facts of each case that the command line has to show too. */
  const explained: { readonly id: string; readonly facts: readonly string[] }[] = [];

  const FREE = /^Not charged: the hold was released, because the request failed$/;
  const REJECTED = /^Not charged/;
  const cases: readonly Case[] = [
    {
      name: 'an engine that is off',
      run: () => chat('off'),
      status: 503,
      code: 'MODEL_OFFLINE',
      tries: ['unreachable', 'unreachable', 'unreachable'],
      charge: FREE,
      step: /^Start the engine off, or correct engines\.off\.url/,
    },
    {
      name: 'an internal error of an engine',
      run: during('e0', rejecting(500, 'CUDA out of memory on device 3')),
      status: 500,
      code: 'INFERENCE_FAILED',
      tries: ['failed', 'failed', 'failed'],
      words: /CUDA out of memory on device 3/,
      charge: FREE,
      step: /^Read the log of the engine e0/,
    },
    {
      name: 'an overloaded engine',
      run: during('e1', { kind: 'status', status: 429, headers: { 'retry-after': '60' } }),
      status: 429,
      code: 'MODEL_OVERLOADED',
      tries: ['overloaded'],
      charge: FREE,
      step: /^Add a replica of weights/,
    },
    {
      name: 'a rejected credential of an engine',
      run: during(
        'e2',
        rejecting(401, `Incorrect API key provided: ${ENGINE_KEY}, sk-proj-abcdefgh1234`),
      ),
      status: 500,
      code: 'INFERENCE_FAILED',
      tries: ['misconfigured'],
      words: /Incorrect API key provided: \[secret\]/,
      charge: FREE,
      step: /^Correct apiKey, url or balance of the engine e2/,
    },
    {
      name: 'a model name that the engine does not know',
      run: during('e3', rejecting(404, 'The model `weights` does not exist')),
      status: 500,
      code: 'INFERENCE_FAILED',
      tries: ['misconfigured'],
      words: /does not exist/,
      charge: FREE,
      step: /the model name weights of the replica: the engine responded with HTTP 404/,
    },
    {
      name: 'a request that the engine rejects with an echo of the prompt',
      run: during('e4', rejecting(400, `Invalid value for temperature in "${PROMPT}"`)),
      status: 400,
      code: 'INVALID_REQUEST',
      tries: ['refused'],
      words: /Invalid value for temperature in "\[text of the request\]"/,
      charge: FREE,
      step: /^Compare the parameters with those that the engine e4 accepts/,
    },
    {
      name: 'a prompt above the context of the engine',
      run: during('e5', rejecting(400, 'Too long', { code: 'context_length_exceeded' })),
      status: 400,
      code: 'CONTEXT_LENGTH_EXCEEDED',
      tries: ['refused'],
      charge: FREE,
      step: /^Compare the parameters/,
    },
    {
      name: 'a page of HTML instead of a completion',
      run: during('e6', broken('html')),
      status: 500,
      code: 'INFERENCE_FAILED',
      tries: ['garbage'],
      charge: FREE,
      step: /^Correct engines\.e6\.url and protocol/,
    },
    {
      name: 'an incomplete response',
      run: during('e7', broken('half-json')),
      status: 500,
      code: 'INFERENCE_FAILED',
      tries: ['garbage'],
      charge: FREE,
      step: /^Correct engines\.e7\.url/,
    },
    {
      name: 'a connection that the engine resets',
      run: during('e8', broken('reset')),
      status: 503,
      code: 'MODEL_OFFLINE',
      tries: ['unreachable', 'unreachable', 'unreachable'],
      charge: FREE,
      step: /^Start the engine e8/,
    },
    {
      name: 'a full queue',
      run: async () => {
        const gate = Promise.withResolvers<void>();
        fixture.upstream.otherwise = { kind: 'answer', after: gate.promise, content: 'Hi' };
        const first = chat('e9');
        await until(() => fixture.upstream.active > 0, 'the first call');
        const second = chat('e9');
        await until(() => queued() > 0, 'the second call');
        const third = await chat('e9');
        gate.resolve();
        assert.deepEqual([(await first).status, (await second).status], [200, 200]);
        fixture.upstream.otherwise = { kind: 'json', usage: true };
        return third;
      },
      status: 429,
      code: 'MODEL_OVERLOADED',
      charge: FREE,
      step: /^Add a replica, or raise concurrency and maxQueued/,
    },
    {
      name: 'an engine that does not respond in time',
      run: during('e10', { kind: 'hang' }, { stream: true }),
      status: 504,
      code: 'REQUEST_TIMEOUT',
      tries: ['timeout'],
      charge: FREE,
      step: /^Check the load of the engine e10/,
    },
    {
      name: 'a stream that breaks after its first words',
      run: during('e11', { kind: 'stream', chunks: 8, cutAfter: 4 }, { stream: true }),
      status: 200,
      code: 'INFERENCE_FAILED',
      tries: ['broken'],
      charge: /^The request failed after a part of its response was sent: .* are charged/,
      step: /^Read the log of the engine e11 for a crash/,
    },
    {
      name: 'a try that fails before another one succeeds',
      run: async () => {
        fixture.upstream.script.push(rejecting(500, 'A worker has died'));
        return chat('e12');
      },
      status: 200,
      code: null,
      tries: ['failed', 'ok'],
      words: /A worker has died/,
      charge: /^Charged for .* by the prices of version .*; failed tries are not charged$/,
      step: /^Read the log of the engine e12 .* This request has succeeded at another try$/,
    },
    {
      name: 'an engine that redirects to another address',
      run: during('e13', { kind: 'status', status: 302, headers: { location: '/login' } }),
      status: 500,
      code: 'INFERENCE_FAILED',
      tries: ['misconfigured'],
      charge: FREE,
      step: /^Correct apiKey, url or balance of the engine e13/,
    },
    {
      name: 'a node that drops connections',
      run: rpc((_request, response) => response.destroy()),
      status: 503,
      code: 'RPC_UPSTREAM_FAILED',
      tries: ['transport'],
      charge: FREE,
      step: /^Check the node node-one of ethereum-mainnet: the connection failed/,
    },
    {
      name: 'a node that returns no JSON-RPC',
      run: rpc(plain(200, 'Welcome')),
      status: 503,
      code: 'RPC_UPSTREAM_FAILED',
      tries: ['broken'],
      charge: FREE,
      step: /^Check the node node-one: its response is not valid JSON-RPC/,
    },
    {
      name: 'a node with an exhausted quota',
      run: rpc(plain(429, 'Too many requests')),
      status: 503,
      code: 'RPC_UPSTREAM_FAILED',
      tries: ['quota'],
      charge: FREE,
      step: /^Raise the quota of the node node-one/,
    },
    {
      name: 'a node that rejects the credentials',
      run: rpc(plain(401, 'Unauthorized')),
      status: 503,
      code: 'RPC_UPSTREAM_FAILED',
      tries: ['auth'],
      charge: FREE,
      step: /^Correct the key of the node node-one/,
    },
    {
      name: 'a network without a reachable node',
      run: rpc(echoNode(), 'polygon-mainnet'),
      status: 503,
      code: 'RPC_UPSTREAM_FAILED',
      tries: ['transport'],
      charge: FREE,
      step: /^Check the node node-two of polygon-mainnet/,
    },
    {
      name: 'a chain whose node does not respond',
      run: async () => {
        proxy.fate = () => 'lose-request';
        const called = await topUp(await evmPayment(await fixture.evmWallet()));
        proxy.fate = () => 'pass';
        return called;
      },
      status: 503,
      code: 'SERVICE_UNAVAILABLE',
      charge: REJECTED,
      step: /^Run "farebox check": the nodes of the chain must respond/,
    },
    {
      name: 'a payment of a wallet without money',
      run: async () => topUp(await evmPayment(await fixture.evmWallet(0n))),
      status: 400,
      code: 'PAYMENT_VERIFICATION_FAILED',
      charge: REJECTED,
      step: /farebox check/,
    },
    {
      name: 'a forged payment',
      run: async () =>
        topUp(
          await evmPayment(privateKeyToAccount(generatePrivateKey()), {
            payload: { signature: `0x${'11'.repeat(65)}` },
          }),
        ),
      status: 400,
      code: 'PAYMENT_VERIFICATION_FAILED',
      charge: REJECTED,
      step: /farebox check/,
    },
    {
      name: 'a database that takes no writes',
      run: async () => {
        const { store } = farebox.app.stores;
        const [size] = await store.query<{ page_count: bigint }>('PRAGMA page_count');
        await store.query(`PRAGMA max_page_count = ${size?.page_count ?? 0n}`);
        let called = await chat('m');
        for (let tries = 0; called.status === 200 && tries < 300; tries += 1)
          called = await chat('m');
        const id = called.headers.get('x-request-id') ?? '';
        const meanwhile = await admin(`/requests/${id}`);
        assert.equal(meanwhile.body.data.response.code, 'SERVICE_UNAVAILABLE', 'from memory');
        await store.query('PRAGMA max_page_count = 1073741823');
        await until(async () => (await chat('m')).status === 200, 'the recovery', 250);
        return called;
      },
      status: 503,
      code: 'SERVICE_UNAVAILABLE',
      charge: REJECTED,
      step: /^Check the database and its disk/,
    },
    {
      name: 'a damaged table',
      run: async () => {
        const { store } = farebox.app.stores;
        await store.query('ALTER TABLE webhooks_webhook RENAME TO webhooks_lost');
        const called = await call(farebox, '/webhooks', { secret: operator });
        await store.query('ALTER TABLE webhooks_lost RENAME TO webhooks_webhook');
        return called;
      },
      status: 500,
      code: 'UNKNOWN_ERROR',
      charge: REJECTED,
      step: /^Report the defect with the stack that the log contains/,
    },
    {
      name: 'the rate limit of a key',
      run: async () => {
        const secret = await farebox.key({ limits: { requestsPerMinute: 1 } });
        await chat('m', {}, secret);
        return chat('m', {}, secret);
      },
      status: 429,
      code: 'RATE_LIMIT_EXCEEDED',
      charge: /^Not charged: a limit rejected the request/,
      step: /^Raise the limit with "farebox accounts limit"/,
    },
    {
      name: 'an account without credit',
      run: async () => chat('m', {}, (await farebox.account('0.000000001')).secret),
      status: 402,
      code: 'INSUFFICIENT_BALANCE',
      charge: /^Not charged: the money for the request was not available$/,
      step: /^Add credit with "farebox credit/,
    },
    {
      name: 'the spend limit of a key',
      run: async () =>
        chat('m', {}, await farebox.key({ usdLimitNano: 1n as never, limitPeriod: 'EPOCH' })),
      status: 402,
      code: 'API_KEY_USD_SPEND_LIMIT_EXCEEDED',
      charge: REJECTED,
      step: /^Raise the spend limit of the key/,
    },
    {
      name: 'a disabled account',
      run: async () => {
        const { accountId, secret } = await farebox.account('5');
        await admin(`/accounts/${accountId}`, { method: 'PATCH', body: { disabled: true } });
        return chat('m', {}, secret);
      },
      status: 403,
      code: 'API_ACCESS_DISABLED',
      charge: /^Not charged: the caller was not authorized/,
      step: /^Run "farebox accounts update <account> --enable"/,
    },
    {
      name: 'an anonymous request',
      run: () => call(farebox, '/chat/completions', { body: { model: 'm', messages: [] } }),
      status: 402,
      code: 'PAYMENT_REQUIRED',
      charge: REJECTED,
      step: /^Nothing: the response is the price/,
    },
    {
      name: 'a wrong key',
      run: () => chat('m', {}, 'SVC_INFERENCE_KEY_wrong'),
      status: 401,
      code: 'AUTHENTICATION_FAILED',
      charge: REJECTED,
      step: /^Nothing, unless the caller should have access/,
    },
    {
      name: 'an unknown model',
      run: () => chat('no-such-model'),
      status: 404,
      code: 'MODEL_NOT_FOUND',
      charge: REJECTED,
      step: /^Add the model, or an alias with this name/,
    },
  ];

  test('at least thirty faults are injected', () => {
    assert.ok(cases.length >= 30);
  });

  for (const { name, run, status, code, tries = [], words, charge, step } of cases) {
    test(`${name} is explained`, async () => {
      const called = await run();
      assert.equal(called.status, status, called.text);
      const id = called.headers.get('x-request-id') ?? '';
      // The record is made when the response has left, which can be after the client has read it.
      const isRecorded = async (): Promise<boolean> => {
        const { data: found } = (await admin(`/requests/${id}`)).body;
        return found?.response.code === code && found.tries.length === tries.length;
      };
      await until(isRecorded, 'the record', 250);
      const { data } = (await admin(`/requests/${id}`)).body;
      assert.deepEqual([data.response.status, data.response.code], [status, code]);
      if (code !== null && status !== 200) {
        const { error, message } = called.body;
        const shown = data.response.message.replace('[text of the request]', PROMPT);
        assert.equal(shown, message ?? error.message ?? error);
      }
      assert.deepEqual(
        data.tries.map((tried: { result: string }) => tried.result),
        tries,
      );
      if (words !== undefined) assert.match(data.tries[0].words, words);
      assert.match(data.charge.why, charge);
      assert.match(data.nextStep.operator, step);
      assert.equal(data.nextStep.caller === null, code === null);
      const text = JSON.stringify(data);
      assert.doesNotMatch(text, /violet otter|seventeen lanterns|engine-credential|sk-proj/);

      explained.push({ id, facts: [id, data.charge.why, data.nextStep.operator] });

      const line = lines.find(
        ({ message, fields }) => message === 'Request' && fields['requestId'] === id,
      );
      assert.deepEqual([line?.fields['status'], line?.fields['code'] ?? null], [status, code]);
      assert.equal((line?.fields['tries'] as string[] | undefined)?.length ?? 0, tries.length);
      assert.doesNotMatch(JSON.stringify(line), /violet otter|engine-credential/);
    });
  }

  test('the command line explains the same requests', async () => {
    const env = { FAREBOX_DATA: farebox.config.dataFolder };
    const last = explained.at(-1);
    const shownOf = async (id: string): Promise<string> =>
      (await runCli(process.cwd(), ['request', id], env)).out;
    // Another process reads a record once it is written.
    await until(async () => (await shownOf(last?.id ?? '')) !== '', 'the last record');
    for (const { id, facts } of explained) {
      const shown = await shownOf(id);
      for (const fact of facts) assert.ok(shown.includes(fact), `${fact}\n${shown}`);
    }
    assert.equal(explained.length, cases.length);
    const unknown = await runCli(process.cwd(), ['request', 'nothing'], env);
    assert.equal(unknown.code, 1);
    assert.match(unknown.err, /There is no request "nothing"/);
  });

  test('the console explains the same requests', async () => {
    const browser = await launchChromium();
    const origin = new URL(farebox.url).origin;
    await fetch(origin);
    const visitor = await Visitor.open(browser, origin, {});
    await visitor.signIn(operator);
    for (const { id, facts } of explained) {
      await visitor.open(`/console/operator/failures?open=${id}`);
      const drawer = visitor.page.getByRole('dialog');
      // Without the id, of which the drawer shows a part.
      for (const fact of facts.slice(1)) await drawer.getByText(fact).first().waitFor();
    }
    await visitor.close();
    await browser.close();
  });

  test('a caller that disconnects is recorded, and a plain success is not', async () => {
    fixture.upstream.otherwise = { kind: 'hang' };
    const seen = fixture.upstream.seen.length;
    const leaving = new AbortController();
    const body = { model: 'm', messages: [{ role: 'user', content: PROMPT }] };
    const gone = call(farebox, '/chat/completions', {
      secret: farebox.owner.secret,
      body,
      signal: leaving.signal,
    });
    await until(() => fixture.upstream.seen.length > seen, 'the call');
    leaving.abort();
    await assert.rejects(gone);
    fixture.upstream.otherwise = { kind: 'json', usage: true };
    const line = (): LogLine | undefined =>
      lines.findLast(({ fields }) => fields['error'] === 'The caller disconnected');
    await until(() => line() !== undefined, 'the log line');
    const { data } = (await admin(`/requests/${String(line()?.fields['requestId'])}`)).body;
    assert.deepEqual([data.response.status, data.response.code], [499, null]);
    assert.match(data.nextStep.operator, /the caller has closed the connection/);

    const fine = await chat('m');
    assert.equal(fine.status, 200, fine.text);
    const later = await chat('no-such-model');
    const isStored = async ({ headers }: Called): Promise<boolean> => {
      const sql = 'SELECT 1 FROM observability_failure WHERE request_id = $1';
      const { store } = farebox.app.stores;
      return (await store.query(sql, [headers.get('x-request-id') ?? ''])).length > 0;
    };
    await until(() => isStored(later), 'the record of the later request');
    assert.equal(await isStored(fine), false);
    const shown = (await admin(`/requests/${fine.headers.get('x-request-id')}`)).body.data;
    assert.deepEqual([shown.response.status, shown.tries], [200, []]);
    assert.match(shown.charge.why, /^Charged for/);
    assert.equal((await admin('/requests/nothing')).body.code, 'REQUEST_ID_NOT_FOUND');
  });
});
