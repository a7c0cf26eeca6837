/** Models with fallbacks: which failures lead to the next model, its price, and who may use it. */
import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import { type Called, call } from '../app/call.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { usdToNano } from '../../src/core/money.ts';
import { type Behaviour, TestUpstream } from '../support/test-upstream.ts';

const TEXT = 'context: 4096, maxCompletionTokens: 64';
/** 12 prompt tokens and 5 completion tokens, as the test engine reports. */
const FIRST_NANO = 22_000n;
const EQUAL_NANO = 22_000n;
const DEAR_NANO = 22_000_000n;

const STATUSES = [500, 503, 429, 401].map((status) => ({ kind: 'status', status }) as const);
const BEHAVIOURS: readonly Behaviour[] = [
  { kind: 'reset' },
  { kind: 'head-cut' },
  { kind: 'hang' },
  ...STATUSES,
  { kind: 'html' },
  { kind: 'half-json' },
];
/** Each failure has an engine of its own, because failures open its circuit breaker. */
const FAILURES = BEHAVIOURS.flatMap((behaviour) => {
  const { kind } = behaviour;
  const name = kind === 'status' ? `status ${behaviour.status}` : kind;
  // A response that is not streamed has a long time limit; a stream begins with its head.
  const ways = { hang: [true], 'head-cut': [false], 'half-json': [false] };
  return (Object.hasOwn(ways, kind) ? ways[kind as keyof typeof ways] : [false, true]).map(
    (stream) => {
      const full = stream ? `${name}, streaming` : name;
      return { id: full.replaceAll(/\W+/g, '-'), name: full, behaviour, stream };
    },
  );
});

