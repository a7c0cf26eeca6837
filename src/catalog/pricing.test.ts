import assert from 'node:assert/strict';
import { test } from 'node:test';

import fc from 'fast-check';

import type { PriceSettings } from '../config/config.ts';
import { Fault } from '../core/faults.ts';
import { nano, usdToNano } from '../core/money.ts';
import { stillClock } from '../../test/support/still-clock.ts';
import { compileBatchPrice, compilePrice, scaledRow, soldTier } from './compile-price.ts';
import {
  boundFor,
  chargeFor,
  highestImagePrice,
  imagePrice,
  outputTokensAffordable,
  requireBatchPrice,
  requirePrice,
  surcharge,
  tokenLines,
  unpricedKinds,
} from './pricing.ts';

const FULL = {
  input: '0.30',
  output: '1.20',
  cacheInput: '0.06',
  cacheWrite: '0.375',
  extended: { above: 32_000, input: '0.60', output: '1.80', cacheInput: '0.12' },
} satisfies PriceSettings;

test('a charge is the sum of tokens by kind times their price', () => {
  const price = compilePrice(FULL);
  const usage = {
    promptTokens: 1_000,
    cachedTokens: 600,
    cacheWriteTokens: 100,
    completionTokens: 50,
  };
  // 300 × 0.30 + 600 × 0.06 + 100 × 0.375 + 50 × 1.20 = 223.5 USD per million, in nano.
  assert.equal(chargeFor(usage, price), 223_500n);
});

test('extended prices apply to the whole request above the threshold', () => {
  const price = compilePrice(FULL);
  assert.equal(chargeFor({ promptTokens: 32_000, completionTokens: 10 }, price), 9_612_000n);
  assert.equal(chargeFor({ promptTokens: 32_001, completionTokens: 10 }, price), 19_218_600n);
  // Cache writes have no extended price here: the ordinary price applies.
  assert.equal(
    chargeFor({ promptTokens: 32_001, cachedTokens: 1, cacheWriteTokens: 32_000 }, price),
    12_000_120n,
  );
});

test('a charge is rounded once, half up', () => {
  const price = compilePrice({ input: '0.0005', output: '0' });
  assert.equal(chargeFor({ promptTokens: 1 }, price), 1n, '0.5 nano');
  assert.equal(chargeFor({ promptTokens: 3 }, price), 2n, '1.5 nano');
  const below = compilePrice({ input: '0.000499999', output: '0' });
  assert.equal(chargeFor({ promptTokens: 1 }, below), 0n);
  assert.equal(chargeFor({ promptTokens: 3 }, below), 1n);
});

test('units have their own prices', () => {
  assert.equal(chargeFor({ images: 2 }, compilePrice({ perImage: '0.03' })), 60_000_000n);
  assert.equal(chargeFor({ audioMs: 1_500 }, compilePrice({ perSecond: '0.0001' })), 150_000n);
  assert.equal(chargeFor({ audioMs: 1 }, compilePrice({ perSecond: '0.000000001' })), 0n);
  const price = compilePrice({ input: '1', output: '1', perRequest: '0.001' });
  const searches = surcharge(2, nano(10_000_000));
  assert.equal(chargeFor({ promptTokens: 1, surcharges: searches }, price), 21_001_000n);
});

test('characters and searches have prices of their own', () => {
  const spoken = compilePrice({ perMillionCharacters: '15' });
  assert.equal(chargeFor({ characters: 333 }, spoken), 4_995_000n);
  const ranked = compilePrice({ perSearch: '0.002', perRequest: '0.001' });
  assert.equal(chargeFor({ searches: 3 }, ranked), 7_000_000n);
});

