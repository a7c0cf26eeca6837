import assert from 'node:assert/strict';
import { test } from 'node:test';

import { loadConfig } from '../config/config.ts';
import { Fault, type FaultCode } from '../core/faults.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { Catalog, type DiscoveredModel, type KeyLimits } from './catalog.ts';

const PRICE = 'price: { input: 0.3, output: 1.2 }';

const YAML = `
engines: { rack: { url: http://127.0.0.1:1/v1 } }
models:
  - { id: atlas-24b, context: 65536, ${PRICE}, aliases: [gpt-4o], replicas: [{ engine: rack }] }
  - id: Meta/Llama-3.1_8B
    context: 8192
    capabilities: [functionCalling, optimizedForCode]
    privacy: anonymized
    requires: pro
    ${PRICE}
    replicas: [{ engine: rack, model: llama, weight: 3 }]
  - id: embed
    type: embedding
    aliases: [text-embedding-3-small]
    embedding: { dimensions: 768, customDimensions: true }
    price: { input: 0.01 }
    replicas: [{ engine: rack }]
`;

async function settings(yaml: string) {
  const result = await loadConfig({ env: {}, cwd: '/srv', readFile: async () => yaml });
  assert.ok(result.ok, JSON.stringify(result));
  return result.config;
}

async function catalogOf(yaml: string, clock = new TestClock()) {
  return new Catalog({ settings: await settings(yaml), clock });
}

const REASONS: Partial<Record<FaultCode, string>> = {
  MODEL_NOT_FOUND: 'unknown',
  INVALID_MODEL: 'wrong-type',
  MODEL_RETIRED: 'retired',
};

function found(catalog: Catalog, name: string, type: 'text' | 'embedding' = 'text') {
  try {
    const { model, via } = catalog.require(name, type);
    return `${model.id} by ${via}`;
  } catch (error) {
    if (error instanceof Fault) return REASONS[error.code] ?? error.code;
    throw error;
  }
}

function code(work: () => unknown): FaultCode | 'none' {
  try {
    work();
    return 'none';
  } catch (error) {
    if (error instanceof Fault) return error.code;
    throw error;
  }
}

function body(buffer: Buffer) {
  return JSON.parse(buffer.toString());
}

const DEMO: DiscoveredModel = {
  id: 'farebox-demo',
  type: 'text',
  origin: 'demo',
  context: 2048,
  replicas: [{ engine: 'embedded', model: 'demo' }],
};
const DOWNLOADED: DiscoveredModel = { ...DEMO, id: 'qwen3-0.6b', origin: 'downloaded' };
const FOUND: DiscoveredModel = {
  ...DEMO,
  id: 'llama3:70b',
  origin: 'discovered',
  replicas: [{ engine: 'ollama', model: 'llama3:70b' }],
};

test('a model is found by id, trait, alias and tolerant spellings', async () => {
  const catalog = await catalogOf(YAML);
  assert.equal(found(catalog, 'atlas-24b'), 'atlas-24b by id');
  assert.equal(found(catalog, 'default'), 'atlas-24b by trait');
  assert.equal(found(catalog, 'gpt-4o'), 'atlas-24b by alias');
  assert.equal(found(catalog, 'embed', 'embedding'), 'embed by id');
  assert.equal(found(catalog, 'default', 'embedding'), 'embed by trait');
  for (const name of [
    'ATLAS-24B',
    'atlas.24b',
    'atlas_24b',
    'atlas 24b',
    'svc-atlas-24b',
    'acme/atlas-24b',
    'openai/gpt-4o',
    'GPT 4o',
    'acme/svc-atlas-24b',
    'Default',
  ]) {
    assert.equal(found(catalog, name), 'atlas-24b by tolerant', name);
  }
  for (const name of ['meta/llama-3.1-8b', 'llama-3.1-8b', 'svc-llama-3-1-8b']) {
    assert.equal(found(catalog, name), 'Meta/Llama-3.1_8B by tolerant', name);
  }
});

