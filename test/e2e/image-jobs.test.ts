/** Images of asynchronous engines: a job is polled at the engine until it has ended. */
import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import OpenAI, { APIError } from 'openai';
import { sharp } from '../support/sharp.ts';
import { until } from '../support/until.ts';
import { type ModelFixture, sendJson, startModelFixture } from './model-fixture.ts';

const MODELS = `
  - id: painter
    type: image
    price: { perImage: 0.25 }
    replicas: [{ engine: studio, model: flux }]
`;
const PRICE_NANO = 250_000_000n;

describe('an asynchronous image engine', () => {
  let fixture: ModelFixture;
  let openai: OpenAI;
  let b64_json: string;
  const order = { model: 'painter', prompt: 'A lighthouse' };

  before(async () => {
    fixture = await startModelFixture(MODELS);
    const { farebox } = fixture;
    openai = new OpenAI({ baseURL: farebox.url, apiKey: farebox.owner.secret, maxRetries: 0 });
    const create = { width: 64, height: 64, channels: 3, background: '#123456' } as const;
    const image = await sharp({ create }).png().toBuffer();
    b64_json = image.toString('base64');
    fixture.engine.on('/drawn.png', (_heard, response) => response.end(image));
  });
  beforeEach(() => {
    fixture.engine.heard.length = 0;
  });
  after(() => fixture.stop());

  const paths = () => fixture.engine.heard.map(({ path }) => path.replace('/v1', ''));

  async function spent(work: () => Promise<unknown>): Promise<bigint> {
    const { app, owner } = fixture.farebox;
    const balance = async () => (await app.stores.ledger.balances(owner.accountId)).usdNano;
    const before = await balance();
    await work();
    return before - (await balance());
  }

  /** The engine responds with a job, and to polls with these bodies in order. */
  function scripted(more: object, path: string, polls: readonly object[]): void {
    let count = 0;
    const job = { id: 'job-1', status: 'queued', ...more };
    fixture.engine.onJson('/images/generations', job, 202);
    fixture.engine.on(path, (_heard, response) => {
      sendJson(response, polls[Math.min(count, polls.length - 1)]);
      count += 1;
    });
  }

  const AT_ID = '/images/generations/job-1';
  const RUNNING = { status: 'processing' };

  test('a job is polled at its id, and its images are charged once', async () => {
    scripted({}, AT_ID, [RUNNING, { status: 'succeeded', data: [{ b64_json }] }]);
    const nano = await spent(async () => {
      const { data } = await openai.images.generate(order);
      assert.equal(data?.[0]?.b64_json, b64_json);
    });
    assert.equal(nano, PRICE_NANO);
    assert.deepEqual(paths(), ['/images/generations', AT_ID, AT_ID]);
  });

  test('a job is polled at its URL, and its images are fetched by URL', async () => {
    const { engineUrl } = fixture;
    scripted({ urls: { get: `${engineUrl}/state` } }, '/state', [
      { status: 'Ready', output: [`${engineUrl}/drawn.png`] },
    ]);
    const { data } = await openai.images.generate(order);
    assert.equal(data?.[0]?.b64_json, b64_json);
    assert.deepEqual(paths(), ['/images/generations', '/state', '/drawn.png']);
  });

  test('a stream of an asynchronous engine ends with the image', async () => {
    scripted({}, AT_ID, [{ status: 'completed', images: [{ b64_json }] }]);
    const stream = await openai.images.generate({ ...order, stream: true, partial_images: 1 });
    const types: string[] = [];
    for await (const event of stream) types.push(event.type);
    assert.deepEqual(types, ['image_generation.completed']);
  });

  test('a failed job is not charged', async () => {
    scripted({}, AT_ID, [{ status: 'failed', error: 'no memory' }]);
    const nano = await spent(async () => {
      await assert.rejects(openai.images.generate(order), (error: unknown) => {
        assert.ok(error instanceof APIError);
        assert.equal(error.status, 500);
        assert.doesNotMatch(error.message, /no memory/);
        return true;
      });
    });
    assert.equal(nano, 0n);
  });

  for (const [name, more, path, poll] of [
    ['a poll', { polling_url: 'http://169.254.169.254/job' }, AT_ID, RUNNING],
    ['an image', {}, AT_ID, { status: 'done', data: [{ url: 'http://169.254.169.254/a.png' }] }],
    ['an image that is none', {}, AT_ID, { status: 'done', data: [{ b64_json: 'AAAA' }] }],
  ] as const) {
    test(`a job with a private address or rubbish as ${name} is not charged`, async () => {
      scripted(more, path, [poll]);
      const nano = await spent(async () => {
        await assert.rejects(openai.images.generate(order), { status: 500 });
      });
      assert.equal(nano, 0n);
      if (poll !== RUNNING) return;
      assert.ok(!paths().includes('/job'));
      const removed = () => fixture.engine.heard.some(({ method }) => method === 'DELETE');
      await until(removed, 'the removal of the job', 250);
    });
  }

  test('a job of a caller who disconnects is removed and not charged', async () => {
    scripted({}, AT_ID, [RUNNING]);
    const nano = await spent(async () => {
      const leaving = new AbortController();
      const drawn = openai.images.generate(order, { signal: leaving.signal });
      await until(() => paths().includes(AT_ID), 'the first poll', 250);
      leaving.abort();
      await assert.rejects(drawn);
      const removed = () => fixture.engine.heard.some(({ method }) => method === 'DELETE');
      await until(removed, 'the removal of the job', 250);
    });
    assert.equal(nano, 0n);
  });
});
