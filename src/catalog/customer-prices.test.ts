import assert from 'node:assert/strict';
import { test } from 'node:test';

import fc from 'fast-check';

import { stillClock } from '../../test/support/still-clock.ts';
import { type CallerPrices, PriceRules, creditPrice, loadConfig } from '../config/config.ts';
import { divideHalfUp, usdToNano } from '../core/money.ts';
import { Catalog, soldModel } from './catalog.ts';
import { pricesFor } from './margins.ts';
import { type Usage, boundFor, chargeFor, imagePrice } from './pricing.ts';

const YAML = `
engines: { rack: { url: http://127.0.0.1:1/v1 } }
batches: { priceFactor: 0.5 }
models:
  - id: text
    context: 65536
    price: { input: 2, output: 4, cacheInput: 0.5, perSearch: 0.01, extended: { above: 1000, input: 4, output: 8 }, windows: [{ from: "10:00", to: "12:00", factor: 0.5 }], serviceTiers: { priority: { factor: 2 } } }
    replicas: [{ engine: rack, cost: { input: 1.9, output: 2 } }]
  - { id: other, context: 65536, price: { input: 2, output: 4 }, replicas: [{ engine: rack }] }
  - { id: embedding, type: embedding, embedding: { dimensions: 8 }, price: { input: 2 }, replicas: [{ engine: rack }] }
  - { id: image, type: image, price: { perImage: 0.04, imageRates: [{ size: 512x512, perImage: 0.02 }] }, replicas: [{ engine: rack }] }
  - { id: asr, type: asr, price: { perSecond: 0.0002 }, replicas: [{ engine: rack }] }
  - { id: tts, type: tts, price: { perMillionCharacters: 10 }, replicas: [{ engine: rack }] }
  - { id: rerank, type: rerank, price: { perSearch: 0.002 }, replicas: [{ engine: rack }] }
  - { id: moderation, type: moderation, price: { perRequest: 0.001 }, replicas: [{ engine: rack }] }
  - id: video
    type: video
    video: { task: text-to-video, durations: [5s], resolutions: [720p], pricing: { kind: duration-resolution, rates: { 720p: { silent: 0.1, sound: 0.2 } } } }
    replicas: [{ engine: rack }]
`;

async function opened({ clock } = stillClock(Date.UTC(2026, 10, 28, 13))) {
  const result = await loadConfig({ env: {}, cwd: '/srv', readFile: async () => YAML });
  assert.ok(result.ok, JSON.stringify(result));
  return { catalog: new Catalog({ settings: result.config, clock }), config: result.config };
}

function rules(account: unknown, plan?: unknown): CallerPrices {
  const parsed = (given: unknown) => (given === undefined ? undefined : PriceRules.parse(given));
  return { account: parsed(account), plan: parsed(plan) };
}

/** The charge of one unit of each kind, in nano-USD. */
const UNITS: Readonly<Record<string, Usage>> = {
  text: { promptTokens: 1_000 },
  other: { promptTokens: 1_000 },
  embedding: { promptTokens: 1_000 },
  asr: { audioMs: 1_000 },
  tts: { characters: 100 },
  rerank: { searches: 1 },
  moderation: {},
};

test('each rule sets the prices of its kind or model, the most specific one of the account first', async () => {
  const { catalog } = await opened();
  const list = {
    text: 2_000_000n,
    other: 2_000_000n,
    embedding: 2_000_000n,
    image: 40_000_000n,
    asr: 200_000n,
    tts: 1_000_000n,
    rerank: 2_000_000n,
    moderation: 1_000_000n,
    credit: 625n,
  };
  const halved = Object.fromEntries(
    Object.entries(list).map(([kind, nano]) => [kind, divideHalfUp(nano, 2n)]),
  );
  const cases: readonly [name: string, prices: CallerPrices, expected: object][] = [
    ['no rule', rules(undefined), list],
    ['a discount of an account', rules({ discountPercent: 50 }), halved],
    ['a discount of a plan', rules(undefined, { discountPercent: '50' }), halved],
    [
      'a discount on one kind',
      rules({ kinds: { embedding: { discountPercent: 12.5 } } }),
      { ...list, embedding: 1_750_000n },
    ],
    [
      'a price list of one kind',
      rules({ kinds: { text: { price: { input: 1, output: 1 } } } }),
      { ...list, text: 1_000_000n, other: 1_000_000n },
    ],
    [
      'a model before its kind, and a kind before the discount',
      rules({
        discountPercent: 50,
        kinds: { text: { discountPercent: 25 } },
        models: { other: { price: { input: 1, output: 1 } } },
        rpc: { usdPerCredit: '0.0000005' },
      }),
      { ...halved, text: 1_500_000n, other: 1_000_000n, credit: 500n },
    ],
    [
      'the account before the plan',
      rules(
        { kinds: { image: { discountPercent: 100 } } },
        {
          discountPercent: 50,
          models: { image: { discountPercent: 10 } },
          rpc: { discountPercent: 20 },
        },
      ),
      { ...halved, image: 0n, credit: 500n },
    ],
  ];
  for (const [name, prices, expected] of cases) {
    const found: Record<string, bigint> = {};
    for (const [id, usage] of Object.entries(UNITS)) {
      const { price } = soldModel(catalog.get(id)!, prices);
      found[id] = chargeFor(usage, price!);
    }
    found['image'] = imagePrice(
      { size: '1024x1024' },
      soldModel(catalog.get('image')!, prices).price!,
    );
    found['credit'] = creditPrice(prices, 625n);
    assert.deepEqual(found, expected, name);
  }
});