test('feature suffixes of a name are removed and decoded', async () => {
  const catalog = await catalogOf(YAML);
  catalog.setDiscovered([FOUND]);
  const resolved = catalog.require(
    'gpt-4o:enable_web_search=on&character_slug=a%20b&odd=%&flag',
    'text',
  );
  assert.equal(resolved.model.id, 'atlas-24b');
  assert.deepEqual(resolved.suffixes, { enable_web_search: 'on', character_slug: 'a b', odd: '%' });
  const colon = catalog.require('llama3:70b:strip_thinking_response=true', 'text');
  assert.equal(colon.model.id, 'llama3:70b');
  assert.deepEqual(colon.suffixes, { strip_thinking_response: 'true' });
  assert.equal(catalog.require('llama3:70b', 'text').suffixes, undefined);
});

test('an unknown name returns 404 with the nearest id, a wrong type 400, a missing engine 503', async () => {
  const catalog = await catalogOf(YAML + `  - { id: idle, context: 8, ${PRICE} }\n`);
  assert.throws(() => catalog.require('atlsa-24b', 'text'), {
    code: 'MODEL_NOT_FOUND',
    message: 'The model "atlsa-24b" does not exist; did you mean "atlas-24b"?',
  });
  assert.throws(() => catalog.require('zzzzzz', 'text'), {
    message: 'The model "zzzzzz" does not exist; see GET /models',
  });
  assert.throws(() => catalog.require('embed', 'text'), {
    code: 'INVALID_MODEL',
    message: 'The model "embed" is of type embedding, and this endpoint accepts text models',
  });
  assert.equal(
    code(() => catalog.require('idle', 'text')),
    'MODEL_OFFLINE',
  );
  assert.equal(
    code(() => catalog.require('x'.repeat(100_000), 'text')),
    'MODEL_NOT_FOUND',
  );
  assert.equal(
    code(() => catalog.require('', 'text')),
    'MODEL_NOT_FOUND',
  );
});

test('the default trait moves to the better model unless the operator assigned it', async () => {
  const catalog = await catalogOf('');
  const holder = () => catalog.holderOf('default', 'text')?.id;
  assert.equal(holder(), undefined);
  catalog.setDiscovered([DEMO]);
  assert.equal(holder(), 'farebox-demo');
  catalog.setDiscovered([DEMO, DOWNLOADED]);
  assert.equal(holder(), 'qwen3-0.6b');
  catalog.setDiscovered([DEMO, DOWNLOADED, FOUND]);
  assert.equal(holder(), 'llama3:70b');
  catalog.configure(await settings(YAML));
  assert.equal(holder(), 'atlas-24b');
  catalog.configure(await settings(YAML.replace('requires: pro', 'traits: [default]')));
  assert.equal(holder(), 'Meta/Llama-3.1_8B');
  assert.equal(catalog.holderOf('fastest', 'text')?.id, 'Meta/Llama-3.1_8B');
  assert.equal(catalog.holderOf('default_code', 'text')?.id, 'Meta/Llama-3.1_8B');
  assert.equal(catalog.holderOf('most_intelligent', 'text')?.id, 'atlas-24b');
});

test('discovered models have the default price, and configured models use their replicas', async () => {
  const catalog = await catalogOf(`models:\n  - { id: "llama3:70b", context: 100, ${PRICE} }\n`);
  catalog.setDiscovered([FOUND, { ...FOUND, replicas: [{ engine: 'vllm', model: 'l3' }] }, DEMO]);
  const model = catalog.require('llama3:70b', 'text').model;
  assert.equal(model.origin, 'configured');
  assert.equal(model.context, 100);
  assert.equal(model.price?.row.input, '0.3');
  assert.deepEqual(model.replicas, [
    { engine: 'ollama', model: 'llama3:70b', weight: 1, order: 0 },
    { engine: 'vllm', model: 'l3', weight: 1, order: 0 },
  ]);
  assert.equal(catalog.get('farebox-demo')?.price?.row.output, '0.20');
  assert.equal(model.tier, 'M');
});

