/**
 * `POST /embeddings` through the unmodified `openai` SDK (base64 by default), LangChain and the AI
 * SDK on the embedded demo model, and on an engine with known vectors.
 */
import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { OpenAIEmbeddings } from '@langchain/openai';
import { embedMany } from 'ai';
import { countTokens, encode } from 'gpt-tokenizer/encoding/cl100k_base';
import OpenAI from 'openai';
import { TestUpstream } from '../support/test-upstream.ts';
import { receiptOf } from '../../src/billing/ledger/ledger.ts';
import { holdsNoLoop } from '../app/held-loop.ts';
import { type TestApp, modelIsThere, startTestApp } from '../app/test-app.ts';
import { until } from '../support/until.ts';

const DEMO = 'farebox-demo-embedding';

let upstream: TestUpstream;
let farebox: TestApp;
let client: OpenAI;

before(async () => {
  upstream = await TestUpstream.start();
  const gone = await TestUpstream.start();
  farebox = await startTestApp({
    embedded: true,
    yaml: `
limits: { guard: { failures: 10000 } }
engines:
  rack: { url: "${upstream.url}" }
  narrow: { url: "${upstream.url}", concurrency: 1 }
  gone: { url: "${gone.url}", connectTimeoutMs: 200 }
models:
${[
  ['lost', 1, 'gone', ', fallbacks: [dear, spare]'],
  ['present', 1, 'rack', ', fallbacks: [spare]'],
  ['dear', 2, 'rack', ''],
  ['spare', 0.5, 'rack', ''],
]
  .map(
    ([id, input, engine, more]) =>
      `  - { id: ${id}, type: embedding, price: { input: ${input} }, embedding: { dimensions: 3 }, replicas: [{ engine: ${engine}, model: ${id} }]${more} }\n`,
  )
  .join('')}
  - id: small-batches
    type: embedding
    price: { input: 1 }
    embedding: { dimensions: 3, maxBatch: 10, customDimensions: true }
    replicas: [{ engine: rack }]
  - id: one-slot
    type: embedding
    price: { input: 1 }
    embedding: { dimensions: 3, maxBatch: 10 }
    replicas: [{ engine: narrow }]
  - id: float-only
    type: embedding
    price: { input: 1 }
    embedding: { dimensions: 3 }
    replicas: [{ engine: rack, model: floats }]
  - id: own-ids
    type: embedding
    price: { input: 1 }
    embedding: { dimensions: 3, tokenIds: own, maxInputTokens: 4096 }
    replicas: [{ engine: rack }]
  - id: new-vocabulary
    type: embedding
    price: { input: 1 }
    embedding: { dimensions: 3, tokenIds: o200k }
    replicas: [{ engine: rack }]
`,
  });
  await gone.kill();
  client = new OpenAI({ baseURL: farebox.url, apiKey: farebox.owner.secret, maxRetries: 0 });
  await modelIsThere(farebox, DEMO);
});
after(async () => {
  try {
    await farebox.audit();
  } finally {
    await farebox.stop();
    await upstream.kill();
  }
});
beforeEach(() => {
  upstream.seen.length = 0;
  upstream.script.length = 0;
  upstream.otherwise = { kind: 'embeddings', maxBatch: 10 };
});

function length(vector: readonly number[]): number {
  return Math.sqrt(vector.reduce((sum, value) => sum + value * value, 0));
}

async function balance(): Promise<bigint> {
  return (await farebox.app.stores.ledger.balances(farebox.owner.accountId)).usdNano;
}

