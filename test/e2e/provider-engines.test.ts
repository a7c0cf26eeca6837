/**
 * A model behind a provider package, through the whole server: the charge, cache marks, errors, a
 * crash of the process and a changed configuration.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { test } from 'node:test';
import OpenAI from 'openai';
import { formatProblem, loadConfig } from '../../src/config/config.ts';
import { usdToNano } from '../../src/core/money.ts';
import { findingsOf } from '../../src/cli/check.ts';
import { startTestApp } from '../app/test-app.ts';
import { type LogLine, memoryLog } from '../support/memory-log.ts';
import { EmulatedProvider } from '../support/provider-wires.ts';
import { until } from '../support/until.ts';

const USAGE = {
  input_tokens: 10,
  cache_read_input_tokens: 40,
  cache_creation_input_tokens: 20,
  output_tokens: 5,
};
/** 10 new tokens at 3, 40 cached at 0.3, 20 written at 3.75, and 5 of output at 15 USD per million. */
const COST = usdToNano('0.000192');

function reply(text: string): object {
  const content = [{ type: 'text', text }];
  const more = { stop_reason: 'end_turn', stop_sequence: null, usage: USAGE };
  return { id: 'm', type: 'message', role: 'assistant', model: 'claude', content, ...more };
}

const yamlOf = (url: string, key: string): string => `engines:
  claude:
    provider: '@ai-sdk/anthropic'
    apiKey: ${key}
    settings: { baseURL: '${url}/v1' }
    headers: { x-team: blue }
models:
  - id: opus
    type: text
    context: 8192
    maxCompletionTokens: 64
    price: { input: 3, output: 15, cacheInput: 0.3, cacheWrite: 3.75 }
    replicas: [{ engine: claude, model: claude-opus }]
`;

test('a model behind a provider package is sold, survives a crash, and follows the configuration', async () => {
  const provider = await EmulatedProvider.open();
  const lines: LogLine[] = [];
  const log = memoryLog(lines);
  const farebox = await startTestApp({ yaml: yamlOf(provider.url, 'key-number-one'), log });
  try {
    await farebox.app.localReady;
    const { secret, accountId } = await farebox.account('10');
    const client = new OpenAI({ baseURL: farebox.url, apiKey: secret, maxRetries: 0 });
    const chat = (content: unknown) =>
      client.chat.completions.create({
        model: 'opus',
        messages: [{ role: 'user', content: content as string }],
      });
    const marked = {
      type: 'text',
      text: 'A long document of more than seventy characters that the provider should keep.',
      cache_control: { type: 'ephemeral' },
    };

    provider.replies = [{ status: 200, body: reply('Hello') }];
    const first = await chat([marked]);
    assert.equal(first.choices[0]?.message.content, 'Hello');
    const { usdNano } = await farebox.app.stores.ledger.balances(accountId);
    assert.equal(usdToNano('10') - usdNano, COST);
    const [sent] = provider.requests;
    assert.equal(sent?.headers['x-api-key'], 'key-number-one');
    assert.equal(sent?.headers['x-team'], 'blue');
    const body = JSON.parse(String(sent?.body));
    assert.equal(body.model, 'claude-opus');
    assert.deepEqual(body.messages[0].content[0].cache_control, { type: 'ephemeral' });

    const busy = { type: 'error', error: { type: 'rate_limit_error', message: 'Too many' } };
    provider.replies = Array.from({ length: 9 }, () => {
      return { status: 429, headers: { 'retry-after': '7' }, body: busy };
    });
    await assert.rejects(chat('Hi'), (error: unknown) => {
      assert.ok(error instanceof OpenAI.APIError);
      assert.equal(error.status, 429);
      assert.equal(error.headers?.get('retry-after'), '7');
      return true;
    });

    const findings = await findingsOf(farebox.config, farebox.app.localEngines.probes());
    const found = findings.find(({ what }) => what === 'engine claude');
    assert.deepEqual([found?.state, found?.says], ['ok', 'works with @ai-sdk/anthropic']);

    const cwd = farebox.config.dataFolder;
    const loaded = await loadConfig({
      env: { FAREBOX_DATA: cwd, PORT: '0' },
      cwd,
      readFile: async () =>
        `discovery: { enabled: false }\nembedded: { enabled: false }\n${yamlOf(provider.url, 'key-number-two')}`,
    });
    assert.ok(loaded.ok, loaded.ok ? '' : loaded.problems.map(formatProblem).join('\n'));
    farebox.app.configure(loaded.config);
    provider.requests.length = 0;
    await until(async () => {
      provider.replies = [{ status: 200, body: reply('Again') }];
      await chat('Hi').catch(() => undefined);
      return provider.requests.at(-1)?.headers['x-api-key'] === 'key-number-two';
    }, 'that the new key is used');
    await farebox.audit();
    assert.ok(!JSON.stringify(lines).includes('key-number'));
  } finally {
    await farebox.stop();
    await provider.close();
  }
});

test('a crash of the process of a provider ends its calls and starts it again', async () => {
  const provider = await EmulatedProvider.open();
  const farebox = await startTestApp({ yaml: yamlOf(provider.url, 'key-number-one') });
  try {
    await farebox.app.localReady;
    const { secret } = await farebox.account('10');
    const client = new OpenAI({ baseURL: farebox.url, apiKey: secret, maxRetries: 0 });
    const chat = () =>
      client.chat.completions.create({
        model: 'opus',
        messages: [{ role: 'user', content: 'Hi' }],
      });
    const [settings] = farebox.app.localEngines.engines();
    assert.equal(settings?.id, 'claude');
    // The process rejects calls without its own secret.
    const direct = await fetch(`${settings.url}/models`);
    assert.equal(direct.status, 401);
    provider.handle = () => {
      provider.handle = () => false;
      const [pid] = execFileSync('pgrep', ['-P', String(process.pid), '-f', 'providers/main'])
        .toString()
        .split('\n');
      process.kill(Number(pid), 'SIGKILL');
      return true;
    };
    await assert.rejects(chat());
    provider.replies = [];
    await until(async () => {
      provider.replies = [{ status: 200, body: reply('Back') }];
      const made = await chat().catch(() => undefined);
      return made?.choices[0]?.message.content === 'Back';
    }, 'that the process is back');
    await farebox.audit();
  } finally {
    await farebox.stop();
    await provider.close();
  }
});

test('the settings of a provider are checked', async () => {
  const problems = async (engine: string): Promise<string[]> => {
    const loaded = await loadConfig({
      env: {},
      cwd: '/',
      readFile: async () => `engines: { a: ${engine} }`,
    });
    return loaded.ok ? [] : loaded.problems.map(({ path, message }) => `${path}: ${message}`);
  };
  assert.deepEqual(await problems("{ provider: '@ai-sdk/fal' }"), []);
  assert.deepEqual(await problems('{ concurrency: 3 }'), ['engines.a: Needs "url" or "provider"']);
  assert.deepEqual(
    await problems("{ provider: '@ai-sdk/fal', url: http://127.0.0.1/v1, cert: x.pem }"),
    [
      'engines.a.url: Has no effect with "provider"; write it as settings.baseURL',
      'engines.a.cert: Has no effect with "provider"; remove this setting',
    ],
  );
  assert.deepEqual(await problems('{ url: http://127.0.0.1/v1, settings: { region: x } }'), [
    'engines.a.settings: Needs "provider"; remove this setting',
  ]);
  const [unknown = ''] = await problems("{ provider: '@ai-sdk/nobody' }");
  assert.match(unknown, /^engines\.a\.provider: /);
});
