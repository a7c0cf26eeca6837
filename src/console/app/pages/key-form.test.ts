import assert from 'node:assert/strict';
import { test } from 'node:test';
import { consolePart } from '../../../../test/support/console-part.ts';

test('a changed key keeps the settings that were not changed', async () => {
  const part = await consolePart('pages/key-form.tsx', 'KeyForm');
  const given = {
    description: 'Old',
    consumptionLimits: { usd: 50, diem: null },
    limitPeriod: 'MONTH',
    modelPrivacy: 'ALL',
    models: ['atlas'],
    expiresAt: null,
  };
  part.respond = () => ({ data: [] });
  const saved: unknown[] = [];
  const save = async (body: unknown) => void saved.push(body);
  await part.show({ given, save });
  await part.type('Description', 'New');
  await part.press('Save');
  await part.type('Spend limit in USD', '75');
  await part.press('Save');
  assert.deepEqual(saved, [
    { description: 'New' },
    { description: 'New', consumptionLimit: { usd: 75 } },
  ]);
});

test('a new key gets all settings', async () => {
  const part = await consolePart('pages/key-form.tsx', 'KeyForm');
  part.respond = () => ({ data: [] });
  const saved: unknown[] = [];
  await part.show({ save: async (body: unknown) => void saved.push(body) });
  await part.type('Description', 'ci');
  await part.press('Create');
  assert.deepEqual(saved, [
    {
      apiKeyType: 'INFERENCE',
      description: 'ci',
      consumptionLimit: { usd: null, diem: null },
      limitPeriod: 'MONTH',
      modelPrivacy: 'ALL',
      models: null,
      expiresAt: '',
    },
  ]);
});
