import assert from 'node:assert/strict';
import { test } from 'node:test';

import { TestClock } from '../../test/support/test-clock.ts';
import { Catalog, type CatalogModel } from '../catalog/catalog.ts';
import { loadConfig } from '../config/config.ts';
import { Fault, type FaultCode } from '../core/faults.ts';
import type { ModelPrivacy, Plan } from '../identity/identity.ts';
import { ratesBy, requireAccess, requireRegion } from './model-sale.ts';

const PRICE = 'price: { input: 0.3, output: 1.2 }';
const YAML = `
engines: { rack: { url: http://127.0.0.1:1/v1 } }
models:
  - { id: atlas-24b, context: 65536, ${PRICE}, replicas: [{ engine: rack }] }
  - id: llama-3.1-8b
    context: 8192
    privacy: anonymized
    requires: pro
    ${PRICE}
    replicas: [{ engine: rack }]
  - id: embed
    type: embedding
    embedding: { dimensions: 768 }
    price: { input: 0.01 }
    replicas: [{ engine: rack }]
`;

async function opened(yaml: string) {
  const result = await loadConfig({ env: {}, cwd: '/srv', readFile: async () => yaml });
  assert.ok(result.ok, JSON.stringify(result));
  const { config } = result;
  return { config, catalog: new Catalog({ settings: config, clock: new TestClock() }) };
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

const ANYWHERE = { country: undefined };

test('a restricted model is rejected in its countries, and for unknown countries', async () => {
  const { catalog } = await opened(YAML);
  const { model } = catalog.require('atlas-24b', 'text');
  const restricted = { ...model, regionRestrictions: ['FR', 'KP'] };
  const from = (country: string | undefined, of = restricted) =>
    code(() => requireRegion(of, { country }));
  assert.equal(from('FR'), 'REGION_NOT_ALLOWED');
  assert.equal(from(''), 'REGION_NOT_ALLOWED');
  assert.equal(from('DE'), 'none');
  assert.equal(from(undefined), 'none');
  assert.equal(from('', { ...restricted, regionRestrictions: [] }), 'none');
});

test('plans and privacy limits reject models that they do not include', async () => {
  const { catalog } = await opened(YAML);
  const pro = catalog.require('llama-3.1-8b', 'text').model;
  const open = catalog.require('atlas-24b', 'text').model;
  const access = (model: CatalogModel, plan: Plan, modelPrivacy: ModelPrivacy): string =>
    code(() => requireAccess(model, { plan, modelPrivacy, models: undefined }, ANYWHERE));
  assert.equal(access(pro, 'paid', 'ALL'), 'PRO_ONLY_MODEL');
  for (const plan of ['pro', 'partner', 'staff'] as const) {
    assert.equal(access(pro, plan, 'ALL'), 'none');
  }
  assert.equal(access(open, 'paid', 'ALL'), 'none');
  assert.equal(access(pro, 'pro', 'PRIVATE_TEXT'), 'MODEL_NOT_ALLOWED');
  assert.equal(access(pro, 'pro', 'PRIVATE_ONLY'), 'MODEL_NOT_ALLOWED');
  assert.equal(access(open, 'paid', 'PRIVATE_ONLY'), 'none');
  const listed = { plan: 'paid', modelPrivacy: 'ALL', models: new Set(['another']) } as const;
  assert.equal(
    code(() => requireAccess(open, listed, ANYWHERE)),
    'MODEL_NOT_ALLOWED',
  );
});

test('limits follow tier, type and plan, and a model can have its own', async () => {
  const { config, catalog } = await opened(
    YAML.replace('privacy: anonymized', 'limits: { requestsPerMinute: 3 }'),
  );
  const rate = (name: string, plan: 'paid' | 'partner', type: 'text' | 'embedding' = 'text') => {
    const { requestsPerMinute, tokensPerMinute } = ratesBy({ current: config })(
      { plan, keyLimits: {}, accountLimits: {} },
      catalog.require(name, type).model,
    );
    return [requestsPerMinute, tokensPerMinute];
  };
  assert.deepEqual(rate('atlas-24b', 'paid'), [50, 750_000]);
  assert.deepEqual(rate('atlas-24b', 'partner'), [100, 1_500_000]);
  assert.deepEqual(rate('llama-3.1-8b', 'paid'), [3, 750_000]);
  assert.deepEqual(rate('embed', 'paid', 'embedding'), [500, 0]);
});