describe('an embedding model with fallbacks', () => {
  const create = (model: string) => client.embeddings.create({ model, input: 'a text' });

  test('runs on the first one that costs no more, at the price of that one', async () => {
    const before = await balance();
    const { data, response } = await create('lost').withResponse();
    assert.equal(data.model, 'spare');
    assert.equal(response.headers.get('x-svc-model-id'), 'spare');
    assert.equal(upstream.seen.length, 1);
    assert.equal(before - (await balance()), BigInt(data.usage.prompt_tokens) * 500n);
  });

  test('runs no fallback of a request that the engine rejects', async () => {
    upstream.otherwise = { kind: 'status', status: 400, body: '{"error":{"message":"No"}}' };
    await assert.rejects(create('present').asResponse(), { status: 400 });
    assert.equal(upstream.seen.length, 1);
  });

  test('costs nothing if every model fails, with the error of the requested one', async () => {
    upstream.otherwise = { kind: 'status', status: 500 };
    const before = await balance();
    await assert.rejects(create('lost').asResponse(), (error: unknown) => {
      assert.ok(error instanceof OpenAI.APIError);
      assert.equal(error.status, 503);
      assert.equal(error.headers?.get('x-svc-model-id'), 'lost');
      return true;
    });
    assert.equal(await balance(), before);
  });
});

describe('clients on the embedded demo model', () => {
  test('the `openai` SDK receives numbers from base64, and usage and cost match the balance', async () => {
    const before = await balance();
    const { data, response } = await client.embeddings
      .create({ model: DEMO, input: ['the sea', 'the moon'], user: 'somebody' })
      .withResponse();
    assert.equal(data.object, 'list');
    assert.equal(data.model, DEMO);
    assert.deepEqual(
      data.data.map((one) => one.index),
      [0, 1],
    );
    const [sea, moon] = data.data.map((one) => one.embedding);
    assert.ok(sea !== undefined && moon !== undefined);
    assert.ok(Math.abs(length(sea) - 1) < 1e-3);
    assert.notDeepEqual(sea, moon);
    const { usage, cost } = data as unknown as {
      usage: { prompt_tokens: number; total_tokens: number };
      cost: { usd: number };
    };
    assert.ok(usage.prompt_tokens > 0);
    assert.equal(usage.total_tokens, usage.prompt_tokens);
    const paid = before - (await balance());
    assert.equal(Number(paid) / 1e9, cost.usd);
    // The demo encoder is free.
    assert.equal(paid, 0n);
    assert.equal(response.headers.get('x-svc-model-id'), DEMO);
    assert.ok(response.headers.get('x-ratelimit-limit-requests'));
  });

  test('float and base64 are the same vector, and `dimensions` cuts it to length one', async () => {
    const input = 'the sea and the moon';
    const float = await client.embeddings.create({ model: DEMO, input, encoding_format: 'float' });
    const base64 = await client.embeddings.create({
      model: DEMO,
      input,
      encoding_format: 'base64',
    });
    const text = base64.data[0]?.embedding as unknown as string;
    const floats = new Float32Array(new Uint8Array(Buffer.from(text, 'base64')).buffer);
    const given = float.data[0]?.embedding ?? [];
    assert.equal(floats.length, given.length);
    for (const [at, value] of given.entries())
      assert.ok(Math.abs(value - (floats[at] ?? 9)) < 1e-6);
    const cut = await client.embeddings.create({ model: DEMO, input, dimensions: 8 });
    assert.equal(cut.data[0]?.embedding.length, 8);
    assert.ok(Math.abs(length(cut.data[0]?.embedding ?? []) - 1) < 1e-5);
  });

  test('token ids in the format of LangChain for Python are decoded to their text', async () => {
    const ids = encode('the sea and the moon');
    const one = await client.embeddings.create({ model: DEMO, input: ids });
    const many = await client.embeddings.create({ model: DEMO, input: [ids, encode('the sea')] });
    const text = await client.embeddings.create({ model: DEMO, input: 'the sea and the moon' });
    assert.deepEqual(one.data[0]?.embedding, text.data[0]?.embedding);
    assert.deepEqual(many.data[0]?.embedding, text.data[0]?.embedding);
    assert.equal(many.data.length, 2);
  });

  test('LangChain embeds documents and queries', async () => {
    const embeddings = new OpenAIEmbeddings({
      model: DEMO,
      apiKey: farebox.owner.secret,
      configuration: { baseURL: farebox.url },
      maxRetries: 0,
    });
    const documents = await embeddings.embedDocuments(['the sea', 'the moon', 'the sea']);
    assert.equal(documents.length, 3);
    assert.deepEqual(documents[0], documents[2]);
    assert.deepEqual(await embeddings.embedQuery('the sea'), documents[0]);
  });

  test('the AI SDK embeds many', async () => {
    const provider = createOpenAICompatible({
      name: 'farebox',
      baseURL: farebox.url,
      apiKey: farebox.owner.secret,
    });
    const result = await embedMany({
      model: provider.textEmbeddingModel(DEMO),
      values: ['the sea', 'the moon'],
    });
    assert.equal(result.embeddings.length, 2);
    assert.ok(result.usage.tokens > 0);
  });
});

