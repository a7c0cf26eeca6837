import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { runCli } from '../../test/support/run-cli.ts';

const YAML = `# Our engines
engines:
  anthropic: { url: http://127.0.0.1:9/v1, apiKey: "\${KEY:-k}" } # paid by card
  other: { url: http://127.0.0.1:9/v1 }
models:
  # The best one
  - id: claude
    context: 200000 # tokens
    price: { input: 3, output: 15 } # USD
    replicas:
      - { engine: anthropic, model: claude-x }
  - id: omni
    context: 128000
    price:
      input: 1
      output: 2
    replicas: [{ engine: other, model: omni }]
  - { id: own, context: 4096, price: { input: 0, output: 0 }, replicas: [{ engine: other }] }
`;

const LIST = JSON.stringify({
  'claude-x': {
    litellm_provider: 'anthropic',
    input_cost_per_token: 3e-6,
    output_cost_per_token: 1.5e-5,
    cache_creation_input_token_cost_above_1hr: 6e-6,
  },
  'azure/omni': {
    litellm_provider: 'azure',
    input_cost_per_token: 1.234567e-6,
    output_cost_per_token: 1e-5,
    input_cost_per_token_priority: 2e-6,
  },
});

describe('farebox prices import', () => {
  let folder: string;
  const file = () => join(folder, 'farebox.yaml');
  before(() => {
    folder = mkdtempSync(join(tmpdir(), 'farebox-prices-'));
    writeFileSync(join(folder, 'prices.json'), LIST);
  });
  after(() => rmSync(folder, { recursive: true, force: true }));

  const run = (...argv: string[]) =>
    runCli(folder, argv, { FAREBOX_CONFIG: file(), FAREBOX_DATA: folder });

  test('shows the changes, and writes them only with --write', async () => {
    writeFileSync(file(), YAML);
    const shown = await run(
      'prices',
      'import',
      'prices.json',
      '--markup',
      '20%',
      '--markup',
      'azure=7.5',
    );
    assert.equal(shown.code, 0, shown.err);
    assert.match(shown.out, /claude \(claude-x, factor 1\.2000\)\n {2}price\.input: 3 -> 3\.6\n/);
    assert.match(shown.out, /cost of anthropic\.cacheWrite1h: none -> 6\n/);
    assert.match(
      shown.out,
      /omni \(azure\/omni, factor 1\.0750\)\n {2}price\.input: 1 -> 1\.327159525\n/,
    );
    assert.match(shown.out, /own\n {2}other: the list has no "own"\n/);
    assert.match(shown.out, /Nothing was written; add --write/);
    assert.equal(readFileSync(file(), 'utf8'), YAML);
  });

  test('writes prices and costs, and keeps comments and other values', async () => {
    writeFileSync(file(), YAML);
    const args = ['prices', 'import', 'prices.json', '--markup', '20%', '--markup', 'omni=50%'];
    const written = await run(...args, '--write');
    assert.equal(written.code, 0, written.err);
    const text = readFileSync(file(), 'utf8');
    for (const kept of [
      '# Our engines',
      '# paid by card',
      '# The best one',
      '# tokens',
      '# USD',
      '"${KEY:-k}"',
    ]) {
      assert.ok(text.includes(kept), `${kept} in ${text}`);
    }
    const listed = JSON.parse((await run('--json', 'models')).out);
    const [claude, omni] = listed.models;
    assert.equal(claude.prices.input, 3.6);
    assert.equal(claude.prices.cache_write_1h, 7.2);
    assert.equal(omni.prices.output, 15);
    const percents = claude.margins.map(({ percent }: { percent: number }) => percent);
    assert.deepEqual(new Set(percents), new Set([16.6]));
    const again = await run(...args);
    assert.match(again.out, /Nothing changes/);
    const table = (await run('models')).out;
    assert.match(table, /LEAST MARGIN/);
    assert.match(table, /3 in, 15 out/);
  });

  test('reads a URL, and only the named models', async () => {
    writeFileSync(file(), YAML);
    const server = createServer((_request, response) => response.end(LIST)).listen(0, '127.0.0.1');
    await once(server, 'listening');
    try {
      const { port } = server.address() as { port: number };
      const url = `http://127.0.0.1:${port}/prices.json`;
      const { out, err } = await run('--json', 'prices', 'import', url, '--model', 'claude');
      const shown = JSON.parse(out || err);
      assert.deepEqual(
        shown.models.map(({ id }: { id: string }) => id),
        ['claude'],
      );
      assert.equal(shown.written, false);
    } finally {
      server.close();
    }
  });

  test('rejects a wrong markup, an unknown file and an unknown format', async () => {
    writeFileSync(file(), YAML);
    writeFileSync(join(folder, 'other.json'), '{}');
    assert.equal((await run('prices', 'import', 'prices.json', '--markup', 'much')).code, 2);
    assert.match((await run('prices', 'import', 'none.json')).err, /none\.json/);
    assert.match(
      (await run('prices', 'import', 'other.json')).err,
      /must be the price file of LiteLLM/,
    );
  });

  test('a price below the cost fails the check and is named', async () => {
    const costly = YAML.replace(
      'model: claude-x }',
      'model: claude-x, cost: { input: 4, output: 15 } }',
    );
    writeFileSync(file(), costly);
    const { out, code } = await run('--json', 'check');
    const { findings } = JSON.parse(out);
    const said = findings.filter(({ what }: { what: string }) => what === 'price of claude');
    assert.equal(code, 1);
    assert.deepEqual(
      said.map(({ state, says }: { state: string; says: string }) => [state, says]),
      [
        ['wrong', 'input is sold for 3.0000 USD and costs 4.0000 USD at anthropic'],
        [
          'wrong',
          'input, service tier batch is sold for 1.5000 USD and costs 4.0000 USD at anthropic',
        ],
        [
          'wrong',
          'output, service tier batch is sold for 7.5000 USD and costs 15.0000 USD at anthropic',
        ],
      ],
    );
  });
});
