import assert from 'node:assert/strict';
import { test } from 'node:test';

import { ServiceName, serviceWords } from './service-name.ts';

test('every public word follows the service name', () => {
  assert.deepEqual(serviceWords('acme'), {
    name: 'acme',
    headerPrefix: 'x-acme-',
    parametersKey: 'acme_parameters',
    inferenceKeyPrefix: 'ACME_INFERENCE_KEY_',
    adminKeyPrefix: 'ACME_ADMIN_KEY_',
    searchDocumentsTool: 'acme_web_search_documents',
    modelPrefix: 'acme-',
  });
});

test('a service name has 1 to 20 lowercase letters or digits and starts with a letter', () => {
  for (const name of ['a', 'svc', 'a1', 'a'.repeat(20)]) {
    assert.ok(ServiceName.safeParse(name).success, name);
  }
  for (const name of ['', '1a', 'A', 'a-b', 'a_b', 'a'.repeat(21), 'é']) {
    assert.ok(!ServiceName.safeParse(name).success, name);
  }
});