test('the first matching image rate applies, and no image costs more than its bound', () => {
  const size = fc.constantFrom('64x64', '1024x1024', undefined);
  const quality = fc.constantFrom('low', 'high', undefined);
  const rate = fc.record({ size, quality, perImage: fc.constantFrom('0.01', '0.02', '0.05') });
  fc.assert(
    fc.property(fc.array(rate, { maxLength: 5 }), size, quality, size, quality, (...of) => {
      const [imageRates, askedSize, askedQuality, madeSize, madeQuality] = of;
      const price = compilePrice({ perImage: '0.03', imageRates });
      const asked = { size: askedSize, quality: askedQuality };
      const made = { size: askedSize ?? madeSize, quality: askedQuality ?? madeQuality };
      assert.ok(imagePrice(made, price) <= highestImagePrice(asked, price));
      const first = imageRates.find(
        (one) =>
          (one.size ?? made.size) === made.size && (one.quality ?? made.quality) === made.quality,
      );
      const expected = Number(first?.perImage ?? '0.03') * 1e9;
      assert.equal(imagePrice(made, price), BigInt(Math.round(expected)));
    }),
  );
  const versions = [
    ['0.01', '0.02'],
    ['0.02', '0.01'],
  ].map(
    ([low = '', high = '']) =>
      compilePrice({
        perImage: '1',
        imageRates: [
          { quality: 'low', perImage: low },
          { quality: 'high', perImage: high },
        ],
      }).version,
  );
  assert.notEqual(versions[0], versions[1]);
});

test('a free row charges nothing, and a missing row is not sold', () => {
  const free = compilePrice({ input: '0', output: '0' });
  assert.equal(chargeFor({ promptTokens: 1_000, completionTokens: 1_000 }, free), 0n);
  assert.equal(
    outputTokensAffordable(nano(0), { promptTokens: 1_000 }, free),
    Number.MAX_SAFE_INTEGER,
  );
  assert.throws(() => requirePrice({ id: 'm', price: undefined }), refusal(/"m" has no price/));
});

test('work without a price is rejected', () => {
  const image = compilePrice({ perImage: '0.03' });
  assert.throws(() => chargeFor({ promptTokens: 1 }, image), refusal(/no price for tokens/));
  const embedding = compilePrice({ input: '0.01' });
  assert.equal(chargeFor({ promptTokens: 100 }, embedding), 1_000n);
  assert.throws(() => chargeFor({ completionTokens: 1 }, embedding), refusal(/for output/));
  assert.throws(() => boundFor({ maxOutputTokens: 1 }, embedding), refusal(/for output/));
  assert.equal(boundFor({ promptTokens: 100 }, embedding), 1_000n);
  assert.throws(() => chargeFor({ images: 1 }, embedding), refusal(/for images/));
});

function refusal(message: RegExp) {
  return (error: unknown) => error instanceof Fault && message.test(error.message);
}

test('equal rows have one version, and a changed price has another', () => {
  const version = (row: PriceSettings) => compilePrice(row).version;
  assert.match(version(FULL), /^[0-9a-f]{12}$/);
  assert.equal(
    version({ output: '1.2', input: '0.3' }),
    version({ input: '0.30', output: '12e-1' }),
  );
  assert.notEqual(
    version({ input: '0.3', output: '1.2' }),
    version({ input: '0.3', output: '1.3' }),
  );
  const longer = { ...FULL, extended: { ...FULL.extended, above: 32_001 } };
  assert.notEqual(version(FULL), version(longer));
});

const usd = fc.oneof(
  fc.constant('0'),
  fc.integer({ min: 0, max: 300 }).map(String),
  fc.integer({ min: 0, max: 999_999_999 }).map((n) => `0.${String(n).padStart(9, '0')}`),
);
const optionalUsd = fc.option(usd, { nil: undefined });

