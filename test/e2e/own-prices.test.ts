/** Own prices of accounts and plans: what `/models`, holds, charges and receipts of each kind show. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import OpenAI from 'openai';
import { type Bench, type CallOptions, call, chatBody, startWithEngine } from '../app/call.ts';
import { type TestNode, echoNode, startNode } from '../rpc/node.ts';
import { until } from '../support/until.ts';
import { batchEnd, chatLine, startBatch } from '../support/batch-client.ts';
import { usdToNano } from '../../src/core/money.ts';
import { lossSearch } from '../../src/server/customer-losses.ts';

const REPLICA = 'replicas: [{ engine: rack1, model: tiny }]';
const MODELS = `
  - { id: vectors, type: embedding, context: 8192, embedding: { dimensions: 3 }, price: { input: 1 }, ${REPLICA} }
  - id: tiered
    context: 8192
    price: { input: 1, output: 2, reasoning: 4, serviceTiers: { priority: { factor: 2 } } }
    replicas: [{ engine: rack1, model: tiny, cost: { input: 0.9, output: 1 } }]`;

interface Line {
  readonly kind: string;
  readonly quantity: number;
  readonly price: string;
  readonly listPrice?: string;
  readonly usd: string;
}

describe('prices by customer', () => {
  let bench: Bench;
  let node: TestNode;
  let operator: string;

  before(async () => {
    node = await startNode('0x1', echoNode());
    bench = await startWithEngine({
      model: MODELS,
      yaml: `
rpc: { usdPerCredit: 0.000001, networks: { ethereum-mainnet: { upstreams: [{ url: "${node.url}" }] } } }
plans:
  gold:
    basedOn: partner
    limits: { embedding: 7, rpcRequestsPerMinute: 9 }
    prices: { discountPercent: 20, kinds: { embedding: { discountPercent: 50 } } }`,
    });
    operator = await bench.farebox.key({ kind: 'ADMIN' });
  });
  after(async () => {
    await bench.farebox.audit();
    await bench.stop();
    await node.close();
  });

  const change = async (accountId: string, body: unknown) => {
    const path = `/admin/accounts/${accountId}`;
    const changed = await call(bench.farebox, path, { method: 'PATCH', body, secret: operator });
    assert.equal(changed.status, 200, changed.text);
    return changed.body.data;
  };

  async function customer(terms: unknown) {
    const { accountId, secret } = await bench.farebox.account('10');
    await change(accountId, terms);
    const spent = async () =>
      usdToNano('10') - (await bench.farebox.app.stores.ledger.balances(accountId)).usdNano;
    const send = async (path: string, options: CallOptions) => {
      const response = await call(bench.farebox, path, { secret, ...options });
      assert.equal(response.status, 200, response.text);
      const id = String(response.headers.get('x-request-id'));
      const receipt = await call(bench.farebox, `/usage/${id}`, { secret });
      assert.equal(receipt.status, 200, receipt.text);
      const { lines, unitPrices, listPrices } = receipt.body;
      return { response, lines: lines as Line[], unitPrices, listPrices, id };
    };
    return { accountId, secret, spent, send };
  }

  const USAGE = {
    kind: 'answer',
    content: 'Hi',
    promptTokens: 200,
    completionTokens: 40,
  } as const;
  const short = (lines: readonly Line[]) =>
    lines.map(({ kind, price, listPrice, usd }) => [kind, price, listPrice, usd]);

  test('a plan with a discount sells chats, embeddings and RPC credits at its prices', async () => {
    const { spent, send } = await customer({ plan: 'gold' });
    bench.upstream.script.push(USAGE);
    const chat = await send('/chat/completions', { body: chatBody() });
    assert.equal(await spent(), 224_000n, '200 × 0.8 + 40 × 1.6');
    assert.deepEqual(short(chat.lines), [
      ['input_tokens', '0.8', '1', '0.00016'],
      ['output_tokens', '1.6', '2', '0.000064'],
    ]);
    assert.deepEqual([chat.unitPrices.input, chat.listPrices.input], ['0.8000', '1']);
    bench.upstream.script.push({ kind: 'embeddings' });
    const vectors = await send('/embeddings', { body: { model: 'vectors', input: 'a' } });
    assert.deepEqual(short(vectors.lines)[0]?.slice(0, 3), ['input_tokens', '0.5', '1']);
    const rpc = await send('/crypto/rpc/ethereum-mainnet', {
      body: { jsonrpc: '2.0', id: 1, method: 'eth_getBalance', params: ['0x0', 'latest'] },
    });
    assert.equal(rpc.response.headers.get('x-svc-rpc-cost-usd'), '0.00001600');
    assert.deepEqual(short(rpc.lines), [['credits', '0.0000008', '0.000001', '0.000016']]);
    assert.equal(rpc.response.headers.get('x-ratelimit-limit-requests'), '9');
    assert.equal(vectors.response.headers.get('x-ratelimit-limit-requests'), '7');
  });

  test('the prices of an account replace those of its plan, and a list has its own tiers', async () => {
    const prices = {
      models: {
        tiered: {
          price: { input: 0.5, output: 1, reasoning: 3, serviceTiers: { priority: { factor: 3 } } },
        },
      },
      rpc: { usdPerCredit: '0.0000002' },
    };
    const { spent, send, secret } = await customer({ plan: 'gold', prices });
    bench.upstream.script.push(USAGE);
    const chat = await send('/chat/completions', {
      body: { ...chatBody(), model: 'tiered', service_tier: 'priority' },
    });
    assert.equal(await spent(), 140_000n, 'the engine did not report the tier');
    assert.deepEqual(short(chat.lines), [
      ['input_tokens', '0.5', '1', '0.0001'],
      ['output_tokens', '1', '2', '0.00004'],
    ]);
    const list = await call(bench.farebox, '/models?type=all', { secret });
    const priceOf = (model: string) => {
      const found = list.body.data.find(({ id }: { id: string }) => id === model);
      return found.model_spec.pricing;
    };
    assert.deepEqual(priceOf('tiered').priority.input, { usd: 1.5, diem: 1.5 });
    assert.deepEqual(priceOf('atlas').input, { usd: 0.8, diem: 0.8 });
    assert.deepEqual(priceOf('atlas').batch.input, { usd: 0.4, diem: 0.4 });
    const one = await call(bench.farebox, '/models/atlas', { secret });
    assert.deepEqual(one.body.model_spec.pricing, priceOf('atlas'));
    const anonymous = await call(bench.farebox, '/models/atlas');
    assert.deepEqual(anonymous.body.model_spec.pricing.input, { usd: 1, diem: 1 });
  });

  test('a request keeps the price of its hold when the prices change while it runs', async () => {
    const { accountId, spent, secret } = await customer({ prices: { discountPercent: 50 } });
    const held = Promise.withResolvers<void>();
    bench.upstream.script.push({ ...USAGE, after: held.promise });
    const before = bench.upstream.seen.length;
    const running = call(bench.farebox, '/chat/completions', { secret, body: chatBody() });
    await until(() => bench.upstream.seen.length > before, 'the call of the engine');
    await change(accountId, { prices: { discountPercent: 10 } });
    held.resolve();
    assert.equal((await running).status, 200);
    assert.equal(await spent(), 140_000n);
    bench.upstream.script.push(USAGE);
    await call(bench.farebox, '/chat/completions', { secret, body: chatBody() });
    assert.equal(await spent(), 140_000n + 252_000n);
    assert.equal((await change(accountId, { prices: null })).prices, null);
    bench.upstream.script.push(USAGE);
    await call(bench.farebox, '/chat/completions', { secret, body: chatBody() });
    assert.equal(await spent(), 392_000n + 280_000n);
  });

  test('a batch runs at the batch price of the customer', async () => {
    const { spent, secret } = await customer({ prices: { discountPercent: 50 } });
    bench.upstream.script.push(USAGE);
    const client = new OpenAI({ baseURL: bench.farebox.url, apiKey: secret, maxRetries: 0 });
    const { id } = await startBatch(client, [chatLine('one')]);
    assert.equal((await batchEnd(client, id)).status, 'completed');
    assert.equal(await spent(), 70_000n, 'half of half of 280,000');
  });

  test('a discount of 100 % is free, and its receipt shows the list prices', async () => {
    const { spent, send } = await customer({ prices: { discountPercent: 100 } });
    bench.upstream.script.push(USAGE);
    const { listPrices } = await send('/chat/completions', { body: chatBody() });
    assert.equal(await spent(), 0n);
    assert.equal(listPrices.input, '1');
  });

  test('the operator reads the prices of a customer beside the list prices', async () => {
    const { accountId } = await customer({
      plan: 'gold',
      prices: { models: { atlas: { discountPercent: 25 } } },
    });
    const read = async (query: string) => {
      const { body, status, text } = await call(bench.farebox, `/admin/prices?${query}`, {
        secret: operator,
      });
      assert.equal(status, 200, text);
      return Object.fromEntries(
        body.data.map(
          ({
            model,
            source,
            margins: [one],
          }: {
            model: string;
            source: string;
            margins: Line[];
          }) => [
            model,
            [
              source,
              (one as unknown as { list: string }).list,
              (one as unknown as { sold: string }).sold,
            ],
          ],
        ),
      );
    };
    assert.deepEqual(await read(`account=${accountId}`), {
      atlas: ['account', '1.0000', '0.7500'],
      vectors: ['plan', '1.0000', '0.5000'],
      tiered: ['plan', '1.0000', '0.8000'],
      rpc: ['plan', '0.000001', '0.0000008'],
    });
    assert.deepEqual((await read('plan=gold'))['atlas'], ['plan', '1.0000', '0.8000']);
    const missing = await call(bench.farebox, '/admin/prices?account=nobody', { secret: operator });
    assert.equal(missing.status, 404);
  });

  test('prices below the cost of the supplier are found for plans and accounts', async () => {
    const { accountId } = await customer({ prices: { discountPercent: 50 } });
    const { app, config } = bench.farebox;
    const { catalog, stores } = app;
    const search = lossSearch({ catalog, stores, config: { current: config } });
    const losses = await search();
    assert.equal(await search(), losses, 'nothing has changed');
    const found = losses.map(({ customer: name, model }) => `${name} ${model}`);
    assert.ok(found.includes('plan:gold tiered'), found.join());
    assert.ok(found.includes(`${accountId} tiered`), found.join());
    assert.ok(!found.some((one) => one.startsWith('plan:paid')), found.join());
  });

  test('prices that fit no model, and plans that do not exist, are rejected', async () => {
    const { accountId } = await bench.farebox.account('1');
    const cases: readonly [body: unknown, message: RegExp][] = [
      [{ plan: 'platinum' }, /There is no plan "platinum"; the plans are paid, .*gold/],
      [{ prices: { models: { nothing: { discountPercent: 1 } } } }, /There is no such model/],
      [{ prices: { models: { atlas: { price: { input: 1 } } } } }, /needs .*output/],
      [{ prices: { kinds: { video: { price: { input: 1 } } } } }, /videoPricing/],
      [{ prices: { discountPercent: 120 } }, /percentage from 0 to 100/],
    ];
    for (const [body, message] of cases) {
      const path = `/admin/accounts/${accountId}`;
      const refused = await call(bench.farebox, path, { method: 'PATCH', body, secret: operator });
      assert.equal(refused.status, 400, refused.text);
      assert.match(refused.text.replaceAll('\\"', '"'), message);
    }
  });
});
