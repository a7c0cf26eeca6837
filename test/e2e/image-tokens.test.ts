/** Images with token prices: the hold, the charge, the receipt and the cost of the supplier. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import OpenAI, { toFile } from 'openai';
import { call } from '../app/call.ts';
import { sharp } from '../support/sharp.ts';
import { type ModelFixture, sendEvents, sendJson, startModelFixture } from './model-fixture.ts';

const MODELS = `
  - id: painter
    type: image
    imageTokens: 500
    price: { input: 5, cacheInput: 1.25, imageInput: 10, output: 10, imageOutput: 40, perImage: 0.25, imageRates: [{ quality: low, perImage: 0.02 }] }
    image: { edits: true }
    replicas: [{ engine: studio, model: gpt-image-1, cost: { input: 4, imageInput: 8, imageOutput: 32, perImage: 0.2 } }]
`;

const PLANS = `
plans: { gold: { basedOn: paid, prices: { discountPercent: 50 } } }
`;

interface Line {
  readonly kind: string;
  readonly quantity?: number;
  readonly listPrice?: string;
  readonly usd: string;
}

describe('images with token prices', () => {
  let fixture: ModelFixture;
  let openai: OpenAI;
  let operator: string;
  let requestId: string;
  let image: Buffer;
  /** The usage that the engine reports. */
  let usage: unknown;

  before(async () => {
    fixture = await startModelFixture(`${MODELS}${PLANS}`);
    const { engine, farebox } = fixture;
    const remembered: typeof fetch = async (url, init) => {
      const response = await fetch(url, init);
      requestId = response.headers.get('x-request-id') ?? '';
      return response;
    };
    const apiKey = farebox.owner.secret;
    openai = new OpenAI({ baseURL: farebox.url, apiKey, maxRetries: 0, fetch: remembered });
    operator = await farebox.key({ kind: 'ADMIN' });
    const color = { r: 1, g: 2, b: 3 };
    image = await sharp({ create: { width: 64, height: 64, channels: 3, background: color } })
      .png()
      .toBuffer();
    const b64_json = image.toString('base64');
    engine.on('/images/edits', (_heard, response) =>
      sendJson(response, { data: [{ b64_json }], usage }),
    );
    engine.on('/images/generations', ({ json }, response) => {
      if (json.stream !== true) {
        const data = Array.from({ length: json.n ?? 1 }, () => ({ b64_json }));
        return sendJson(response, { data, background: 'opaque', usage });
      }
      return sendEvents(response, [
        { type: 'image_generation.partial_image', b64_json, partial_image_index: 0 },
        { type: 'image_generation.completed', b64_json, background: 'opaque', usage },
      ]);
    });
  });
  after(() => fixture.stop());

  async function sold<T>(work: () => Promise<T>) {
    const { farebox } = fixture;
    const { accountId, secret } = farebox.owner;
    const balance = async () => (await farebox.app.stores.ledger.balances(accountId)).usdNano;
    const before = await balance();
    const made = await work();
    const nano = before - (await balance());
    const { body: receipt } = await call(farebox, `/usage/${requestId}`, { secret });
    const seen = await call(farebox, `/admin/requests/${requestId}`, { secret: operator });
    const lines = (of: readonly Line[]) =>
      of.map(({ kind, quantity, usd }) => [kind, quantity, usd]);
    const { supplier } = seen.body.data;
    return { made, nano, receipt, lines: lines(receipt.lines), cost: lines(supplier.lines) };
  }

  const generation = { model: 'painter', prompt: 'A lighthouse' };
  const drawn = (input: object, output = 1_000, more = {}) => ({
    ...input,
    output_tokens: output,
    ...more,
  });
  const TEXT = { input_tokens: 20, input_tokens_details: { text_tokens: 20, image_tokens: 0 } };

  test('the reported tokens are charged exactly, with a line and a cost for each kind', async () => {
    usage = drawn(TEXT);
    const { made, nano, receipt, lines, cost } = await sold(() =>
      openai.images.generate(generation),
    );
    assert.equal(nano, BigInt(20 * 5_000 + 1_000 * 40_000));
    assert.deepEqual(
      lines,
      [
        ['image_output_tokens', 1_000, '0.04'],
        ['input_tokens', 20, '0.0001'],
      ].toReversed(),
    );
    assert.deepEqual(cost, [
      ['input_tokens', 20, '0.00008'],
      ['image_output_tokens', 1_000, '0.032'],
    ]);
    assert.deepEqual([receipt.tokens.prompt, receipt.tokens.completion], [20, 1_000]);
    assert.equal(receipt.tokens.countedBy, 'engine');
    assert.equal(receipt.extras.images, 1);
    // 12 bytes and 64 tokens at most at the highest price of a prompt token.
    assert.equal(receipt.reserved, 0.25 + 76 * 0.00001);
    assert.equal(made.usage?.output_tokens, 1_000);
    assert.equal(made.background, 'opaque');
  });

  test('input images of an edit and details of the output have their own prices', async () => {
    usage = drawn(
      {
        input_tokens: 420,
        input_tokens_details: { text_tokens: 20, image_tokens: 400, cached_tokens: 8 },
      },
      1_010,
      { output_tokens_details: { image_tokens: 1_000, text_tokens: 10 } },
    );
    const file = () => toFile(image, 'bay.png', { type: 'image/png' });
    const { nano, receipt, lines } = await sold(async () =>
      openai.images.edit({ ...generation, image: [await file(), await file()] }),
    );
    assert.deepEqual(lines, [
      ['image_input_tokens', 400, '0.004'],
      ['input_tokens', 12, '0.00006'],
      ['cache_read_tokens', 8, '0.00001'],
      ['image_output_tokens', 1_000, '0.04'],
      ['output_tokens', 10, '0.0001'],
    ]);
    assert.equal(nano, 44_170_000n);
    assert.equal(receipt.extras.inputImages, 2);
    // Two images and a mask of at most 500 tokens each.
    assert.equal(receipt.reserved, 0.25 + (76 + 1_500) * 0.00001);
  });

  test('an engine without usage is paid per image', async () => {
    for (const none of [undefined, null, { total_tokens: 7 }, drawn(TEXT, 0), drawn(TEXT, -1)]) {
      usage = none;
      const { nano, lines, cost } = await sold(() =>
        openai.images.generate({ ...generation, n: 2, quality: 'low' }),
      );
      assert.equal(nano, 40_000_000n);
      assert.deepEqual(lines, [['image', 2, '0.04']]);
      assert.deepEqual(cost, [['image', 2, '0.4']]);
    }
  });

  test('the charge is at most the hold, and the supplier is paid in full', async () => {
    usage = drawn(TEXT, 1_000_000);
    const { nano, receipt, lines, cost } = await sold(() =>
      openai.images.generate({ ...generation, quality: 'low' }),
    );
    assert.equal(nano, 20_760_000n);
    assert.equal(receipt.reserved, 0.02076);
    assert.deepEqual(lines.at(-1), ['above_hold', undefined, '-39.97934']);
    assert.deepEqual(cost.at(-1), ['image_output_tokens', 1_000_000, '32']);
  });

  test('a stream is charged by the tokens of its last event, and its events have a background', async () => {
    usage = drawn(TEXT, 1_100);
    const { made, nano } = await sold(async () => {
      const stream = await openai.images.generate({
        ...generation,
        stream: true,
        partial_images: 1,
        background: 'transparent',
      });
      const events: (readonly [type: string, background: string])[] = [];
      for await (const { type, background } of stream) events.push([type, background]);
      return events;
    });
    assert.deepEqual(made, [
      ['image_generation.partial_image', 'transparent'],
      ['image_generation.completed', 'opaque'],
    ]);
    assert.equal(nano, BigInt(20 * 5_000 + 1_100 * 40_000));
  });

  test('an account with a discount sees the list price of each kind of token', async () => {
    const { farebox } = fixture;
    usage = drawn(TEXT);
    const { secret, accountId } = await farebox.account('5');
    const plan = await call(farebox, `/admin/accounts/${accountId}`, {
      secret: operator,
      method: 'PATCH',
      body: { plan: 'gold' },
    });
    assert.equal(plan.status, 200, plan.text);
    const sent = await call(farebox, '/images/generations', { secret, body: generation });
    assert.equal(sent.body.cost.usd, 0.02005);
    const id = sent.headers.get('x-request-id') ?? '';
    const { body: receipt } = await call(farebox, `/usage/${id}`, { secret });
    assert.deepEqual(
      receipt.lines.map(({ kind, listPrice, usd }: Line) => [kind, listPrice, usd]),
      [
        ['input_tokens', '5', '0.00005'],
        ['image_output_tokens', '40', '0.02'],
      ],
    );
  });

  test('a request is rejected if the balance does not cover its hold', async () => {
    const { farebox } = fixture;
    const { secret } = await farebox.account('0.25');
    const sent = await call(farebox, '/images/generations', { secret, body: generation });
    assert.equal(sent.status, 402, sent.text);
  });

  test('the model list has the prices of tokens and of an image', async () => {
    const { body } = await call(fixture.farebox, '/models/painter');
    const { pricing } = body.model_spec;
    assert.deepEqual(
      ['input', 'image_input', 'output', 'image_output', 'generation'].map(
        (one) => pricing[one].usd,
      ),
      [5, 10, 10, 40, 0.25],
    );
  });
});