const rates = {
  input: usd,
  output: usd,
  cacheInput: optionalUsd,
  cacheWrite: optionalUsd,
  cacheWrite1h: optionalUsd,
  audioInput: optionalUsd,
  imageInput: optionalUsd,
  reasoning: optionalUsd,
  audioOutput: optionalUsd,
  imageOutput: optionalUsd,
};
const priceRow = fc.record({
  ...rates,
  perRequest: optionalUsd,
  extended: fc.option(
    fc.uniqueArray(fc.record({ above: fc.integer({ min: 1, max: 5_000 }), ...rates }), {
      minLength: 1,
      maxLength: 3,
      selector: ({ above }) => above,
    }),
    { nil: undefined },
  ),
});

const usageWithin = fc
  .record({
    promptBound: fc.integer({ min: 0, max: 10_000 }),
    maxOutputTokens: fc.integer({ min: 0, max: 10_000 }),
    choices: fc.integer({ min: 1, max: 8 }),
    surcharges: fc.integer({ min: 0, max: 100_000_000 }).map((n) => nano(n)),
    shares: fc.tuple(
      ...Array.from({ length: 10 }, () => fc.double({ min: 0, max: 1, noNaN: true })),
    ),
    hasDetail: fc.boolean(),
  })
  .map(({ promptBound, maxOutputTokens, choices, surcharges, shares, hasDetail }) => {
    const [promptShare = 0, outputShare = 0, cachedShare = 0, writtenShare = 0, ...rest] = shares;
    const [hourShare = 0, audioShare = 0, imageShare = 0, ...ofOutput] = rest;
    const [spokenShare = 0, thoughtShare = 0, drawnShare = 0] = ofOutput;
    const promptTokens = Math.round(promptBound * promptShare);
    const cachedTokens = Math.round(promptTokens * cachedShare);
    const cacheWriteTokens = Math.round((promptTokens - cachedTokens) * writtenShare);
    const completionTokens = Math.round(maxOutputTokens * choices * outputShare);
    const others = promptTokens - cachedTokens - cacheWriteTokens;
    const audioInput = Math.round(others * audioShare);
    const audioOutput = hasDetail ? Math.round(completionTokens * spokenShare) : 0;
    const imageOutput = hasDetail ? Math.round((completionTokens - audioOutput) * drawnShare) : 0;
    const detail = {
      cacheWrite1h: Math.round(cacheWriteTokens * hourShare),
      audioInput,
      imageInput: Math.round((others - audioInput) * imageShare),
      audioOutput,
      imageOutput,
    };
    return {
      bound: { promptTokens: promptBound, maxOutputTokens, choices, surcharges },
      usage: {
        promptTokens,
        cachedTokens,
        cacheWriteTokens,
        completionTokens,
        reasoningTokens: Math.round((completionTokens - audioOutput - imageOutput) * thoughtShare),
        detail: hasDetail ? detail : undefined,
        surcharges,
      },
    };
  });

test('a usage within its bounds is never charged more than the bound', () => {
  fc.assert(
    fc.property(priceRow, usageWithin, (row, { bound, usage }) => {
      const price = compilePrice(row);
      assert.ok(chargeFor(usage, price) <= boundFor(bound, price));
    }),
    { numRuns: 2_000 },
  );
});

test('the affordable output is the largest whose bound fits the grant', () => {
  fc.assert(
    fc.property(
      priceRow,
      usageWithin,
      fc.bigInt({ min: 0n, max: 10_000_000_000n }),
      (row, { bound }, granted) => {
        const price = compilePrice(row);
        const tokens = outputTokensAffordable(nano(granted), bound, price);
        const cost = (maxOutputTokens: number) => boundFor({ ...bound, maxOutputTokens }, price);
        if (tokens === undefined) {
          assert.ok(cost(0) > granted);
          return;
        }
        assert.ok(cost(Math.min(tokens, 1e12)) <= granted);
        if (tokens < 1e12) assert.ok(cost(tokens + 1) > granted);
      },
    ),
    { numRuns: 2_000 },
  );
});

