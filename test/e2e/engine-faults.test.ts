/** Engines that fail before the first byte and in mid-stream: failover, statuses and bills. */
import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { after, before, beforeEach, describe, test } from 'node:test';
import { openEngine } from '../support/loopback-engine.ts';
import { fastClock } from '../support/fast-clock.ts';
import { type LogLine, memoryLog } from '../support/memory-log.ts';
import { TestUpstream } from '../support/test-upstream.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { until } from '../support/until.ts';

describe('chat with engines that fail', () => {
  let first: TestUpstream;
  let farebox: TestApp;
  const lines: LogLine[] = [];

  before(async () => {
    first = await TestUpstream.start();
    farebox = await startTestApp({
      log: memoryLog(lines),
      yaml: `
engines:
  one: { url: ${first.url} }
  hasty: { url: ${first.url}, firstByteTimeoutMs: 400 }
  watched: { url: ${first.url}, idleTimeoutMs: 400 }
  keyed: { url: ${first.url}, apiKey: engine-key-1, headers: { x-team: team-secret-2 } }
models:
  - { id: hasty, type: text, context: 4096, maxCompletionTokens: 64, price: { input: 1, output: 2 }, replicas: [{ engine: hasty }] }
  - { id: watched, type: text, context: 4096, maxCompletionTokens: 64, price: { input: 1, output: 2 }, replicas: [{ engine: watched }] }
  - { id: keyed, type: text, context: 4096, maxCompletionTokens: 64, price: { input: 1, output: 2 }, replicas: [{ engine: keyed }] }
  - { id: long, type: text, context: 4096, price: { input: 1, output: 2 }, replicas: [{ engine: one }] }
  - { id: single, type: text, context: 4096, maxCompletionTokens: 64, price: { input: 1, output: 2 }, replicas: [{ engine: one }] }
limits: { plans: { staff: { text: { XS: &wide { requestsPerMinute: 100000, tokensPerMinute: 100000000 }, S: *wide, M: *wide, L: *wide } } }, guard: { failures: 100000 } }
`,
    });
  });
  after(async () => {
    await farebox.audit();
    await farebox.stop();
    await first.kill();
  });
  beforeEach(() => {
    first.script.length = 0;
    first.otherwise = { kind: 'json', usage: true };
  });

  const chat = (body: Record<string, unknown>): Promise<Response> =>
    fetch(`${farebox.url}/chat/completions`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${farebox.owner.secret}`,
        'content-type': 'application/json',
      },
      body: JSON.stringify({ messages: [{ role: 'user', content: 'Hi' }], ...body }),
    });

  async function balance(): Promise<bigint> {
    return (await farebox.app.stores.ledger.balances(farebox.owner.accountId)).usdNano;
  }

  for (const behaviour of [
    { kind: 'reset' },
    { kind: 'head-cut' },
    { kind: 'status', status: 500 },
    { kind: 'status', status: 503 },
    { kind: 'status', status: 401 },
    { kind: 'html' },
    { kind: 'half-json' },
  ] as const) {
    const name = behaviour.kind === 'status' ? `status ${behaviour.status}` : behaviour.kind;
    test(`a first engine that fails (${name}) is passed over, once charged`, async () => {
      await withPair(async (pair) => {
        pair.one.script.push(behaviour, behaviour, behaviour);
        const answer = await pair.chat();
        assert.equal(answer.status, 200, await answer.clone().text());
        assert.equal(answer.headers.get('x-svc-model-router'), 'two');
        assert.ok(Number(answer.headers.get('x-retry-count')) >= 1);
        await answer.json();
        // 12 prompt tokens at 1 USD and 5 completion tokens at 2 USD a million.
        assert.equal(await pair.paid(), 22_000n);
      });
    });
  }

  test('an unreachable engine causes 503 with Retry-After and no charge', async () => {
    const gone = await TestUpstream.start();
    const lonely = await startTestApp({
      yaml: `
engines: { gone: { url: ${gone.url}, connectTimeoutMs: 200 } }
models: [{ id: m, type: text, context: 4096, price: { input: 1, output: 2 }, replicas: [{ engine: gone }] }]
`,
    });
    await gone.kill();
    const answer = await fetch(`${lonely.url}/chat/completions`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${lonely.owner.secret}`,
        'content-type': 'application/json',
      },
      body: '{"model":"m","messages":[{"role":"user","content":"Hi"}]}',
    });
    const body = (await answer.json()) as { code: string };
    assert.equal(answer.status, 503);
    assert.equal(body.code, 'MODEL_OFFLINE');
    assert.ok(Number(answer.headers.get('retry-after')) > 0);
    await lonely.audit();
    const { ledger } = lonely.app.stores;
    assert.equal((await ledger.balances(lonely.owner.accountId)).usdNano, lonely.owner.creditNano);
    assert.equal((await ledger.audit()).openHolds, 0);
    await lonely.stop();
  });

  test('an engine that never starts a stream causes 504', async () => {
    first.otherwise = { kind: 'hang' };
    const answer = await chat({ model: 'hasty', stream: true });
    const body = (await answer.json()) as { code: string };
    assert.deepEqual([answer.status, body.code], [504, 'REQUEST_TIMEOUT']);
  });

  test('a truncated stream ends with an error event and [DONE], and its text is charged', async () => {
    first.script.push({ kind: 'stream', chunks: 10, cutAfter: 4, usage: true });
    const before = await balance();
    const answer = await chat({ model: 'single', stream: true });
    assert.equal(answer.status, 200);
    const text = await answer.text();
    assert.match(text, /"content":" w0"/);
    assert.match(text, /data: \{"error":\{"message":"The inference failed"/);
    assert.ok(text.endsWith('data: [DONE]\n\n'));
    // A prompt of 2 bytes and ` w0 w1 w2`: one token and three.
    assert.equal(before - (await balance()), 1_000n + 3n * 2_000n);
  });

  test('a stream that hangs in the middle ends with an error event', async () => {
    first.script.push({ kind: 'stream', chunks: 10, hangAfter: 4, usage: true });
    const answer = await chat({ model: 'watched', stream: true });
    assert.match(await answer.text(), /data: \{"error":\{[^\n]+\}\n\ndata: \[DONE\]\n\n$/);
  });

  test('without usage the bytes of the text are charged, and the receipt states it', async () => {
    first.script.push({ kind: 'stream', chunks: 7, usage: false });
    const answer = await chat({ model: 'single', stream: true });
    const text = await answer.text();
    const usage = JSON.parse(/"usage":(\{.*?\}\})/.exec(text)?.[1] ?? '{}');
    // Seven pieces of three bytes, four bytes a token.
    assert.equal(usage.completion_tokens, 6);
    const requestId = answer.headers.get('x-request-id');
    const [row] = await farebox.app.stores.store.query<{ counted_by: string }>(
      'SELECT counted_by FROM ledger_usage WHERE request_id = $1',
      [requestId],
    );
    assert.equal(row?.counted_by, 'bytes');
  });

  test('a disconnect aborts the engine immediately, and the output is charged', async () => {
    first.script.push({ kind: 'stream', chunks: 200, everyMs: 10, usage: true });
    const before = await balance();
    const abandoned = first.abandoned;
    const controller = new AbortController();
    const answer = await fetch(`${farebox.url}/chat/completions`, {
      method: 'POST',
      signal: controller.signal,
      headers: {
        authorization: `Bearer ${farebox.owner.secret}`,
        'content-type': 'application/json',
      },
      body: '{"model":"single","stream":true,"messages":[{"role":"user","content":"Hi"}]}',
    });
    const reader = answer.body?.getReader();
    for (let pieces = 0; pieces < 5; pieces += 1) await reader?.read();
    controller.abort();
    // In the middle: it would have written for seconds.
    await until(() => first.abandoned > abandoned, 'the end of the work');
    await until(async () => (await farebox.app.stores.ledger.audit()).openHolds === 0);
    const paid = before - (await balance());
    assert.ok(paid > 0n && paid < 400_000n, `paid ${paid}`);
  });

  test('an overloaded engine causes 429 with the Retry-After of the engine', async () => {
    first.otherwise = { kind: 'status', status: 429, headers: { 'retry-after': '17' } };
    const answer = await chat({ model: 'single' });
    const body = (await answer.json()) as { code: string };
    assert.deepEqual(
      [answer.status, body.code, answer.headers.get('retry-after')],
      [429, 'MODEL_OVERLOADED', '17'],
    );
  });

  test('an engine that rejects the request causes a 400 with its message', async () => {
    first.script.push({ kind: 'status', status: 400, body: '{"error":{"message":"bad grammar"}}' });
    const answer = await chat({ model: 'single' });
    const body = (await answer.json()) as { error: string };
    assert.equal(answer.status, 400);
    assert.match(body.error, /bad grammar/);
  });

  test('an error message of an engine is shown without the credentials of the engine', async () => {
    const error = { message: 'Bearer engine-key-1 of team-secret-2 is invalid', code: 400 };
    const event = `data: ${JSON.stringify({ error })}\n\n`;
    first.script.push(
      { kind: 'status', status: 422, body: JSON.stringify({ error }) },
      {
        kind: 'own',
        answer: (response) => {
          response.setHeader('content-type', 'text/event-stream');
          response.end(event);
        },
      },
    );
    for (const stream of [false, true]) {
      const text = await (await chat({ model: 'keyed', stream })).text();
      assert.match(text, /Bearer \[secret\] of \[secret\] is invalid/);
    }
  });

  test('the log does not contain a prompt that an engine repeats in a stream', async () => {
    const prompt = 'The violet otter counts seventeen lanterns';
    const events = [
      { choices: [{ index: 0, delta: { content: 'Hi' } }] },
      { error: { message: `Cannot read "${prompt}"`, code: 500 } },
    ];
    first.script.push({
      kind: 'own',
      answer: (response) => {
        response.setHeader('content-type', 'text/event-stream');
        response.end(events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join(''));
      },
    });
    const answer = await chat({
      model: 'single',
      stream: true,
      messages: [{ role: 'user', content: prompt }],
    });
    assert.match(await answer.text(), /The inference failed/);
    assert.doesNotMatch(JSON.stringify(lines), /violet otter/);
    assert.ok(lines.some(({ fields }) => fields['code'] === 'INFERENCE_FAILED'));
  });

  test('a completion with a deeply nested member is charged and delivered', async () => {
    const deep = `${'['.repeat(5_000)}${']'.repeat(5_000)}`;
    for (const stream of [false, true]) {
      const text = stream ? 'delta' : 'message';
      const body = `{"id":"x","note":${deep},"choices":[{"index":0,"${text}":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":2}}`;
      first.script.push({
        kind: 'own',
        answer: (response) => {
          response.setHeader('content-type', stream ? 'text/event-stream' : 'application/json');
          response.end(stream ? `data: ${body}\n\ndata: [DONE]\n\n` : body);
        },
      });
      const answer = await chat({ model: 'single', stream });
      const seen = await answer.text();
      assert.equal(answer.status, 200, seen.slice(0, 200));
      assert.match(seen, /"content":"Hi"/);
      assert.match(seen, /"completion_tokens":2/);
    }
  });

  test('a prompt that the engine rejects as too long gets the context overflow error of SDKs', async () => {
    first.script.push({
      kind: 'status',
      status: 400,
      body: '{"error":{"message":"This model\'s maximum context length is 4096 tokens"}}',
    });
    const answer = await chat({ model: 'single' });
    const body = (await answer.json()) as { error: { code: string } };
    assert.deepEqual([answer.status, body.error.code], [400, 'context_length_exceeded']);
  });

  for (const stream of [false, true]) {
    test(`a prompt with a token per byte gets the output that fits beside it (stream: ${stream})`, async () => {
      // As vLLM; digits are one token each for many models.
      const limits: number[] = [];
      const answer = (response: ServerResponse, body: string): void => {
        const { messages, max_tokens: limit } = JSON.parse(body);
        limits.push(limit);
        if (messages[0].content.length + limit > 4_096) {
          const message =
            "This model's maximum context length is 4096 tokens. However, you requested more";
          response.writeHead(400).end(JSON.stringify({ error: { message } }));
          return;
        }
        const said = { content: 'ok', role: 'assistant' };
        const choice = { index: 0, finish_reason: 'stop', [stream ? 'delta' : 'message']: said };
        const text = JSON.stringify({ choices: [choice] });
        response.writeHead(200, {
          'content-type': stream ? 'text/event-stream' : 'application/json',
        });
        response.end(stream ? `data: ${text}\n\ndata: [DONE]\n\n` : text);
      };
      first.otherwise = { kind: 'own', answer };
      const request = { model: 'long', stream };
      const prompt = { messages: [{ role: 'user', content: '7'.repeat(3_000) }] };
      const response = await chat({ ...request, ...prompt });
      assert.match(await response.text(), /"ok"/);
      assert.deepEqual([response.status, limits.length], [200, 2]);
      assert.ok((limits[1] ?? 0) > 800, String(limits));
      // A limit of the caller is not changed, and no limit helps a prompt that fills the context.
      for (const [digits, more] of [
        [3_000, { max_tokens: 2_000 }],
        [4_090, {}],
      ] as const) {
        limits.length = 0;
        const messages = [{ role: 'user', content: '7'.repeat(digits) }];
        assert.equal((await chat({ ...request, messages, ...more })).status, 400);
        assert.equal(limits.length, 1);
      }
    });
  }
});

