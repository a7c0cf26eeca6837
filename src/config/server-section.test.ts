import assert from 'node:assert/strict';
import { test } from 'node:test';

import { ServiceSection } from './server-section.ts';

test('a service name has 1 to 20 lowercase letters or digits and starts with a letter', () => {
  for (const name of ['a', 'svc', 'a1', 'a'.repeat(20)]) {
    assert.ok(ServiceSection.safeParse({ name }).success, name);
  }
  for (const name of ['', '1a', 'A', 'a-b', 'a_b', 'a'.repeat(21), 'é']) {
    assert.ok(!ServiceSection.safeParse({ name }).success, name);
  }
});
