/** Costs of suppliers: on receipts of operators, in their reports, and nowhere for callers. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { sharp } from '../support/sharp.ts';
import { usdToNano } from '../../src/core/money.ts';
import { call } from '../app/call.ts';
import { type ModelFixture, sendEvents, sendJson, startModelFixture } from './model-fixture.ts';

const MODELS = `
  - id: chatty
    type: text
    context: 65536
    maxCompletionTokens: 64
    price: { input: 6, output: 30, serviceTiers: { flex: { factor: 0.5 } } }
    replicas:
      - engine: studio
        model: big
        cost:
          { input: 3, output: 15, cacheInput: 0.3, reasoning: 12, perRequest: 0.000001, serviceTiers: { flex: { factor: 0.5 } } }
  - { id: own, type: text, context: 65536, price: { input: 1, output: 2 }, replicas: [{ engine: studio, model: own }] }
  - { id: embed, type: embedding, context: 512, embedding: { dimensions: 2 }, price: { input: 2 }, replicas: [{ engine: studio, cost: { input: 0.5 } }] }
  - { id: painter, type: image, price: { perImage: 0.04 }, replicas: [{ engine: studio, cost: { perImage: 0.02, imageRates: [{ size: 64x32, perImage: 0.03 }] } }] }
  - { id: speaker, type: tts, price: { perMillionCharacters: 15 }, replicas: [{ engine: studio, cost: { perMillionCharacters: 10 } }] }
  - { id: sorter, type: rerank, price: { perSearch: 0.002 }, replicas: [{ engine: studio, cost: { perSearch: 0.001 } }] }
`;
const USAGE = {
  prompt_tokens: 100,
  completion_tokens: 20,
  prompt_tokens_details: { cached_tokens: 40 },
  completion_tokens_details: { reasoning_tokens: 5 },
};
/** 60 × 3 + 40 × 0.3 + 5 × 12 + 15 × 15 USD per million, and 1,000 nano for the request. */
const CHAT_USD = '0.000478000';