test('a discount applies to steps, tiers, windows, caches, batches, sizes and videos, not to searches', async () => {
  const still = stillClock(Date.UTC(2026, 10, 28, 9, 59));
  const { catalog } = await opened(still);
  const { price, batchPrice } = soldModel(catalog.get('text')!, rules({ discountPercent: 10 }));
  const at = (usage: Usage, tier?: 'priority') => chargeFor(usage, price!.variants!.now(tier));
  assert.equal(at({ promptTokens: 1_000 }), 1_800_000n);
  assert.equal(at({ promptTokens: 1_001 }), 3_603_600n, 'a step');
  assert.equal(at({ promptTokens: 1_000, cachedTokens: 1_000 }), 450_000n, 'a cache');
  assert.equal(at({ promptTokens: 1_000 }, 'priority'), 3_600_000n, 'a tier');
  still.pass(2 * 60_000);
  assert.equal(at({ promptTokens: 1_000 }), 900_000n, 'a window');
  assert.equal(chargeFor({ promptTokens: 1_000 }, batchPrice!), 900_000n, 'a batch');
  assert.equal(price?.perSearch, 10_000_000n);
  assert.equal(price?.variants?.now(undefined).list?.row.input, '1.0000', 'the list price of then');
  const image = soldModel(catalog.get('image')!, rules({ discountPercent: 10 }));
  assert.equal(imagePrice({ size: '512x512' }, image.price!), 18_000_000n);
  const video = soldModel(catalog.get('video')!, rules({ discountPercent: 10 }));
  assert.deepEqual(video.video?.pricing, {
    kind: 'duration-resolution',
    rates: { '720p': { silent: '0.0900', sound: '0.1800' } },
  });
});

test('prices are compiled once for a list and a model', async () => {
  const { catalog } = await opened();
  const prices = rules({ discountPercent: 10 });
  const model = catalog.get('text')!;
  const sold = model.customers.modelFor(model, prices);
  assert.equal(model.customers.modelFor(model, prices), sold);
  const { version } = sold.price!;
  assert.notEqual(version, model.price!.version);
  assert.equal(catalog.customers.priceOf(version), sold.price);
});

test('the operator sees list price, sold price, cost and margin of a customer', async () => {
  const { catalog } = await opened();
  const prices = rules({ discountPercent: 10 });
  const { source, lines } = pricesFor(catalog.get('text')!, prices);
  assert.equal(source, 'account');
  const line = lines.find(({ kind, tier, above, from }) => {
    return kind === 'input' && tier === undefined && above === 0 && from === '12:00';
  });
  assert.deepEqual(
    [line?.list, line?.sold, line?.cost, line?.percent],
    ['2.0000', '1.8000', '1.9000', -5.5],
  );
  const [unit] = pricesFor(catalog.get('asr')!, prices).lines;
  assert.deepEqual([unit?.list, unit?.sold, unit?.cost], ['0.0002', '0.00018', null]);
  const videos = pricesFor(catalog.get('video')!, prices).lines;
  assert.deepEqual(
    videos.map(({ kind, list, sold }) => [kind, list, sold]),
    [
      ['rates.720p.silent', '0.1000', '0.0900'],
      ['rates.720p.sound', '0.2000', '0.1800'],
    ],
  );
});

test('a charge equals the usage at the discounted prices, and no hold is below it', async () => {
  const { catalog } = await opened();
  const model = catalog.get('other')!;
  const parameters = fc.record({
    percent: fc.integer({ min: 0, max: 1_000_000 }).map((n) => (n / 10_000).toFixed(4)),
    prompt: fc.nat(60_000),
    completion: fc.nat(60_000),
  });
  fc.assert(
    fc.property(parameters, ({ percent, prompt, completion }) => {
      const { price } = soldModel(model, rules({ discountPercent: percent }));
      const factor = 1_000_000n - BigInt(percent.replace('.', ''));
      const rate = (listUsd: string) => divideHalfUp(usdToNano(listUsd) * factor, 1_000_000n);
      const expected = divideHalfUp(
        BigInt(prompt) * rate('2') + BigInt(completion) * rate('4'),
        1_000_000n,
      );
      const charge = chargeFor({ promptTokens: prompt, completionTokens: completion }, price!);
      assert.equal(charge, expected);
      const bound = { promptTokens: prompt, maxOutputTokens: completion };
      assert.ok(boundFor(bound, price!) >= charge);
    }),
    { examples: [[{ percent: '100.0000', prompt: 1, completion: 1 }]] },
  );
});

test('invalid price rules are rejected', () => {
  const invalid: readonly unknown[] = [
    { discountPercent: -1 },
    { discountPercent: 101 },
    { discountPercent: '12.34567' },
    { models: { text: {} } },
    { models: { text: { discountPercent: 1, price: { input: 1, output: 1 } } } },
    { kinds: { unknown: { discountPercent: 1 } } },
    { rpc: { discountPercent: 1, usdPerCredit: 1 } },
    { rpc: {} },
    { discount: 5 },
  ];
  for (const one of invalid) {
    assert.equal(PriceRules.safeParse(one).success, false, JSON.stringify(one));
  }
});
