import assert from 'node:assert/strict';
import { test } from 'node:test';
import { consolePart } from '../../../../test/support/console-part.ts';

test('a changed webhook keeps the URL and the thresholds that were not changed', async () => {
  const part = await consolePart('pages/webhook-form.tsx', 'WebhookForm');
  const thresholds = {
    balanceUsd: 5,
    keyLimitPercent: 90,
    budgetPercent: null,
    dailySpendUsd: null,
  };
  const given = { url: 'https://example.com/hook', thresholds };
  const saved: unknown[] = [];
  const save = async (change: unknown) => void saved.push(change);
  await part.show({ given, save });
  // Another operator has changed the webhook meanwhile.
  await part.show({ given: { ...given, thresholds: { ...thresholds, balanceUsd: 50 } }, save });
  await part.type('Used spend limit of a key, in percent', '');
  await part.press('Save');
  await part.type('URL', ' https://example.com/new ');
  await part.press('Save');
  assert.deepEqual(saved, [
    { thresholds: { keyLimitPercent: null } },
    { url: 'https://example.com/new', thresholds: { keyLimitPercent: null } },
  ]);
});