describe('costs of suppliers', () => {
  let fixture: ModelFixture;
  let secret: string;
  let operator: string;
  let accountId: string;
  let tier: string | undefined;

  before(async () => {
    fixture = await startModelFixture(MODELS);
    const { engine, farebox } = fixture;
    operator = await farebox.key({ kind: 'ADMIN' });
    ({ secret, accountId } = await farebox.account('5'));
    engine.on('/chat/completions', ({ json }, response) => {
      const choice = { index: 0, finish_reason: 'stop' };
      const end = { usage: USAGE, ...(tier === undefined ? {} : { service_tier: tier }) };
      if (json.stream === true) {
        const choices = [{ ...choice, delta: { role: 'assistant', content: 'Hi' } }];
        return sendEvents(response, [{ choices }, { choices: [], ...end }]);
      }
      const choices = [{ ...choice, message: { role: 'assistant', content: 'Hi' } }];
      return sendJson(response, { object: 'chat.completion', choices, ...end });
    });
    const data = [{ object: 'embedding', index: 0, embedding: [0.5, 0.5] }];
    engine.onJson('/embeddings', {
      object: 'list',
      data,
      usage: { prompt_tokens: 8, total_tokens: 8 },
    });
    const color = { r: 1, g: 2, b: 3 };
    const image = await sharp({ create: { width: 64, height: 32, channels: 3, background: color } })
      .png()
      .toBuffer();
    engine.onJson('/images/generations', { data: [{ b64_json: image.toString('base64') }] });
    engine.onJson('/rerank', { results: [{ index: 0, relevance_score: 0.5 }] });
    engine.on('/audio/speech', (_heard, response) => {
      response.writeHead(200, { 'content-type': 'audio/pcm' }).end(Buffer.alloc(8_192, 1));
    });
  });
  after(() => fixture.stop());

  const messages = [{ role: 'user', content: 'Hello' }];

  async function sold(path: string, body: object) {
    const { farebox } = fixture;
    const sent = await call(farebox, path, { secret, body });
    assert.equal(sent.status, 200, `${path} ${sent.text}`);
    const id = sent.headers.get('x-request-id') ?? '';
    const own = await call(farebox, `/usage/${id}`, { secret });
    const seen = await call(farebox, `/admin/requests/${id}`, { secret: operator });
    assert.equal(seen.status, 200, seen.text);
    return { own, supplier: seen.body.data.supplier, receipt: own.body };
  }

  test('the cost of a chat has the prices of the replica for the same tokens', async () => {
    for (const stream of [false, true]) {
      const { supplier } = await sold('/chat/completions', { model: 'chatty', messages, stream });
      assert.equal(supplier.usd, CHAT_USD);
      assert.deepEqual(
        supplier.lines.map((line: { kind: string; quantity: number; usd: string }) => [
          line.kind,
          line.quantity,
          line.usd,
        ]),
        [
          ['input_tokens', 60, '0.00018'],
          ['cache_read_tokens', 40, '0.000012'],
          ['reasoning_tokens', 5, '0.00006'],
          ['output_tokens', 15, '0.000225'],
          ['request', 1, '0.000001'],
        ],
      );
    }
  });

  test('other kinds of work have their cost, and a replica without prices has none', async () => {
    const cases = [
      ['/embeddings', { model: 'embed', input: 'a longer text' }, '0.000004000'],
      ['/images/generations', { model: 'painter', prompt: 'sea' }, '0.030000000'],
      [
        '/audio/speech',
        { model: 'speaker', input: 'Good day', response_format: 'pcm' },
        '0.000080000',
      ],
      ['/rerank', { model: 'sorter', query: 'a', documents: ['b'] }, '0.001000000'],
      ['/chat/completions', { model: 'own', messages }, undefined],
    ] as const;
    for (const [path, body, usd] of cases) {
      assert.equal((await sold(path, body)).supplier?.usd, usd, path);
    }
  });

  test('a flex request has the price of the tier that the engine reports, at most its hold', async () => {
    const body = { model: 'chatty', messages, service_tier: 'flex', max_completion_tokens: 20 };
    for (const [reported, usd, costUsd] of [
      ['flex', 0.0006, '0.000239000'],
      [undefined, 0.0006, '0.000239000'],
      ['default', 0.0012, CHAT_USD],
    ] as const) {
      tier = reported;
      const { receipt, supplier } = await sold('/chat/completions', body);
      assert.ok(receipt.reserved < 0.0012, String(receipt.reserved));
      assert.equal(receipt.cost.usd, Math.min(usd, receipt.reserved));
      assert.equal(supplier.usd, costUsd);
    }
    tier = undefined;
  });

  test('a caller never receives the cost of a supplier', async () => {
    const { farebox } = fixture;
    await sold('/chat/completions', { model: 'chatty', messages });
    const { receipt } = await sold('/embeddings', { model: 'embed', input: 'a' });
    const admin = await farebox.key({ accountId, kind: 'ADMIN' });
    const paths = [
      `/usage/${receipt.requestId}`,
      `/usage/${receipt.requestId}/signed`,
      '/usage',
      '/usage?format=csv',
      '/usage/requests',
      '/usage/requests?format=csv',
      '/usage/days',
      '/models',
      '/models/chatty',
      '/billing/statement',
    ];
    for (const path of paths) {
      const { status, text } = await call(farebox, path, { secret: admin });
      assert.equal(status, 200, path);
      assert.doesNotMatch(text, /supplier|cost_?nano|margin|0\.000478/i, path);
    }
    for (const path of ['/admin/usage', '/admin/revenue', '/admin/requests', '/admin/books']) {
      assert.equal((await call(farebox, path, { secret: admin })).status, 403, path);
    }
  });

  test('usage and revenue have cost and margin by model and engine, and the books have the same sum', async () => {
    const { farebox } = fixture;
    const read = async (path: string) => {
      const { status, body, text } = await call(farebox, path, { secret: operator });
      assert.equal(status, 200, text);
      return body;
    };
    const models = await read('/admin/usage?by=model');
    const engines = await read('/admin/usage?by=engine');
    const days = await read('/admin/revenue?by=engine');
    const own = models.data.find(({ model }: { model: string }) => model === 'own');
    assert.deepEqual([own.supplierUsd, own.marginUsd, own.uncostedRequests], [null, null, 1]);
    const [studio] = engines.data;
    assert.equal(studio.engine, 'studio');
    assert.equal(studio.uncostedRequests, 1);
    const nanoOf = (usd: string | null) => usdToNano(usd ?? '0');
    const sum = models.data.reduce(
      (total: bigint, row: { supplierUsd: string | null }) => total + nanoOf(row.supplierUsd),
      0n,
    );
    assert.equal(nanoOf(studio.supplierUsd), sum);
    assert.equal(nanoOf(studio.usd) - sum, nanoOf(studio.marginUsd));
    assert.deepEqual(
      [days.data[0].engine, days.data[0].supplierUsd, days.totals.supplierUsd],
      ['studio', studio.supplierUsd, studio.supplierUsd],
    );
    const accounts = await read('/admin/usage?by=account');
    assert.deepEqual(
      [accounts.data[0].accountId, accounts.data[0].accountName],
      [accountId, 'test'],
    );
    assert.deepEqual((await read('/admin/usage?by=model&engine=none')).data, []);
    const tags = await call(farebox, '/admin/usage?by=tag&engine=studio', { secret: operator });
    assert.equal(tags.status, 400);
    const csv = await call(farebox, '/admin/usage?by=engine&format=csv', { secret: operator });
    assert.match(
      csv.text,
      new RegExp(`,studio,${studio.supplierUsd},${studio.marginUsd},1\\r\\n$`),
    );

    const books = await read('/admin/books');
    const cost = books.sums.find(({ kind }: { kind: string }) => kind === 'SUPPLIER_COST');
    assert.deepEqual([cost.debit, cost.credit], ['house:supplier-cost', 'house:supplier:studio']);
    assert.equal(nanoOf(cost.usd), sum);
    const beancount = await call(farebox, '/admin/books?format=beancount', { secret: operator });
    assert.match(
      beancount.text,
      /Expenses:Supplier-Cost {2}(\d+\.\d{9}) USD\n {2}Liabilities:Supplier:Studio {2}-\1 USD/,
    );
    assert.match(beancount.text, /open Liabilities:Supplier:Studio USD/);
  });

  test('the list of requests has the cost of each, also as CSV', async () => {
    const { farebox } = fixture;
    const path = `/admin/requests?account=${accountId}&model=chatty`;
    const { body } = await call(farebox, path, { secret: operator });
    const costs = body.data.map((one: { supplierUsd: string }) => one.supplierUsd);
    assert.ok(costs.includes(CHAT_USD));
    const { text } = await call(farebox, `${path}&format=csv`, { secret: operator });
    assert.match(text, /^account_id,.*,supplier_usd\r\n/);
    assert.match(text, new RegExp(`\\r\\n${accountId},.*,${CHAT_USD}\\r\\n`));
  });
});