describe('models with fallbacks', () => {
  let one: TestUpstream;
  let two: TestUpstream;
  let farebox: TestApp;

  before(async () => {
    [one, two] = await Promise.all([TestUpstream.start(), TestUpstream.start()]);
    const gone = await TestUpstream.start();
    farebox = await startTestApp({
      yaml: `
engines:
  one: { url: ${one.url} }
  broken: { url: ${one.url} }
${FAILURES.map(({ id }) => `  ${id}: { url: ${one.url}, firstByteTimeoutMs: 300 }`).join('\n')}
  two: { url: ${two.url} }
  gone: { url: ${gone.url}, connectTimeoutMs: 200 }
models:
${FAILURES.map(({ id }) => `  - { id: ${id}, fallbacks: [equal], ${TEXT}, price: { input: 1, output: 2 }, replicas: [{ engine: ${id} }] }`).join('\n')}
  - { id: broken, fallbacks: [equal], ${TEXT}, price: { input: 1, output: 2 }, replicas: [{ engine: broken }] }
  - { id: main, fallbacks: [equal], ${TEXT}, price: { input: 1, output: 2 }, replicas: [{ engine: one }] }
  - { id: offline, fallbacks: [equal], ${TEXT}, price: { input: 1, output: 2 }, replicas: [{ engine: gone }] }
  - { id: cheap, fallbacks: [dear], ${TEXT}, price: { input: 1, output: 2 }, replicas: [{ engine: gone }] }
  - { id: free, fallbacks: [dear], ${TEXT}, price: { input: 0, output: 0 }, replicas: [{ engine: gone }] }
  - { id: several, fallbacks: [small, plain, equal], ${TEXT}, capabilities: [functionCalling], price: { input: 1, output: 2 }, replicas: [{ engine: gone }] }
  - { id: lost, fallbacks: [also-lost], ${TEXT}, price: { input: 1, output: 2 }, replicas: [{ engine: gone }] }
  - { id: also-lost, ${TEXT}, price: { input: 1, output: 2 }, replicas: [{ engine: gone }] }
  - { id: equal, ${TEXT}, capabilities: [functionCalling], price: { input: 1, output: 2 }, replicas: [{ engine: two }] }
  - { id: small, context: 64, maxCompletionTokens: 16, capabilities: [functionCalling], price: { input: 1, output: 2 }, replicas: [{ engine: two }] }
  - { id: plain, ${TEXT}, price: { input: 1, output: 2 }, replicas: [{ engine: two }] }
  - { id: dear, ${TEXT}, price: { input: 1000, output: 2000 }, replicas: [{ engine: two }] }
limits: { plans: { staff: { text: { XS: &wide { requestsPerMinute: 100000, tokensPerMinute: 100000000 }, S: *wide, M: *wide, L: *wide } } }, guard: { failures: 100000 } }
`,
    });
    await gone.kill();
  });
  after(async () => {
    await farebox.audit();
    assert.equal((await farebox.app.stores.ledger.audit()).openHolds, 0);
    await farebox.stop();
    await Promise.all([one.kill(), two.kill()]);
  });
  beforeEach(() => {
    for (const upstream of [one, two]) {
      upstream.script.length = 0;
      upstream.seen.length = 0;
      upstream.otherwise = { kind: 'json', usage: true };
    }
  });

  const chat = (body: object, secret = farebox.owner.secret): Promise<Called> =>
    call(farebox, '/chat/completions', {
      secret,
      body: { messages: [{ role: 'user', content: 'Hi' }], ...body },
    });

  async function balanceOf(accountId = farebox.owner.accountId): Promise<bigint> {
    return (await farebox.app.stores.ledger.balances(accountId)).usdNano;
  }

  async function receiptOf(called: Called, secret = farebox.owner.secret) {
    const id = called.headers.get('x-request-id');
    return (await call(farebox, `/usage/${id}`, { secret })).body;
  }

  for (const { id, name, behaviour, stream } of FAILURES) {
    test(`the fallback runs after ${name}`, async () => {
      one.otherwise = behaviour;
      if (stream) two.otherwise = { kind: 'stream', chunks: 5, usage: true };
      const before = await balanceOf();
      const called = await chat({ model: id, stream });
      assert.equal(called.status, 200, called.text);
      assert.ok(one.seen.length > 0, 'the requested model was tried');
      assert.equal(called.headers.get('x-svc-model-id'), 'equal');
      assert.equal(called.headers.get('x-svc-model-router'), 'two');
      if (stream) assert.match(called.text, /"model":"equal"[\s\S]*data: \[DONE\]/);
      else assert.equal(called.body.model, 'equal');
      const receipt = await receiptOf(called);
      assert.deepEqual([receipt.model, receipt.status], ['equal', 'completed']);
      assert.equal(before - (await balanceOf()), EQUAL_NANO);
    });
  }

  test('the fallback runs if no engine of the model is reachable', async () => {
    const called = await chat({ model: 'offline' });
    assert.deepEqual([called.status, called.headers.get('x-svc-model-id')], [200, 'equal']);
  });

  test('a model that responds does not fall back', async () => {
    const before = await balanceOf();
    const called = await chat({ model: 'main' });
    assert.equal(called.headers.get('x-svc-model-id'), 'main');
    assert.equal(two.seen.length, 0);
    assert.equal(before - (await balanceOf()), FIRST_NANO);
  });

  for (const status of [400, 413, 422]) {
    test(`a request that the engine rejects with ${status} does not fall back`, async () => {
      one.otherwise = { kind: 'status', status, body: '{"error":{"message":"bad"}}' };
      const before = await balanceOf();
      const called = await chat({ model: 'main' });
      assert.equal(called.status, status === 413 ? 413 : 400);
      assert.equal(two.seen.length, 0);
      assert.equal(await balanceOf(), before);
    });
  }

  test('a stream that breaks after its first byte does not fall back', async () => {
    one.script.push({ kind: 'stream', chunks: 10, cutAfter: 4, usage: true });
    const called = await chat({ model: 'main', stream: true });
    assert.match(called.text, /"error":\{"message":"The inference failed"/);
    assert.equal(called.headers.get('x-svc-model-id'), 'main');
    assert.equal(two.seen.length, 0);
  });

  test('Messages and Responses fall back too', async () => {
    one.otherwise = { kind: 'status', status: 500 };
    const secret = farebox.owner.secret;
    for (const stream of [false, true]) {
      two.otherwise = stream
        ? { kind: 'stream', chunks: 5, usage: true }
        : { kind: 'json', usage: true };
      const messages = await call(farebox, '/messages', {
        secret,
        body: {
          model: 'broken',
          max_tokens: 32,
          stream,
          messages: [{ role: 'user', content: 'Hi' }],
        },
      });
      const responses = await call(farebox, '/responses', {
        secret,
        body: { model: 'broken', stream, input: 'Hi' },
      });
      for (const called of [messages, responses]) {
        assert.equal(called.status, 200, called.text);
        assert.equal(called.headers.get('x-svc-model-id'), 'equal');
        assert.match(called.text, /"model":"equal"/);
        if (stream) assert.match(called.text, /message_stop|response\.completed/);
      }
    }
  });

  for (const size of [{}, { max_completion_tokens: 20 }]) {
    const named = 'max_completion_tokens' in size ? 'a named' : 'no';
    test(`an expensive fallback runs only if the balance covers it, with ${named} size`, async () => {
      const rich = await farebox.account('50');
      const called = await chat({ model: 'cheap', ...size }, rich.secret);
      assert.equal(called.headers.get('x-svc-model-id'), 'dear', called.text);
      const paid = 50_000_000_000n - (await balanceOf(rich.accountId));
      assert.equal(paid, DEAR_NANO);
      const receipt = await receiptOf(called, rich.secret);
      assert.equal(receipt.model, 'dear');

      const poor = await farebox.account('0.2');
      const refused = await chat({ model: 'cheap', ...size }, poor.secret);
      assert.deepEqual([refused.status, refused.body.code], [503, 'MODEL_OFFLINE']);
      assert.match(refused.text, /The model cheap is offline/);
      assert.equal(refused.headers.get('x-svc-model-id'), 'cheap');
      assert.equal(await balanceOf(poor.accountId), 200_000_000n);
      assert.equal(two.seen.length, 1);
      const ofPoor = await receiptOf(refused, poor.secret);
      assert.deepEqual([ofPoor.model, ofPoor.status], ['cheap', 'failed']);
    });
  }

  test('a low balance gets a fallback of the same price, with the same output', async () => {
    const poor = await farebox.account('0.1');
    const called = await chat({ model: 'offline' }, poor.secret);
    assert.equal(called.headers.get('x-svc-model-id'), 'equal', called.text);
  });

  test('a free model needs no credit, and does not fall back to a paid one without credit', async () => {
    const { secret } = await farebox.account('0.000001');
    const called = await chat({ model: 'free' }, secret);
    assert.deepEqual([called.status, called.body.code], [503, 'MODEL_OFFLINE']);
    const rich = await farebox.account('50');
    const paid = await chat({ model: 'free' }, rich.secret);
    assert.equal(paid.headers.get('x-svc-model-id'), 'dear');
  });

  test('a cap of the key bounds an expensive fallback', async () => {
    const { secret } = await farebox.account('50', { usdLimitNano: usdToNano('0.02') });
    const called = await chat({ model: 'cheap', max_completion_tokens: 20 }, secret);
    assert.equal(called.status, 503);
    assert.equal(two.seen.length, 0);
  });

  test('a key that may not use the fallback gets the error of the requested model', async () => {
    const limited = await farebox.key({ models: ['offline'] });
    const called = await chat({ model: 'offline' }, limited);
    assert.deepEqual([called.status, called.body.code], [503, 'MODEL_OFFLINE']);
    assert.equal(two.seen.length, 0);
  });

  test('fallbacks that cannot do the work of the request are skipped', async () => {
    const tools = [{ type: 'function', function: { name: 'f', parameters: { type: 'object' } } }];
    const messages = [{ role: 'user', content: 'word '.repeat(400) }];
    const called = await chat({ model: 'several', tools, messages });
    assert.equal(called.headers.get('x-svc-model-id'), 'equal', called.text);
  });

  test('the error names the requested model if its fallbacks fail as well', async () => {
    const before = await balanceOf();
    const called = await chat({ model: 'lost' });
    assert.equal(called.status, 503);
    assert.match(called.text, /The model lost is offline/);
    assert.equal((await receiptOf(called)).model, 'lost');
    assert.equal(await balanceOf(), before);
  });
});