test('the list has the shape that clients read', async () => {
  const clock = new TestClock();
  const catalog = await catalogOf(YAML, clock);
  const { type, data } = body(catalog.listBody('text'));
  assert.equal(type, 'text');
  assert.deepEqual(data[0], {
    id: 'atlas-24b',
    object: 'model',
    created: clock.nowMs() / 1_000,
    owned_by: 'svc',
    type: 'text',
    context_length: 65_536,
    model_spec: {
      name: 'atlas-24b',
      description: '',
      privacy: 'private',
      offline: false,
      beta: false,
      betaModel: false,
      uncensored: false,
      traits: ['default', 'most_intelligent'],
      modelSource: '',
      regionRestrictions: [],
      pricing: {
        input: { usd: 0.3, diem: 0.3 },
        output: { usd: 1.2, diem: 1.2 },
        batch: { input: { usd: 0.15, diem: 0.15 }, output: { usd: 0.6, diem: 0.6 } },
      },
      availableContextTokens: 65_536,
      maxCompletionTokens: 65_536,
      capabilities: {
        optimizedForCode: false,
        supportsFunctionCalling: false,
        supportsAudioInput: false,
        supportsReasoning: false,
        supportsReasoningEffort: false,
        supportsResponseSchema: false,
        supportsMultipleImages: false,
        supportsVision: false,
        supportsVideoInput: false,
        supportsWebSearch: false,
        supportsXSearch: false,
        supportsLogProbs: false,
        supportsTeeAttestation: false,
        supportsE2EE: false,
        quantization: 'not-available',
      },
      constraints: {},
    },
  });
  const ids = (name: 'all' | 'code' | 'embedding' | 'video', limits: Partial<KeyLimits> = {}) =>
    body(catalog.listBody(name, { modelPrivacy: 'ALL', models: undefined, ...limits })).data.map(
      (item: { id: string }) => item.id,
    );
  assert.deepEqual(ids('all'), ['atlas-24b', 'Meta/Llama-3.1_8B', 'embed']);
  assert.deepEqual(ids('all', { modelPrivacy: 'PRIVATE_ONLY' }), ['atlas-24b', 'embed']);
  const models = new Set(['embed', 'Meta/Llama-3.1_8B', 'no-such-model']);
  assert.deepEqual(ids('all', { models }), ['Meta/Llama-3.1_8B', 'embed']);
  assert.deepEqual(ids('all', { models, modelPrivacy: 'PRIVATE_TEXT' }), ['embed']);
  assert.deepEqual(ids('all', { models: new Set() }), []);
  assert.deepEqual(ids('code'), ['Meta/Llama-3.1_8B']);
  assert.deepEqual(ids('video'), []);
  const spec = body(catalog.listBody('embedding')).data[0].model_spec;
  assert.equal(spec.embeddingDimensions, 768);
  assert.equal(spec.maxInputTokens, 8_192);
  assert.equal(spec.supportsCustomDimensions, true);
  assert.deepEqual(spec.pricing.output, { usd: 0.01, diem: 0.01 });
});

test('a full price row is listed with cached and extended prices', async () => {
  const full =
    'price: { input: 0.3, output: 1.2, cacheInput: 0.06, cacheWrite: 0.375, extended: { above: 32000, input: 0.6, output: 1.8, cacheInput: 0.12 } }';
  const catalog = await catalogOf(`models:\n  - { id: a, context: 64000, ${full} }\n`);
  const same = (usd: number) => ({ usd, diem: usd });
  const { batch, ...pricing } = body(catalog.listBody('text')).data[0].model_spec.pricing;
  assert.deepEqual(batch.cache_write, same(0.1875));
  assert.deepEqual(batch.extended.output, same(0.9));
  assert.deepEqual(pricing, {
    input: same(0.3),
    output: same(1.2),
    cache_input: same(0.06),
    cache_write: same(0.375),
    extended: {
      context_token_threshold: 32_000,
      input: same(0.6),
      output: same(1.8),
      cache_input: same(0.12),
    },
  });
});

