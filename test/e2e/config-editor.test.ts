/** The routes with which the console changes `farebox.yaml` of a running server. */
import assert from 'node:assert/strict';
import {
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { loadConfig } from '../../src/config/config.ts';
import { systemIds } from '../../src/core/ids.ts';
import { ConfigEditor } from '../../src/server/ops/config-editor.ts';
import { TestUpstream } from '../support/test-upstream.ts';
import { until } from '../support/until.ts';
import { type FareboxProcess, removeFolder, startFarebox } from './farebox-process.ts';

const YAML = `# The shop
discovery: { enabled: false } # quiet
embedded: { enabled: false }
listen: { port: 0 }

# Limits of newcomers
limits:
  starterCreditUsd: 5 # a gift
`;

interface Changed {
  readonly ok: boolean;
  readonly problems: readonly string[];
  readonly diff: string;
  readonly changed: readonly string[];
  readonly restart: readonly string[];
  readonly digest: string;
}

describe('changes of the configuration', () => {
  let farebox: FareboxProcess;
  let upstream: TestUpstream;
  before(async () => {
    upstream = await TestUpstream.start();
    upstream.otherwise = { kind: 'json', usage: true };
    farebox = await startFarebox({ yaml: YAML });
  });
  after(async () => {
    const code = await farebox.stop();
    removeFolder(farebox);
    await upstream.kill();
    // A crash of the process shows the reason here.
    assert.equal(code, 0, farebox.output());
  });

  // oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- the caller names the body
  async function call<T>(
    method: string,
    path: string,
    body?: object,
  ): Promise<{ readonly status: number; readonly body: T }> {
    const response = await fetch(`${farebox.url}${path}`, {
      method,
      headers: { authorization: `Bearer ${farebox.secret}`, 'content-type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    return { status: response.status, body: (await response.json()) as T };
  }

  async function section(name: string) {
    const { body } = await call<{ digest: string; value: Record<string, unknown> | null }>(
      'GET',
      `/admin/config/sections/${name}`,
    );
    return body;
  }

  async function change(name: string, value: unknown, isTrial = false): Promise<Changed> {
    const { digest } = await section(name);
    const path = `/admin/config/sections/${name}`;
    const { status, body } = await call<Changed>('PUT', path, { digest, value, isTrial });
    assert.equal(status, 200, JSON.stringify(body));
    return body;
  }

  const text = (): string => readFileSync(join(farebox.folder, 'farebox.yaml'), 'utf8');

  test('an engine and a model are added, and the first paid call succeeds, without opening a file', async () => {
    const engine = { url: upstream.url, apiKey: 'sk-very-secret' };
    const tried = await change('engines', { gpu: engine }, true);
    assert.equal(tried.ok, true);
    assert.match(tried.diff, /^\+engines:$/m);
    assert.ok(!tried.diff.includes('sk-very-secret'));
    assert.equal(text(), YAML, 'a trial changes nothing');

    assert.equal((await change('engines', { gpu: engine })).ok, true);
    const price = { input: 1, output: 2 };
    const model = { id: 'm', type: 'text', context: 8192, maxCompletionTokens: 64, price };
    assert.equal((await change('models', [{ ...model, replicas: [{ engine: 'gpu' }] }])).ok, true);
    assert.ok(text().startsWith(YAML), 'comments and other sections stay');
    const chat = { model: 'm', messages: [{ role: 'user', content: 'Hi' }] };
    // Slowly, because errors of one caller are limited.
    await until(
      async () => (await call('POST', '/chat/completions', chat)).status === 200,
      'the paid call',
      500,
    );
  });

  test('a secret is masked, and its mask keeps it', async () => {
    const { value } = await section('engines');
    assert.deepEqual(value, { gpu: { url: upstream.url, apiKey: '********' } });
    const kept = await change('engines', {
      gpu: { ...(value?.['gpu'] as object), concurrency: 8 },
    });
    assert.equal(kept.ok, true);
    assert.match(text(), /apiKey: sk-very-secret\n {4}concurrency: 8\n/);
    const { digest } = await section('engines');
    const moved = {
      digest,
      value: { other: { url: 'http://evil.example/v1', apiKey: '********' } },
    };
    const refused = await call<{ error: string }>('PUT', '/admin/config/sections/engines', moved);
    assert.equal(refused.status, 400);
    assert.match(JSON.stringify(refused.body), /Enter the secret again/);
  });

  test('an invalid change lists its problems and writes nothing', async () => {
    const before = text();
    const { ok, problems } = await change('limits', { starterCreditUsd: 'much' });
    assert.equal(ok, false);
    assert.match(
      problems[0] ?? '',
      /^farebox\.yaml:\d+:\d+: limits\.starterCreditUsd: Must be an amount/,
    );
    assert.equal(text(), before);
  });

  test('a change based on an older text is refused', async () => {
    const { digest, value } = await section('limits');
    writeFileSync(join(farebox.folder, 'farebox.yaml'), `${text()}# edited by hand\n`);
    const path = '/admin/config/sections/limits';
    const stale = await call<{ code: string }>('PUT', path, { digest, value });
    assert.equal(stale.status, 409);
    assert.equal(stale.body.code, 'CONFIG_CHANGED');
  });

  test('a change is undone by its version', async () => {
    const before = text();
    const changed = await change('limits', { starterCreditUsd: 7 });
    assert.match(
      changed.diff,
      /^-.*starterCreditUsd: 5 # a gift\n\+.*starterCreditUsd: 7 # a gift$/m,
    );
    const list = await call<{ versions: { id: string; section: string }[]; digest: string }>(
      'GET',
      '/admin/config/sections',
    );
    const [newest] = list.body.versions;
    assert.equal(newest?.section, 'limits');
    const path = `/admin/config/versions/${newest?.id}`;
    const undone = await call<Changed>('POST', path, { digest: list.body.digest });
    assert.equal(undone.body.ok, true);
    assert.equal(text(), before);
  });

  test('only an operator reads or changes the configuration', async () => {
    const made = await call<{ data: { id: string } }>('POST', '/admin/accounts', { name: 'guest' });
    const key = await call<{ data: { apiKey: string } }>(
      'POST',
      `/admin/accounts/${made.body.data.id}/keys`,
      { apiKeyType: 'ADMIN', description: 'guest' },
    );
    const headers = { authorization: `Bearer ${key.body.data.apiKey}` };
    const response = await fetch(`${farebox.url}/admin/config/sections`, { headers });
    assert.equal(response.status, 403);
  });
});

test('a link to the file stays a link, and a version is kept after the clock was set back', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'farebox-editor-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const dataFolder = join(folder, 'data');
  const versions = join(dataFolder, 'config-versions');
  mkdirSync(versions, { recursive: true });
  for (let at = 0; at < 50; at += 1) {
    writeFileSync(join(versions, `${4_000_000_000_000 + at}-limits.yaml`), '');
  }
  mkdirSync(join(folder, 'kept'));
  const [file, link] = [join(folder, 'kept', 'shop.yaml'), join(folder, 'farebox.yaml')];
  writeFileSync(file, YAML);
  symlinkSync(file, link);
  const inputs = { env: { FAREBOX_DATA: dataFolder }, cwd: folder };
  const loaded = await loadConfig(inputs);
  assert.ok(loaded.ok);
  const config = { current: loaded.config } as never; // no change is announced
  const editor = new ConfigEditor({ config, inputs, ids: systemIds(), nowMs: Date.now });
  const { digest } = await editor.section('limits');
  const changed = await editor.change(
    'limits',
    { starterCreditUsd: 1 },
    { digest, isTrial: false },
  );
  assert.equal(changed.ok, true, changed.problems.join());
  assert.ok(lstatSync(link).isSymbolicLink());
  assert.match(readFileSync(file, 'utf8'), /starterCreditUsd: 1 /);
  const { versions: kept } = await editor.sections();
  assert.ok(kept.some(({ savedAt }) => savedAt < '2090'));
});

test('a file that cannot be written is read-only, with the reason', async () => {
  const cwd = '/proc'; // no user can create files there
  const config = { current: { dataFolder: '/nowhere' } } as never; // only its folder is read
  const inputs = { env: {}, cwd };
  const editor = new ConfigEditor({ config, inputs, ids: systemIds(), nowMs: Date.now });
  const { digest } = await editor.section('limits');
  const change = editor.change('limits', { starterCreditUsd: 1 }, { digest, isTrial: false });
  await assert.rejects(change, /The server cannot write farebox\.yaml/);
});
