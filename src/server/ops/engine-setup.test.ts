import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { type TestApp, startTestApp } from '../../../test/app/test-app.ts';
import {
  ENGINE_KEY,
  type EngineDialect,
  type KeyedEngine,
  startKeyedEngine,
} from '../../../test/support/keyed-engine.ts';
import { until } from '../../../test/support/until.ts';
import type { ChangedConfig } from './config-editor-schema.ts';
import type { EngineChoices, TestedEngine } from './engine-setup-schema.ts';

const FILE = `# The shop
discovery: { enabled: false }
embedded: { enabled: false }
engines:
  gpu: { url: http://127.0.0.1:9/v1 } # in the cellar
`;

describe('an engine is connected by the routes of the operator', () => {
  const folder = mkdtempSync(join(tmpdir(), 'engine-setup-'));
  const file = join(folder, 'farebox.yaml');
  const engines = {} as Record<EngineDialect, KeyedEngine>;
  let farebox: TestApp;
  let operator = '';
  before(async () => {
    writeFileSync(file, FILE);
    for (const dialect of ['openai', 'anthropic', 'open'] as const) {
      engines[dialect] = await startKeyedEngine(dialect);
    }
    farebox = await startTestApp({ dataFolder: folder, env: { ACME_KEY: ENGINE_KEY } });
    operator = await farebox.key({ kind: 'ADMIN' });
  });
  after(async () => {
    await farebox.stop();
    for (const engine of Object.values(engines)) engine.close();
    rmSync(folder, { recursive: true });
  });

  async function call(path: string, body?: object, secret = operator) {
    const response = await fetch(`${farebox.url}/admin/engine-setup${path}`, {
      method: body === undefined ? 'GET' : 'POST',
      headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    assert.ok(!text.includes(ENGINE_KEY), 'no response contains the key');
    return { status: response.status, body: JSON.parse(text) as unknown };
  }
  const tested = async (body: object): Promise<TestedEngine> => {
    const priceList = `${engines.openai.origin}/prices.json`;
    const result = await call('/test', { name: 'acme', priceList, ...body });
    assert.equal(result.status, 200, JSON.stringify(result.body));
    assert.equal(readFileSync(file, 'utf8'), FILE, 'a test changes nothing');
    return result.body as TestedEngine;
  };
  const choices = async () => (await call('')).body as EngineChoices;

  test('the choices are the known providers and the names that are taken', async () => {
    const { providers, engines: taken, readOnly } = await choices();
    assert.deepEqual([taken, readOnly], [['gpu'], null]);
    const bedrock = providers.find(({ name }) => name === 'bedrock');
    assert.deepEqual(bedrock?.needs, [['region']]);
    assert.equal(bedrock.isKeySet, false);
  });

  test('an embedded engine of the server is not offered as a found server', async () => {
    const embedded = await startTestApp({ embedded: true });
    try {
      await until(() => embedded.app.catalog.get('farebox-demo') !== undefined, 'the engine');
      const secret = await embedded.key({ kind: 'ADMIN' });
      const response = await fetch(`${embedded.url}/admin/engine-setup`, {
        headers: { authorization: `Bearer ${secret}` },
      });
      assert.deepEqual(((await response.json()) as EngineChoices).found, []);
    } finally {
      await embedded.stop();
    }
  });

  for (const [dialect, protocol] of [
    ['openai', 'openai'],
    ['anthropic', 'anthropic'],
  ] as const) {
    test(`the protocol ${protocol} and the path /v1 are found, and models have published prices`, async () => {
      const found = await tested({ url: engines[dialect].origin, key: { value: ENGINE_KEY } });
      assert.deepEqual([found.ok, found.problem, found.note], [true, null, null]);
      assert.deepEqual([found.protocol, found.path], [protocol, '/v1']);
      assert.deepEqual(
        found.models.map(({ id, cost, isSellable }) => [id, cost, isSellable]),
        [
          ['acme/small', { input: '0.1', output: '0.4' }, true],
          ['acme/unlisted', undefined, false],
        ],
      );
    });
  }

  test('a key in the environment is used by its name', async () => {
    const { ok } = await tested({ url: `${engines.openai.origin}/v1`, key: { env: 'ACME_KEY' } });
    assert.equal(ok, true);
  });

  test('a list without a key is reported, because it does not verify the key', async () => {
    const url = `${engines.open.origin}/v1`;
    const { ok, note } = await tested({ url, key: { value: 'sk-wrong-key' } });
    assert.equal(ok, true);
    assert.match(note ?? '', /the key is not verified/);
  });

  for (const [name, body, problem] of [
    ['a wrong key', { url: '{engine}/v1', key: { value: 'sk-wrong-key' } }, /HTTP 401; check the/],
    ['a missing key', { url: '{engine}/v1', key: 'none' }, /HTTP 401; check the key/],
    [
      'a variable that is not set',
      { url: '{engine}', key: { env: 'NO_KEY' } },
      /NO_KEY is not set/,
    ],
    ['a server that is off', { url: 'http://127.0.0.1:1/v1', key: 'none' }, /./],
    ['an invalid URL', { url: 'acme', key: 'none' }, /engines\.acme\.url/],
  ] as const) {
    test(`the test reports ${name}`, async () => {
      const url = body.url.replace('{engine}', engines.openai.origin);
      const found = await tested({ ...body, url });
      assert.equal(found.ok, false);
      assert.match(found.problem ?? '', problem);
    });
  }

  for (const [name, body, message] of [
    ['a name that exists', { name: 'gpu', url: 'http://127.0.0.1:9' }, /"gpu\\" exists/],
    ['an unknown provider', { name: 'x', provider: 'grok' }, /There is no provider/],
    ['a missing setting', { name: 'x', provider: 'azure' }, /resourceName or baseURL/],
    ['neither provider nor URL', { name: 'x' }, /needs a URL/],
  ] as const) {
    test(`${name} is rejected`, async () => {
      const { status, body: response } = await call('/test', body);
      assert.equal(status, 400);
      assert.match(JSON.stringify(response), message);
    });
  }

  test('a price list that cannot be read leaves the prices to the operator', async () => {
    const url = `${engines.openai.origin}/v1`;
    const priceList = `${url}/nothing.json`;
    const found = await tested({ url, key: { value: ENGINE_KEY }, priceList });
    assert.deepEqual([found.ok, found.models.length], [true, 2]);
    assert.ok(found.models.every(({ isSellable }) => !isSellable));
    assert.match(found.prices.problem ?? '', /cannot be fetched/);
  });

  test('the engine and its models are written in one change, at the cost plus the markup', async () => {
    const { digest } = await choices();
    const engine = { name: 'acme', url: `${engines.openai.origin}/v1`, key: { value: ENGINE_KEY } };
    const { models } = await tested(engine);
    const { isSellable: _shown, ...first } = models[0]!;
    const own = {
      id: 'own',
      model: 'acme/unlisted',
      facts: { context: 8_192 },
      cost: { input: '1', output: '2' },
    };
    const body = { ...engine, digest, models: [first, own], markupPercent: '12.5' };
    const trial = (await call('', { ...body, isTrial: true })).body as ChangedConfig;
    assert.equal(trial.ok, true, JSON.stringify(trial.problems));
    assert.match(trial.diff, /^\+ +apiKey: "\*{8}"$/m);
    assert.equal(readFileSync(file, 'utf8'), FILE);
    const saved = (await call('', body)).body as ChangedConfig;
    assert.deepEqual(saved.changed.toSorted(), ['engines', 'models']);
    const text = readFileSync(file, 'utf8');
    assert.ok(text.startsWith('# The shop\n') && text.includes('# in the cellar'));
    assert.match(text, /- id: acme\/small\n {4}privacy: private\n {4}context: 32768\n/);
    assert.match(text, /price:\n {6}input: 0\.1125\n {6}output: 0\.45\n/);
    assert.match(text, /cost:\n {10}input: 0\.1\n {10}output: 0\.4\n/);
    assert.match(text, /id: own\n[^]*input: 1\.125\n {6}output: 2\.25\n/);
    const stale = await call('', { ...body, name: 'other' });
    assert.equal(stale.status, 409);
    writeFileSync(file, FILE);
  });

  test('only an operator connects engines', async () => {
    const { secret } = await farebox.account('1', { kind: 'ADMIN' });
    const statuses = [
      await call('', undefined, secret),
      await call('/test', { name: 'x', url: 'http://127.0.0.1:1' }, secret),
      await call('', { name: 'x', url: 'http://127.0.0.1:1', digest: 'x' }, secret),
    ].map(({ status }) => status);
    assert.deepEqual(statuses, [403, 403, 403]);
  });
});