test('a scaled row scales every amount half up, except sizes and third-party searches', () => {
  const row: PriceSettings = {
    input: '0.000000001',
    output: '1.5',
    perSearch: '0.01',
    extended: { above: 1_000, input: '2', output: '4.1' },
    imageRates: [{ size: '1024x1024', quality: 'high', perImage: '0.08' }],
  };
  const half = {
    input: '0.000000001',
    output: '0.7500',
    perSearch: '0.01',
    extended: { above: 1_000, input: '1.0000', output: '2.0500' },
    imageRates: [{ size: '1024x1024', quality: 'high', perImage: '0.0400' }],
  };
  assert.deepEqual(scaledRow(row, '0.5', 'text'), half);
  assert.deepEqual(scaledRow(row, '0.5', 'rerank'), { ...half, perSearch: '0.0050' });
  assert.notEqual(compilePrice(half).version, compilePrice(row).version);
});

test('a model without batch support is rejected in batches and sold elsewhere', () => {
  const price = compilePrice({ input: '1' });
  const model = { id: 'm', price, batchPrice: undefined };
  assert.equal(requirePrice(model), price);
  assert.throws(() => requireBatchPrice(model), { code: 'MODEL_NOT_ALLOWED' });
  assert.throws(() => requireBatchPrice({ ...model, price: undefined }), { code: 'MODEL_OFFLINE' });
});

type LongRow = { readonly above: number } & Partial<Record<RateName, string | undefined>>;
type RateName = keyof typeof rates;
const NO_DETAIL = { cacheWrite1h: 0, audioInput: 0, imageInput: 0, audioOutput: 0, imageOutput: 0 };

/** An independent sum: integers of 1e-15 USD from the digits of the row. */
function digits(usdText: string): bigint {
  const [whole = '0', fraction = ''] = usdText.split('.');
  return BigInt(whole + fraction.padEnd(9, '0'));
}

test('a charge is exact to the nano against rational arithmetic', () => {
  fc.assert(
    fc.property(priceRow, usageWithin, (row, { usage }) => {
      const long = (row.extended ?? [])
        .filter(({ above }) => usage.promptTokens > above)
        .reduce<LongRow | undefined>(
          (a, b) => (a === undefined || b.above > a.above ? b : a),
          undefined,
        );
      const own = (name: RateName) => long?.[name] ?? row[name];
      const input = long?.input ?? row.input;
      const output = long?.output ?? row.output;
      const write = own('cacheWrite') ?? input;
      const isInputHigher = digits(input) > digits(write);
      const { detail = NO_DETAIL } = usage;
      const { cacheWrite1h, audioInput, imageInput, audioOutput, imageOutput } = detail;
      const counts = [
        [cacheWrite1h, own('cacheWrite1h') ?? (isInputHigher ? input : write)],
        [usage.cacheWriteTokens - cacheWrite1h, write],
        [usage.cachedTokens, own('cacheInput') ?? input],
        [audioInput, own('audioInput') ?? input],
        [imageInput, own('imageInput') ?? input],
        [
          usage.promptTokens -
            usage.cachedTokens -
            usage.cacheWriteTokens -
            audioInput -
            imageInput,
          input,
        ],
        [audioOutput, own('audioOutput') ?? output],
        [usage.reasoningTokens, own('reasoning') ?? output],
        [imageOutput, own('imageOutput') ?? output],
        [usage.completionTokens - audioOutput - imageOutput - usage.reasoningTokens, output],
      ] as const;
      const tokens = counts.reduce((sum, [count, each]) => sum + BigInt(count) * digits(each), 0n);
      const femto = tokens + (digits(row.perRequest ?? '0') + usage.surcharges) * 1_000_000n;
      const exact = femto / 1_000_000n + (femto % 1_000_000n >= 500_000n ? 1n : 0n);
      assert.equal(chargeFor(usage, compilePrice(row)), exact);
    }),
    { numRuns: 2_000 },
  );
});