test('traits and compatibility mapping are objects of names and ids', async () => {
  const catalog = await catalogOf(YAML);
  assert.deepEqual(body(catalog.mappingBody('text')), {
    object: 'list',
    type: 'text',
    data: { 'gpt-4o': 'atlas-24b' },
  });
  assert.deepEqual(body(catalog.traitsBody('embedding')), {
    object: 'list',
    type: 'embedding',
    data: { default: 'embed', fastest: 'embed' },
  });
  assert.deepEqual(body(catalog.traitsBody('text')).data, {
    default: 'atlas-24b',
    fastest: 'Meta/Llama-3.1_8B',
    most_intelligent: 'atlas-24b',
    function_calling_default: 'Meta/Llama-3.1_8B',
    default_code: 'Meta/Llama-3.1_8B',
  });
});

test('list bodies are cached until the catalog changes', async () => {
  const catalog = await catalogOf(YAML);
  const first = catalog.listBody('text');
  assert.equal(catalog.listBody('text'), first);
  catalog.setDiscovered([]);
  assert.equal(catalog.listBody('text'), first, 'an equal list is no change');
  catalog.setDiscovered([DEMO]);
  assert.equal(body(catalog.listBody('text')).data.length, 3);
});

const GOING = `
engines: { rack: { url: http://127.0.0.1:1/v1 } }
models:
  - id: old
    context: 8
    traits: [default]
    ${PRICE}
    replicas: [{ engine: rack }]
    deprecation: { date: 2026-12-01, startsAt: 2026-11-25, replacement: new, autoRemap: REMAP }
  - { id: new, context: 8, ${PRICE}, replicas: [{ engine: rack }] }
`;

test('a deprecated model warns, is rerouted after its removal, and leaves the list after 30 days', async () => {
  const clock = new TestClock(Date.UTC(2026, 10, 21));
  const catalog = await catalogOf(GOING.replace('REMAP', 'true'), clock);
  assert.equal(catalog.require('old', 'text').deprecation, undefined);
  clock.advance(4 * 86_400_000);
  assert.deepEqual(catalog.require('old', 'text').deprecation, {
    warning: 'The model "old" is deprecated and stops on 2026-12-01; use "new" instead',
    date: '2026-12-01T00:00:00.000Z',
  });
  assert.equal(catalog.holderOf('default', 'text')?.id, 'old');
  clock.advance(6 * 86_400_000);
  const after = catalog.require('old', 'text');
  assert.equal(after.model.id, 'new');
  assert.equal(
    after.deprecation?.warning,
    'The model "old" was retired on 2026-12-01; "new" answered',
  );
  assert.equal(catalog.holderOf('default', 'text')?.id, 'new');
  const [entry] = body(catalog.listBody('text')).data;
  assert.equal(entry.model_spec.offline, true);
  assert.deepEqual(entry.model_spec.deprecation, {
    date: '2026-12-01T00:00:00.000Z',
    startsAt: '2026-11-25T00:00:00.000Z',
    removesAt: '2026-12-01T00:00:00.000Z',
    autoRemap: true,
    replacementModelId: 'new',
  });
  clock.advance(30 * 86_400_000);
  assert.deepEqual(
    body(catalog.listBody('text')).data.map((item: { id: string }) => item.id),
    ['new'],
  );
  assert.equal(catalog.require('old', 'text').model.id, 'new');
});