test('a broken connection after [DONE] does not change the response', async (t) => {
  const engine = await openEngine();
  const clock = fastClock(50);
  const farebox = await startTestApp({
    clock,
    yaml: `
engines: { one: { url: ${engine.url} } }
models: [{ id: m, type: text, context: 4096, price: { input: 1, output: 2 }, replicas: [{ engine: one }] }]
`,
  });
  t.after(async () => {
    await farebox.stop();
    await engine.close();
  });
  for (const [path, isCut] of [
    ['/chat/completions', true],
    ['/completions', true],
    ['/chat/completions', false],
  ] as const) {
    const isChat = path === '/chat/completions';
    const said = (text: string) => (isChat ? { delta: { content: text } } : { text });
    const events = [
      ...['Hel', 'lo'].map((text) => ({ choices: [{ index: 0, ...said(text) }] })),
      { choices: [{ index: 0, ...said(''), finish_reason: 'stop' }] },
      { choices: [], usage: { prompt_tokens: 7, completion_tokens: 5 } },
    ];
    const whole = events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join('');
    engine.answer = (_heard, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(`${whole}data: [DONE]\n\n`, () => {
        if (isCut) response.destroy();
      });
    };
    const sinceMs = clock.monotonicMs();
    const answer = await fetch(`${farebox.url}${path}`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${farebox.owner.secret}`,
        'content-type': 'application/json',
      },
      body: JSON.stringify({
        model: 'm',
        stream: true,
        ...(isChat ? { messages: [{ role: 'user', content: 'Hi' }] } : { prompt: 'Hi' }),
      }),
    });
    const text = await answer.text();
    assert.doesNotMatch(text, /error/);
    assert.match(text, /"completion_tokens":5/);
    assert.ok(text.endsWith('data: [DONE]\n\n'));
    // A connection that stays open delays its caller by seconds, not by the timeout of the engine.
    assert.ok(clock.monotonicMs() - sinceMs < 60_000);
  }
  await farebox.audit();
  const { ledger } = farebox.app.stores;
  const { usdNano } = await ledger.balances(farebox.owner.accountId);
  assert.equal(farebox.owner.creditNano - usdNano, 3n * 17_000n);
});

interface Pair {
  readonly one: TestUpstream;
  chat(): Promise<Response>;
  paid(): Promise<bigint>;
}

/** A server with two fresh replicas, the first preferred: no breaker remembers another test. */
async function withPair(body: (pair: Pair) => Promise<void>): Promise<void> {
  const one = await TestUpstream.start();
  const two = await TestUpstream.start();
  const farebox = await startTestApp({
    yaml: `
engines: { one: { url: ${one.url} }, two: { url: ${two.url} } }
models: [{ id: pair, type: text, context: 4096, price: { input: 1, output: 2 }, replicas: [{ engine: one }, { engine: two, order: 1 }] }]
`,
  });
  const { ledger } = farebox.app.stores;
  try {
    await body({
      one,
      chat: () =>
        fetch(`${farebox.url}/chat/completions`, {
          method: 'POST',
          headers: {
            authorization: `Bearer ${farebox.owner.secret}`,
            'content-type': 'application/json',
          },
          body: '{"model":"pair","messages":[{"role":"user","content":"Hi"}]}',
        }),
      paid: async () =>
        farebox.owner.creditNano - (await ledger.balances(farebox.owner.accountId)).usdNano,
    });
    await farebox.audit();
  } finally {
    await farebox.stop();
    await one.kill();
    await two.kill();
  }
}

test('the limit of a text completion is not changed if it exceeds the context', async (t) => {
  const engine = await openEngine();
  const farebox = await startTestApp({
    yaml: `
engines: { one: { url: ${engine.url} } }
models: [{ id: m, type: text, context: 4096, price: { input: 1, output: 2 }, replicas: [{ engine: one }] }]
`,
  });
  t.after(async () => {
    await farebox.stop();
    await engine.close();
  });
  const limits: unknown[] = [];
  engine.answer = (heard, response) => {
    limits.push(JSON.parse(heard.body)['max_tokens']);
    const message = "This model's maximum context length is 4096 tokens";
    response.writeHead(400).end(JSON.stringify({ error: { message } }));
  };
  const response = await fetch(`${farebox.url}/completions`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${farebox.owner.secret}`,
      'content-type': 'application/json',
    },
    body: JSON.stringify({ model: 'm', prompt: '7'.repeat(3_000), max_tokens: 2_000 }),
  });
  assert.equal(response.status, 400);
  assert.deepEqual(limits, [2_000]);
});
