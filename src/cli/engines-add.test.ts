import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { EmulatedProvider } from '../../test/support/provider-wires.ts';
import { runCli } from '../../test/support/run-cli.ts';
import { runCommand } from './cli.ts';
import { PROVIDERS } from '../config/config.ts';
import { KNOWN_PROVIDERS } from '../engines/known-providers.ts';

const FILE = `# My shop
embedded: { enabled: false } # no GPU
discovery: { enabled: false }
priceFile: ./prices.json
engines:
  # in the cellar
  gpu: { url: http://127.0.0.1:9/v1, apiKey: sk-secret }
`;
const text = { mode: 'chat', max_input_tokens: 131_072, max_output_tokens: 8_192 };
const PRICES = {
  'groq/llama-70b': { ...text, input_cost_per_token: 5.9e-7, output_cost_per_token: 7.9e-7 },
  'groq/without-price': { mode: 'chat' },
  'fal_ai/fal-ai/flux/dev': { mode: 'image_generation', output_cost_per_image: 0.025 },
};
const LIST = { object: 'list', data: [{ id: 'llama-70b' }, { id: 'other' }] };

describe('farebox engines add', () => {
  const folder = mkdtempSync(join(tmpdir(), 'engines-add-'));
  const file = join(folder, 'farebox.yaml');
  let provider: EmulatedProvider;
  before(async () => {
    provider = await EmulatedProvider.open();
    writeFileSync(join(folder, 'prices.json'), JSON.stringify(PRICES));
  });
  after(async () => {
    await provider.close();
    rmSync(folder, { recursive: true });
  });

  const add = async (...argv: string[]) => {
    writeFileSync(file, FILE);
    const env = {
      FAREBOX_DATA: join(folder, 'data'),
      GROQ_API_KEY: 'key-of-groq',
      FAL_API_KEY: 'f',
    };
    const result = await runCli(folder, ['--json', 'engines', 'add', ...argv], env);
    return { ...result, written: readFileSync(file, 'utf8') };
  };

  test('the engine and the chosen models are added, and the rest of the file stays', async () => {
    provider.replies = [{ status: 200, body: LIST }];
    const url = `${provider.url}/openai/v1`;
    const { code, out, err, written } = await add('groq', '--url', url, '--sell', 'llama-70b');
    assert.equal(code, 0, err);
    assert.equal(provider.requests[0]?.headers.authorization, 'Bearer key-of-groq');
    assert.deepEqual(JSON.parse(out), {
      engine: 'groq',
      file,
      models: [
        {
          id: 'llama-70b',
          model: 'llama-70b',
          priceKey: 'groq/llama-70b',
          price: 'input 0.59, output 0.79',
        },
        { id: 'other', model: 'other', price: 'unknown' },
      ],
      sold: ['llama-70b'],
    });
    assert.ok(written.startsWith(FILE));
    assert.match(written, /groq:\n {4}url: .*\n {4}apiKey: \$\{GROQ_API_KEY\}\n/);
    assert.match(written, /models:\n {2}- id: llama-70b\n {4}import: groq\/llama-70b\n/);
    assert.ok(!written.includes('key-of-groq'));
  });

  test('on a terminal it lists the models that have a price, and sells those that are entered', async () => {
    writeFileSync(file, FILE);
    provider.replies = [{ status: 200, body: LIST }];
    let shown = '';
    const code = await runCommand({
      argv: ['engines', 'add', 'groq', '--url', `${provider.url}/v1`],
      env: { ...process.env, PORT: '', FAREBOX_DATA: join(folder, 'data'), GROQ_API_KEY: 'g' },
      cwd: folder,
      stdout: { isTTY: true, write: (text) => void (shown += text) },
      stderr: { write: (text) => void (shown += text) },
      stdin: async function* () {
        yield 'llama-';
        yield '70b\n';
      },
      onSignal: () => undefined,
    });
    assert.equal(code, 0, shown);
    assert.match(shown, /llama-70b +input 0\.59, output 0\.79\nSell which of them\?/);
    assert.match(readFileSync(file, 'utf8'), /- id: llama-70b\n/);
  });

  test('a package is started, and its models are those of the price file', async () => {
    const { code, out, err, written } = await add('fal', '--sell', 'all');
    assert.equal(code, 0, err);
    assert.deepEqual(JSON.parse(out).sold, ['fal-ai/flux/dev']);
    assert.match(written, /fal:\n {4}provider: "@ai-sdk\/fal"\n {4}apiKey: \$\{FAL_API_KEY\}\n/);
  });

  for (const [name, argv, message] of [
    ['a rejected key', ['groq', '--url', '{url}/v1'], /HTTP 401; check the key/],
    ['a key that is not set', ['xai', '--no-probe'], /XAI_API_KEY is not set/],
    ['a missing setting', ['bedrock', '--no-probe'], /needs the setting region/],
    ['an existing name', ['groq', '--name', 'gpu', '--no-probe'], /"gpu" exists/],
    [
      'a model without a price',
      ['fal', '--no-probe', '--sell', 'sora'],
      /"sora" has no usable price/,
    ],
    ['an unknown provider', ['grok'], /There is no provider "grok"/],
  ] as const) {
    test(`${name} changes nothing`, async () => {
      provider.replies = [{ status: 401, body: {} }];
      const words = argv.map((word) => word.replace('{url}', provider.url));
      const { code, err, out, written } = await add(...words);
      assert.notEqual(code, 0);
      assert.match((err + out).replaceAll('\\"', '"'), message);
      assert.equal(written, FILE);
    });
  }

  test('every known provider names a package that exists, or a URL', () => {
    for (const [name, { engine }] of Object.entries(KNOWN_PROVIDERS)) {
      const { provider: path, url } = engine;
      const isKnown = PROVIDERS.some((one) => one === path) || URL.canParse(String(url));
      assert.ok(isKnown, name);
    }
  });
});
