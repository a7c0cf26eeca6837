import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { suite, test } from 'node:test';

import { buildDemoModel } from '../../../scripts/build-demo-model.ts';
import { demoModels } from './llama-models.ts';

suite('the demo model file', () => {
  test('is what the script writes from the text, byte for byte', () => {
    const text = readFileSync(new URL('../../../assets/demo-text.md', import.meta.url), 'utf8');
    const committed = readFileSync(demoModels()[0]!.path);
    assert.ok(buildDemoModel(text).equals(committed), 'run node scripts/build-demo-model.ts');
  });

  test('stays below 4 MiB, because it is in git', () => {
    assert.ok(readFileSync(demoModels()[0]!.path).length <= 4 * 1024 * 1024);
  });

  test('calls itself a demo in every id', () => {
    for (const model of demoModels()) {
      assert.match(model.id, /demo/);
      assert.ok(model.isDemo);
    }
  });
});
