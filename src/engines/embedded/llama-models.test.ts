import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { suite, test } from 'node:test';

import { demoModels } from './llama-models.ts';

suite('the demo model file', () => {
  test('it is smaller than 4 MiB, because it is in git', () => {
    assert.ok(readFileSync(demoModels()[0]!.path).length <= 4 * 1024 * 1024);
  });

  test('its ids contain "demo"', () => {
    for (const model of demoModels()) {
      assert.match(model.id, /demo/);
      assert.ok(model.isDemo);
    }
  });
});
