import assert from 'node:assert/strict';
import { test } from 'node:test';
import { editSection, maskedText, readSection } from './edit-config.ts';

const FILE = `# My shop
service: { name: shop }   # short

# The graphics card
engines:
  # in the cellar
  gpu:
    url: http://gpu:8000/v1 # vLLM
    apiKey: sk-secret
  cloud: { url: https://api.example.com/v1, apiKey: \${CLOUD_KEY} }

# Models
models:
  # the small one
  - { id: small, price: { input: 0.10, output: 0.2 } } # cheap
  - id: large # the large one
    price: { input: 1, output: 2 }

# the end
`;

test('an edit keeps all other bytes, the comments of the section and unchanged values', () => {
  const engines = readSection(FILE, 'engines') as Record<string, Record<string, unknown>>;
  assert.deepEqual(engines, {
    gpu: { url: 'http://gpu:8000/v1', apiKey: '********' },
    cloud: { url: 'https://api.example.com/v1', apiKey: '${CLOUD_KEY}' },
  });
  const changed = { ...engines, gpu: { ...engines['gpu'], concurrency: 8 } };
  assert.equal(
    editSection(FILE, 'engines', changed),
    FILE.replace('apiKey: sk-secret\n', 'apiKey: sk-secret\n    concurrency: 8\n'),
  );
});

test('an unchanged section changes nothing', () => {
  assert.equal(editSection(FILE, 'models', readSection(FILE, 'models')), FILE);
});

test('a removed item takes its own comment with it, and the others keep theirs', () => {
  const [small] = readSection(FILE, 'models') as unknown[];
  const text = editSection(FILE, 'models', [small]);
  assert.ok(text.includes('  # the small one\n  - { id: small'));
  assert.ok(text.includes('# cheap\n'));
  assert.ok(!text.includes('large'));
  assert.ok(text.endsWith('# the end\n'));
});

test('a new section is appended, and a removed one leaves the rest', () => {
  const added = editSection(FILE, 'listen', { port: 8080 });
  assert.equal(added, `${FILE}\nlisten:\n  port: 8080\n`);
  assert.equal(editSection(added, 'listen', undefined).trimEnd(), FILE.trimEnd());
  assert.equal(editSection('', 'listen', { port: 1 }), 'listen:\n  port: 1\n');
});

test('a new variable stays a variable', () => {
  const text = editSection('', 'engines', { a: { url: 'http://x/v1', apiKey: '${A_KEY}' } });
  assert.ok(text.includes('apiKey: ${A_KEY}\n'), text);
});

test('a secret is never moved by its mask', () => {
  const engines = { other: { url: 'http://evil/v1', apiKey: '********' } };
  assert.throws(() => editSection(FILE, 'engines', engines), /Enter the secret again/);
});

test('a masked text has no secret, and keeps variables and comments', () => {
  const text = maskedText(FILE);
  assert.equal(text, FILE.replace('sk-secret', '"********"'));
});

test('a file that is not valid YAML is refused', () => {
  assert.throws(() => editSection('a: [', 'listen', {}), /The file is not valid YAML/);
});