test('the lines of a usage have its tokens and its charge', () => {
  fc.assert(
    fc.property(priceRow, usageWithin, (row, { usage }) => {
      const price = compilePrice(row);
      const lines = tokenLines(usage, price);
      const count = lines.reduce((sum, line) => sum + line.count, 0n);
      assert.equal(count, BigInt(usage.promptTokens + usage.completionTokens));
      const { surcharges: _extra, ...tokens } = usage;
      const femto = lines.reduce((sum, line) => sum + line.count * line.rate, 0n);
      const fixed = usdToNano(row.perRequest ?? '0') * 1_000_000n;
      assert.equal(chargeFor(tokens, price), (femto + fixed + 500_000n) / 1_000_000n);
    }),
  );
});

test('a kind of tokens without a price of its own is named, and never free', () => {
  const price = compilePrice({ input: '3', output: '15', cacheWrite: '3.75' });
  const detail = { cacheWrite1h: 10, audioInput: 0, imageInput: 5, audioOutput: 1, imageOutput: 2 };
  const usage = { promptTokens: 20, cacheWriteTokens: 10, completionTokens: 3, detail };
  assert.deepEqual(unpricedKinds(usage, price), [
    'cacheWrite1h',
    'imageInput',
    'audioOutput',
    'imageOutput',
  ]);
  assert.equal(chargeFor(usage, price), 37_500n + 30_000n + 45_000n);
  const known = compilePrice({
    ...price.row,
    cacheWrite1h: '6',
    imageInput: '4',
    audioOutput: '60',
    imageOutput: '30',
  });
  assert.deepEqual(unpricedKinds(usage, known), []);
  assert.equal(chargeFor(usage, known), 60_000n + 20_000n + 15_000n + 60_000n + 60_000n);
});

test('the time of day and the service tier select the price', () => {
  const { clock, pass } = stillClock(Date.UTC(2026, 10, 21, 16, 29));
  const hour = 3_600_000;
  const price = compilePrice(
    {
      input: '2',
      output: '8',
      windows: [
        { from: '16:30', to: '00:30', factor: '0.5' },
        { from: '00:30', to: '01:00', input: '1.5' },
      ],
      serviceTiers: { priority: { factor: '2', output: '20' }, flex: { input: '1', output: '4' } },
    },
    { type: 'text', clock },
  );
  assert.equal(price.variants === undefined, false);
  const now = (tier?: 'flex' | 'priority') => {
    const { row } = price.variants?.now(tier) ?? price;
    return [Number(row.input), Number(row.output)];
  };
  assert.deepEqual(now(), [2, 8]);
  assert.deepEqual(now('priority'), [4, 20]);
  pass(hour / 60);
  assert.deepEqual(now(), [1, 4]);
  assert.deepEqual(now('priority'), [2, 20]);
  assert.deepEqual(now('flex'), [1, 4]);
  pass(8 * hour - 1);
  assert.deepEqual(now(), [1, 4]);
  pass(1);
  assert.deepEqual(now(), [1.5, 8]);
  pass(hour / 2);
  assert.deepEqual(now(), [2, 8]);
  assert.equal(soldTier(price, 'priority'), 'priority');
  assert.equal(soldTier(compilePrice({ input: '1' }), 'priority'), undefined);
});

test('a batch has the prices of its tier, or else the scaled ones, also within a window', () => {
  const { clock } = stillClock(Date.UTC(2026, 10, 21, 2));
  const options = { type: 'text', clock } as const;
  const settings = {
    input: '2',
    output: '8',
    windows: [{ from: '01:00', to: '03:00', input: '1' }],
  };
  const scaled = compileBatchPrice(settings, '0.5', options);
  assert.deepEqual([scaled.row.input, scaled.row.output], ['1.0000', '4.0000']);
  assert.equal(scaled.variants?.now(undefined).row.input, '0.5000');
  const tier = { batch: { input: '0.9' } };
  const own = compileBatchPrice({ ...settings, serviceTiers: tier }, '0.5', options);
  assert.deepEqual([own.row.input, own.row.output], ['0.9', '8']);
});