test('a removed model without rerouting returns 410 with its replacement', async () => {
  const clock = new TestClock(Date.UTC(2026, 11, 2));
  const catalog = await catalogOf(GOING.replace('REMAP', 'false'), clock);
  assert.throws(() => catalog.require('old', 'text'), {
    code: 'MODEL_RETIRED',
    message: 'The model "old" was retired on 2026-12-01; use "new"',
  });
});

test('a model is sold again after a clock that was ahead is set back', async () => {
  // The clock is a month ahead until its first synchronisation.
  const clock = new TestClock(Date.UTC(2026, 11, 21));
  const catalog = await catalogOf(GOING.replace('REMAP', 'false'), clock);
  assert.throws(() => catalog.require('old', 'text'), { code: 'MODEL_RETIRED' });
  clock.setWallBack(30 * 86_400_000);
  assert.equal(catalog.require('old', 'text').model.id, 'old');
  clock.advance(10 * 86_400_000);
  assert.throws(() => catalog.require('old', 'text'), { code: 'MODEL_RETIRED' });
});

test('a lookup among ten thousand models is as fast as among ten', async () => {
  const catalog = await catalogOf('');
  const many = (count: number): DiscoveredModel[] =>
    Array.from({ length: count }, (_, index) => ({ ...DEMO, id: `vendor/model-${index}.5-7b` }));
  const perLookup = (count: number, name: string): number => {
    catalog.setDiscovered(many(count));
    const rounds = name === 'no-such-model-at-all' ? 1 : 500;
    found(catalog, name);
    // The minimum of many samples, because a busy machine may interrupt a run.
    const samples = Array.from({ length: 20 }, () => {
      const start = performance.now();
      for (let round = 0; round < rounds; round += 1) found(catalog, name);
      return (performance.now() - start) / rounds;
    });
    return Math.min(...samples);
  };
  const ratio = (name: string) => perLookup(10_000, name) / perLookup(10, name);
  assert.ok(ratio('vendor/model-7.5-7b') < 10);
  assert.ok(ratio('Model_7.5_7B') < 10);
  assert.ok(perLookup(10_000, 'no-such-model-at-all') < 5, 'an unknown name stays below 5 ms');
  assert.throws(
    () => catalog.require('vendor/modle-9876.5-7b', 'text'),
    /does not exist; did you mean "vendor\/model-9876\.5-7b"\?$/,
  );
});

test('Claude names resolve to a model by trait, unless a Claude model is on offer', async () => {
  const sizes = `
engines: { rack: { url: http://127.0.0.1:1/v1 } }
models:
  - { id: middle, context: 8, tier: M, ${PRICE}, replicas: [{ engine: rack }] }
  - { id: large, context: 8, tier: L, ${PRICE}, replicas: [{ engine: rack }] }
  - { id: "small:1b", context: 8, tier: XS, ${PRICE}, replicas: [{ engine: rack }] }
`;
  const catalog = await catalogOf(sizes);
  assert.equal(found(catalog, 'claude-opus-4-1-20250805'), 'large by tolerant');
  assert.equal(found(catalog, 'claude-sonnet-4-5'), 'middle by tolerant');
  assert.equal(found(catalog, 'anthropic/claude-3.5-haiku'), 'small:1b by tolerant');
  assert.equal(found(catalog, 'claude-3-7-sonnet-latest'), 'middle by tolerant');
  assert.equal(found(catalog, 'claude-small:1b'), 'small:1b by tolerant');
  assert.equal(found(catalog, 'claude-2.1'), 'unknown');
  assert.equal(found(catalog, 'claude-opusculum'), 'unknown');
  assert.equal(found(catalog, 'claude-opus-4-1', 'embedding'), 'unknown');
  const real = sizes.replace('id: large', 'id: anthropic/claude-opus-4-1');
  const sold = await catalogOf(real);
  assert.equal(found(sold, 'claude-opus-4-1'), 'anthropic/claude-opus-4-1 by tolerant');
  assert.equal(found(sold, 'claude-opus-4-7'), 'unknown');
});