describe('the flow', () => {
  test('inputs beyond the batch size of the engine are split, and their vectors keep the order', async () => {
    const input = Array.from({ length: 47 }, (_, at) => 'x'.repeat(at + 1));
    const { data, response } = await client.embeddings
      .create({ model: 'small-batches', input })
      .withResponse();
    assert.equal(upstream.seen.length, 5);
    assert.deepEqual(
      data.data.map((one) => one.embedding[0]),
      input.map((text) => text.length),
    );
    assert.equal(data.usage.prompt_tokens, 47 * 3);
    const id = response.headers.get('x-request-id') ?? '';
    const row = await receiptOf(farebox.app.stores.store, farebox.owner.accountId, id);
    assert.equal(row?.kind, 'embeddings');
    assert.equal(row?.prompt_tokens, 141n);
    assert.equal(row?.usd_nano, 141_000n);
    assert.equal(row?.counted_by, 'engine');
  });

  test('one batch that fails fails the request, which costs nothing', async () => {
    const before = await balance();
    upstream.script.push({ kind: 'embeddings' }, { kind: 'status', status: 400 });
    const input = Array.from({ length: 40 }, () => 'x');
    await assert.rejects(
      client.embeddings.create({ model: 'small-batches', input }),
      OpenAI.BadRequestError,
    );
    assert.equal(await balance(), before);
    assert.equal((await farebox.app.stores.ledger.audit()).openHolds, 0);
  });

  test('an engine without base64 is called again without an encoding, also from then on', async () => {
    upstream.otherwise = {
      kind: 'own',
      answer: (response, text) => {
        const body = JSON.parse(text) as { encoding_format?: string; input: string[] };
        const isKnown = body.encoding_format !== 'base64';
        response.writeHead(isKnown ? 200 : 400, { 'content-type': 'application/json' });
        const data = body.input.map((_, index) => ({ index, embedding: [0.5, index, 1] }));
        const refusal = { error: { message: 'encoding_format must be float' } };
        response.end(JSON.stringify(isKnown ? { data } : refusal));
      },
    };
    const create = { model: 'float-only', input: ['a', 'b'] };
    const expected = [
      [0.5, 0, 1],
      [0.5, 1, 1],
    ];
    for (const asked of [2, 3]) {
      const { data } = await client.embeddings.create(create);
      assert.deepEqual(
        data.map(({ embedding }) => embedding),
        expected,
      );
      assert.equal(upstream.seen.length, asked);
    }
    // A rejection without an encoding is an error of the request.
    for (const [words, asked] of [
      ['no such encoding', 2],
      ['no such input', 1],
    ] as const) {
      upstream.otherwise = { kind: 'status', status: 422, body: words };
      upstream.seen.length = 0;
      const wanted = { model: 'small-batches', input: 'a' };
      await assert.rejects(client.embeddings.create(wanted), OpenAI.BadRequestError);
      assert.equal(upstream.seen.length, asked);
    }
  });

  test('without usage the server counts the tokens itself', async () => {
    // Some say a zero that do not count.
    for (const usage of [false, 0]) {
      upstream.script.push({ kind: 'embeddings', usage });
      const before = await balance();
      const answer = await client.embeddings.create({
        model: 'small-batches',
        input: 'eight characters',
      });
      assert.equal(answer.usage.prompt_tokens, 4);
      assert.equal(before - (await balance()), 4_000n);
    }
  });

  test("token ids of the model's own vocabulary are forwarded unchanged", async () => {
    await client.embeddings.create({ model: 'own-ids', input: [7, 8, 9] });
    assert.deepEqual(JSON.parse(upstream.seen[0]?.body ?? '{}').input, [7, 8, 9]);
  });

  test('an invalid request gets 400 before the engine is called', async () => {
    const refused: readonly (readonly [unknown, RegExp])[] = [
      ['', /must not be empty/],
      [[], /At least one input/],
      [['a', ''], /must not be empty/],
      [Array.from({ length: 2_049 }, () => 'a'), /At most 2048/],
      ['word '.repeat(9_000), /longer than 8192/],
      [Array.from({ length: 8_193 }, () => 1), /longer than 8192/],
      [[1, -1], /token id/],
      [[200_000], /send text, or token ids of cl100k/],
      [['a', 1], /Expected a string/],
    ];
    for (const [input, message] of refused) {
      await assert.rejects(
        client.embeddings.create({ model: 'small-batches', input: input as string }),
        (error) => {
          assert.ok(error instanceof OpenAI.BadRequestError, String(error));
          assert.match(error.message, message);
          return true;
        },
      );
    }
    await assert.rejects(
      client.embeddings.create({ model: 'own-ids', input: 'a', dimensions: 2 }),
      /3 and no other/,
    );
    await assert.rejects(
      client.embeddings.create({ model: 'farebox-demo', input: 'a' }),
      OpenAI.BadRequestError,
    );
    assert.equal(upstream.seen.length, 0);
    assert.equal((await farebox.app.stores.ledger.audit()).openHolds, 0);
  });

  test('the limit of an input is counted in tokens without blocking the event loop', async () => {
    // Rare symbols take several tokens each.
    const dense = '\u{1F9EC}'.repeat(13_000);
    await holdsNoLoop(() =>
      assert.rejects(
        client.embeddings.create({ model: 'small-batches', input: dense }),
        /longer than 8192 tokens; it has \d+ of cl100k/,
      ),
    );
    const prose = 'The quick brown fox jumps over the lazy dog and runs into the forest. ';
    for (const text of ['a'.repeat(27_000), ' the'.repeat(8_192), prose.repeat(480)]) {
      assert.ok(countTokens(text) <= 8_192);
      await client.embeddings.create({ model: 'small-batches', input: ['short', text] });
    }
    await assert.rejects(
      client.embeddings.create({ model: 'small-batches', input: ['a', ' the'.repeat(8_193)] }),
      /Input 1 is longer than 8192 tokens; it has 8193 of cl100k/,
    );
  });

  test("the limit is counted in the model's vocabulary, and in its own ids", async () => {
    // Two tokens of o200k, and six of cl100k.
    const word = ' здравствуйте';
    assert.ok(countTokens(word.repeat(2_500)) > 8_192);
    const input = word.repeat(2_500);
    await client.embeddings.create({ model: 'new-vocabulary', input });
    await assert.rejects(
      client.embeddings.create({ model: 'small-batches', input }),
      /it has \d+ of cl100k/,
    );
    const ids = Array.from({ length: 4_097 }, () => 1);
    await client.embeddings.create({ model: 'own-ids', input: ids.slice(1) });
    await assert.rejects(
      client.embeddings.create({ model: 'own-ids', input: ids }),
      /Input 0 is longer than 4096 tokens/,
    );
  });

  test('a disconnect releases the engine and the hold', async () => {
    upstream.otherwise = { kind: 'hang' };
    const abort = new AbortController();
    const asked = client.embeddings.create(
      { model: 'small-batches', input: 'hello there' },
      { signal: abort.signal },
    );
    await until(() => upstream.active > 0);
    abort.abort();
    await assert.rejects(asked);
    await until(() => upstream.active === 0, 'the end of the work');
    await until(async () => (await farebox.app.stores.ledger.audit()).openHolds === 0);
  });

  test('a disconnect is charged only for inputs that were sent to an engine', async () => {
    upstream.otherwise = { kind: 'hang' };
    const leave = new AbortController();
    const first = new AbortController();
    const create = (count: number, { signal }: AbortController) => {
      const input = Array.from({ length: count }, () => 'x'.repeat(400));
      return client.embeddings.create({ model: 'one-slot', input }, { signal });
    };
    const before = await balance();
    // The only slot of the engine gets the first batch of ten inputs.
    const running = create(100, first);
    await until(() => upstream.active === 1, 'the first batch at the engine');
    const waiting = create(10, leave);
    await until(async () => (await farebox.app.stores.ledger.audit()).openHolds === 2);
    const { engines } = farebox.app;
    await until(() => engines.status().some(({ queued }) => queued === 4), 'the waiting request');
    leave.abort();
    await assert.rejects(waiting);
    await until(async () => (await farebox.app.stores.ledger.audit()).openHolds === 1);
    assert.equal(await balance(), before);
    first.abort();
    await assert.rejects(running);
    await until(async () => (await farebox.app.stores.ledger.audit()).openHolds === 0);
    assert.equal(before - (await balance()), 1_000_000n);
  });

  test('a call that a closing server aborts is not charged, and its key can be used again', async () => {
    upstream.otherwise = { kind: 'hang' };
    const closing = await startTestApp({
      yaml: `
engines: { rack: { url: "${upstream.url}" } }
models:
  - { id: one, type: embedding, price: { input: 1 }, embedding: { dimensions: 3 }, replicas: [{ engine: rack }] }
`,
    });
    try {
      const { ledger, store } = closing.app.stores;
      const posted = async () => (await ledger.balances(closing.owner.accountId)).usdNano;
      const before = await posted();
      const response = fetch(`${closing.url}/embeddings`, {
        method: 'POST',
        headers: {
          authorization: `Bearer ${closing.owner.secret}`,
          'content-type': 'application/json',
          'idempotency-key': 'closed',
        },
        body: '{"model":"one","input":"a text"}',
      });
      await until(() => upstream.active === 1, 'the request at the engine');
      await closing.app.engines.close();
      assert.equal((await response).status, 500);
      assert.equal(await posted(), before);
      assert.deepEqual(await store.query('SELECT state FROM idempotency_entry'), []);
    } finally {
      await closing.stop();
    }
  });

  test('a disconnect after the engine was overloaded costs nothing', async () => {
    upstream.script.push({ kind: 'status', status: 429, headers: { 'retry-after': '4' } });
    const failures = (): number => {
      const replicas = farebox.app.engines.status().flatMap((one) => one.replicas);
      return replicas.reduce((sum, replica) => sum + replica.failures, 0);
    };
    const failuresBefore = failures();
    const before = await balance();
    const abort = new AbortController();
    const asked = client.embeddings.create(
      { model: 'small-batches', input: 'hello there' },
      { signal: abort.signal },
    );
    await until(() => failures() > failuresBefore);
    abort.abort();
    await assert.rejects(asked);
    await until(async () => (await farebox.app.stores.ledger.audit()).openHolds === 0);
    assert.equal(before - (await balance()), 0n);
  });

  test('a retry with the same idempotency key gets the same response and is charged once', async () => {
    const headers = { 'idempotency-key': 'embed-once' };
    const input = 'once and only once';
    const ask = () => client.embeddings.create({ model: 'small-batches', input }, { headers });
    const before = await balance();
    const first = await ask();
    const paid = before - (await balance());
    const { data: again, response } = await ask().withResponse();
    assert.deepEqual(again, first);
    assert.equal(response.headers.get('idempotent-replayed'), 'true');
    assert.equal(before - (await balance()), paid);
    assert.equal(upstream.seen.length, 1);
  });

  test('a caller without credit gets 402', async () => {
    const { secret } = await farebox.account('0.05');
    const poor = new OpenAI({ baseURL: farebox.url, apiKey: secret, maxRetries: 0 });
    await assert.rejects(
      poor.embeddings.create({ model: 'small-batches', input: 'a' }),
      (error) => error instanceof OpenAI.APIError && error.status === 402,
    );
    assert.equal(upstream.seen.length, 0);
  });

  test('two thousand vectors do not block the event loop', async () => {
    upstream.otherwise = { kind: 'embeddings' };
    const input = Array.from({ length: 2_048 }, (_, at) => `text ${at}`);
    const answer = await holdsNoLoop(() => client.embeddings.create({ model: 'own-ids', input }));
    assert.equal(answer.data.length, 2_048);
    assert.equal(answer.data[2_047]?.embedding[1], 2_047);
  });
});
