/** Fallbacks of models for images, reranking and embeddings: when they run, their price and cost, who may use them. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { sharp } from '../support/sharp.ts';
import { type Called, call } from '../app/call.ts';
import { type ModelFixture, sendJson, startModelFixture } from './model-fixture.ts';

/** A failure opens the circuit breaker of its replica, so that each case has a model of its own. */
const CASES = ['once', 'stream', 'partial', 'edit', 'limited', 'refused', 'all', 'sent'];
const FALLBACKS: Readonly<Record<string, string>> = { all: '[paint-lost]', edit: '[plain, dear]' };
const PAINTER = 'type: image, image: { edits: true }';
const MODELS = `
${CASES.map((name) => `  - { id: paint-${name}, ${PAINTER}, price: { perImage: 0.04 }, fallbacks: ${FALLBACKS[name] ?? '[dear, single, plain, spare]'}, replicas: [{ engine: studio, model: fails-${name} }] }`).join('\n')}
  - { id: paint-lost, ${PAINTER}, price: { perImage: 0.04 }, replicas: [{ engine: studio, model: fails-lost }] }
  - { id: dear, ${PAINTER}, price: { perImage: 0.01, imageRates: [{ size: 64x64, perImage: 0.05 }] }, replicas: [{ engine: studio }] }
  - { id: single, type: image, price: { perImage: 0.01 }, image: { edits: true, maxImages: 1 }, replicas: [{ engine: studio }] }
  - { id: plain, type: image, price: { perImage: 0.03 }, image: { sizes: [32x32] }, replicas: [{ engine: studio }] }
  - { id: spare, ${PAINTER}, price: { perImage: 0.03 }, replicas: [{ engine: studio, cost: { perImage: 0.02 } }] }
  - { id: sorter, type: rerank, price: { perSearch: 0.002 }, fallbacks: [dear-sorter, few-sorter, spare-sorter], replicas: [{ engine: studio, model: fails-sorter, cost: { perSearch: 0.0001 } }] }
  - { id: dear-sorter, type: rerank, price: { perSearch: 0.003 }, replicas: [{ engine: studio }] }
  - { id: few-sorter, type: rerank, price: { perSearch: 0.001 }, rerank: { maxDocuments: 1 }, replicas: [{ engine: studio }] }
  - { id: spare-sorter, type: rerank, price: { perSearch: 0.001 }, replicas: [{ engine: studio, cost: { perSearch: 0.0005 } }] }
  - { id: embed, type: embedding, embedding: { dimensions: 2 }, price: { input: 2 }, fallbacks: [spare-embed], replicas: [{ engine: studio, model: fails-embed, cost: { input: 0.1 } }] }
  - { id: spare-embed, type: embedding, embedding: { dimensions: 2 }, price: { input: 1 }, replicas: [{ engine: studio, cost: { input: 0.5 } }] }
`;

