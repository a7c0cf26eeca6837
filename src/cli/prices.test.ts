import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { EmulatedProvider } from '../../test/support/provider-wires.ts';
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

  describe('--add', () => {
    const listed = { id: 'claude-x' };
    const text = { mode: 'chat', max_input_tokens: 200_000, output_cost_per_token: 1e-5 };
    const added = {
      'claude-haiku': { ...text, litellm_provider: 'anthropic', input_cost_per_token: 1e-6 },
      'claude-old': { ...text, litellm_provider: 'anthropic', input_cost_per_token: 8e-6 },
      'claude-bare': { litellm_provider: 'anthropic', mode: 'chat', input_cost_per_token: 1e-6 },
      'claude-half': { mode: 'chat', max_input_tokens: 9, input_cost_per_token: 1e-6 },
      'claude-hidden': { ...text, litellm_provider: 'anthropic', input_cost_per_token: 8e-6 },
      omni: { ...text, litellm_provider: 'anthropic', input_cost_per_token: 8e-6 },
    };
    let provider: EmulatedProvider;
    let yaml: string;
    before(async () => {
      provider = await EmulatedProvider.open();
      yaml = YAML.replace('http://127.0.0.1:9/v1', `${provider.url}/v1`);
      const list = { ...JSON.parse(LIST), ...added };
      writeFileSync(join(folder, 'more.json'), JSON.stringify(list));
    });
    after(() => provider.close());

    const add = (...argv: string[]) => {
      writeFileSync(file(), yaml);
      const ids = [
        'claude-haiku',
        'claude-old',
        'claude-bare',
        'claude-half',
        'claude-new',
        'omni',
      ];
      const data = [listed, ...ids.map((id) => ({ id }))];
      provider.replies = [{ status: 200, body: { object: 'list', data } }];
      return run('prices', 'import', 'more.json', '--add', ...argv);
    };

    test('adds the priced models that the engine offers and the file does not have', async () => {
      const markups = ['--markup', '20%', '--markup', 'claude-old=50%'];
      const shown = await add('anthropic', ...markups);
      assert.equal(shown.code, 0, shown.err);
      assert.match(shown.out, /claude-haiku \(added, factor 1\.2000\)\n/);
      assert.match(shown.out, /context: 200000\n(?:.*\n)* {2}price\.input: 1\.2\n/);
      assert.match(shown.out, /claude-old \(added, factor 1\.5000\)\n/);
      assert.match(
        shown.out,
        /claude-bare\n {2}anthropic: not added, because the list has no compl/,
      );
      assert.match(
        shown.out,
        /claude-new\n {2}anthropic: not added, because the list has no compl/,
      );
      assert.match(shown.out, /omni\n {2}anthropic: not added, because the model exists/);
      assert.doesNotMatch(shown.out, /claude-hidden|claude-x \(added/);
      assert.equal(readFileSync(file(), 'utf8'), yaml);

      const written = await add('anthropic', ...markups, '--write');
      assert.equal(written.code, 0, written.err);
      const after = readFileSync(file(), 'utf8');
      for (const kept of ['# Our engines', '# The best one', '# tokens', '"${KEY:-k}"']) {
        assert.ok(after.includes(kept), `${kept} in ${after}`);
      }
      const { models } = JSON.parse((await run('--json', 'models')).out);
      assert.deepEqual(
        models.map(({ id, prices }: { id: string; prices: { input: number } }) => [
          id,
          prices.input,
        ]),
        [
          ['claude', 3.6],
          ['omni', 9.6],
          ['own', 0],
          ['claude-haiku', 1.2],
          ['claude-old', 12],
        ],
      );
      assert.match(after, /privacy: anonymized/);
    });

    test('--model selects what is added', async () => {
      const { out } = await add('anthropic', '--model', 'claude-old');
      assert.match(out, /claude-old \(added/);
      assert.doesNotMatch(out, /haiku|omni/);
    });

    test('a rejected key, an unknown engine and an invalid result change nothing', async () => {
      const unknown = await add('antropic', '--write');
      assert.equal(unknown.code, 2);
      assert.match(unknown.err, /no engine "antropic".*anthropic/);
      provider.replies = [{ status: 401, body: {} }];
      const refused = await run('prices', 'import', 'more.json', '--add', 'anthropic', '--write');
      assert.match(refused.err, /HTTP 401; check the key/);
      const dearest = '1'.padEnd(30, '0');
      const markup = await add('anthropic', '--markup', `claude-old=${dearest}`, '--write');
      assert.notEqual(markup.code, 0);
      assert.equal(readFileSync(file(), 'utf8'), yaml);
    });
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
