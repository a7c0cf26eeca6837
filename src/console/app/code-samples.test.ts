import assert from 'node:assert/strict';
import { test } from 'node:test';
import { replaceGlobals } from '../../../test/support/replace-globals.ts';

replaceGlobals({
  document: { documentElement: { dataset: {} } },
  location: { origin: 'http://localhost' },
});
const { formSamples, jsonSamples } = await import('./code-samples.ts');

test('the sample of Python for a route that is not of OpenAI reads the response of its call', () => {
  const [, python] = jsonSamples('/budgets', { usd: 2 }, 'ADMIN_KEY');
  assert.equal(
    python?.text,
    `import os
import requests

response = requests.post(
    "http://localhost/api/v1/budgets",
    headers={"Authorization": f"Bearer {os.environ['ADMIN_KEY']}"},
    json={"usd": 2},
)
response.raise_for_status()
print(response.json())`,
  );
  const [, file] = formSamples(
    '/image/background-remove',
    { field: 'image', name: 'a.jpg' },
    'a.png',
  );
  assert.match(file?.text ?? '', /^response = requests\.post\([^]*write\(response\.content\)$/m);
});