describe('fallbacks of images, rankings and embeddings', () => {
  let fixture: ModelFixture;
  let secret: string;
  let operator: string;
  /** Status of the models that fail. */
  let status = 500;

  before(async () => {
    fixture = await startModelFixture(MODELS);
    ({ secret } = fixture.farebox.owner);
    operator = await fixture.farebox.key({ kind: 'ADMIN' });
    const background = { r: 1, g: 2, b: 3 };
    const size = { width: 64, height: 64, channels: 3 as const, background };
    const b64_json = (await sharp({ create: size }).png().toBuffer()).toString('base64');
    const { engine } = fixture;
    const bodies = {
      '/images/generations': { data: [{ b64_json }, { b64_json }] },
      '/images/edits': { data: [{ b64_json }] },
      '/rerank': { results: [0, 1].map((index) => ({ index, relevance_score: 0.5 })) },
      '/embeddings': { data: [{ index: 0, embedding: [0, 1] }], usage: { prompt_tokens: 8 } },
    };
    for (const [path, body] of Object.entries(bodies)) {
      engine.on(path, ({ bytes }, response) => {
        const sent = bytes.toString('latin1');
        if (!sent.includes('fails-')) return sendJson(response, body);
        if (!sent.includes('fails-sent')) return sendJson(response, { error: {} }, status);
        const event = { type: 'image_generation.partial_image', b64_json, partial_image_index: 0 };
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        response.write(`data: ${JSON.stringify(event)}\n\n`);
        return setTimeout(() => response.destroy(), 500);
      });
    }
  });
  after(() => fixture.stop());

  const image = { prompt: 'sea', size: '64x64', n: 2 };
  const send = (path: string, body: object, key = secret) =>
    call(fixture.farebox, path, { secret: key, body });
  const balance = async () => {
    const { app, owner } = fixture.farebox;
    return (await app.stores.ledger.balances(owner.accountId)).usdNano;
  };
  const receiptOf = async ({ headers }: Called) => {
    const id = headers.get('x-request-id') ?? '';
    const { body } = await call(fixture.farebox, `/admin/requests/${id}`, { secret: operator });
    return body.data;
  };

  const streamed = { ...image, stream: true };
  const documents = ['b', 'c'];
  for (const { name, path, body, model, paidNano, costUsd } of [
    {
      name: 'images',
      path: '/images/generations',
      body: { ...image, model: 'paint-once' },
      model: 'spare',
      paidNano: 60_000_000n,
      costUsd: '0.040000000',
    },
    {
      name: 'streamed images',
      path: '/images/generations',
      body: { ...streamed, model: 'paint-stream' },
      model: 'spare',
      paidNano: 60_000_000n,
      costUsd: '0.040000000',
    },
    {
      name: 'streamed images with partial images',
      path: '/images/generations',
      body: { ...streamed, partial_images: 1, model: 'paint-partial' },
      model: 'spare',
      paidNano: 60_000_000n,
      costUsd: '0.040000000',
    },
    {
      name: 'a ranking',
      path: '/rerank',
      body: { model: 'sorter', query: 'a', documents },
      model: 'spare-sorter',
      paidNano: 1_000_000n,
      costUsd: '0.000500000',
    },
    {
      name: 'embeddings',
      path: '/embeddings',
      body: { model: 'embed', input: 'a longer text' },
      model: 'spare-embed',
      paidNano: 8_000n,
      costUsd: '0.000004000',
    },
  ]) {
    test(`${name}: the first fallback that can do the work for no higher price runs, and is charged`, async () => {
      const before = await balance();
      const called = await send(path, body);
      assert.equal(called.status, 200, called.text);
      assert.equal(called.headers.get('x-svc-model-id'), model);
      assert.doesNotMatch(called.text, /"error"/);
      assert.equal(before - (await balance()), paidNano);
      const receipt = await receiptOf(called);
      assert.equal(receipt.model, model);
      assert.equal(receipt.supplier.usd, costUsd);
    });
  }

  test('an edited image: a model that does not edit is skipped', async () => {
    const form = new FormData();
    const { data } = (await send('/images/generations', { ...image, model: 'spare' })).body;
    const file = Buffer.from(data[0].b64_json, 'base64');
    form.set('image', new Blob([file], { type: 'image/png' }), 'a.png');
    for (const [key, value] of [
      ['model', 'paint-edit'],
      ['prompt', 'sky'],
      ['size', '32x32'],
      ['n', '2'],
    ] as const) {
      form.set(key, value);
    }
    const response = await fetch(`${fixture.farebox.url}/images/edits`, {
      method: 'POST',
      headers: { authorization: `Bearer ${secret}` },
      body: form,
    });
    assert.equal(response.status, 200, await response.clone().text());
    // The high price of `dear` is for another size.
    assert.equal(response.headers.get('x-svc-model-id'), 'dear');
  });

  test('a key that may not use the fallback gets the error of the requested model', async () => {
    const key = await fixture.farebox.key({ models: ['paint-limited'] });
    const called = await send('/images/generations', { ...image, model: 'paint-limited' }, key);
    assert.deepEqual([called.status, called.body.code], [500, 'INFERENCE_FAILED']);
    assert.equal(called.headers.get('x-svc-model-id'), 'paint-limited');
  });

  test('a request that the engine rejects does not fall back', async () => {
    status = 400;
    const before = await balance();
    const called = await send('/images/generations', { ...image, model: 'paint-refused' });
    status = 500;
    assert.equal(called.status, 400, called.text);
    assert.equal(called.headers.get('x-svc-model-id'), 'paint-refused');
    assert.equal(await balance(), before);
  });

  test('if every model fails, the caller gets the error of the requested one and pays nothing', async () => {
    const before = await balance();
    const called = await send('/images/generations', { ...image, model: 'paint-all' });
    assert.equal(called.status, 500, called.text);
    assert.equal(called.headers.get('x-svc-model-id'), 'paint-all');
    assert.equal((await receiptOf(called)).model, 'paint-all');
    assert.equal(await balance(), before);
  });

  test('a stream that has begun does not fall back', async () => {
    const before = await balance();
    const body = { ...streamed, partial_images: 1, model: 'paint-sent' };
    const called = await send('/images/generations', body);
    assert.equal(called.headers.get('x-svc-model-id'), 'paint-sent');
    assert.match(called.text, /partial_image[\s\S]*event: error/);
    assert.equal(await balance(), before);
  });
});
