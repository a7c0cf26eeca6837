/**
 * A server whose engines are on their way: what is loading is 503 with a time, never 404, and a model
 * that cannot be fetched says so before anybody's media is touched.
 */
import assert from 'node:assert/strict';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { until } from '../support/until.ts';
import { openSite, type Site } from '../media/site.ts';

/** Each look is a request, and most of them are refused. */
const LOOK_MS = 100;
const folder = mkdtempSync(join(tmpdir(), 'farebox-starting-'));
let farebox: TestApp;
let site: Site;
/** Requests before any engine has started. */
let first: readonly Response[];

before(async () => {
  site = await openSite();
  site.pages.set('/talk.mp4', 'not looked at');
  // No folder for models can be made here: every fetch fails at once, without a network.
  writeFileSync(join(folder, 'models'), '');
  farebox = await startTestApp({
    dataFolder: folder,
    embedded: true,
    media: true,
    download: true,
    yaml: 'fetch: { allow: [127.0.0.0/8] }\nlimits: { guard: { failures: 1000 } }',
  });
  first = await Promise.all([
    ask('/chat/completions', {
      model: 'farebox-demo',
      messages: [{ role: 'user', content: 'Hi' }],
    }),
    ask('/video/transcriptions', { url: `${site.url}/talk.mp4` }),
    ask('/embeddings', { model: 'farebox-demo-embedding', input: 'a' }),
  ]);
});
after(async () => {
  await farebox.stop();
  await site.close();
  rmSync(folder, { recursive: true, force: true });
});

function ask(path: string, body: object): Promise<Response> {
  return fetch(farebox.url + path, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${farebox.owner.secret}`,
      'content-type': 'application/json',
    },
    body: JSON.stringify(body),
  });
}

interface Listed {
  readonly id: string;
  readonly model_spec: { readonly offline: boolean; readonly offlineReason?: string };
}

async function isListed(id: string): Promise<boolean> {
  const answer = await fetch(`${farebox.url}/models?type=all`);
  const { data } = (await answer.json()) as { data: Listed[] };
  return data.some((one) => one.id === id);
}

/** The error of a request for a model by name. */
async function told(id: string): Promise<Partial<Listed['model_spec']>> {
  const answer = await fetch(`${farebox.url}/models/${id}`);
  return ((await answer.json()) as Partial<Listed>).model_spec ?? {};
}

test('requests while engines start get 503 with an estimate in seconds', async () => {
  for (const answer of first) {
    const said = (await answer.json()) as { code: string; error: string };
    assert.deepEqual([answer.status, said.code], [503, 'MODEL_OFFLINE'], said.error);
    assert.equal(answer.headers.get('retry-after'), '3');
    assert.match(said.error, /engines of this server are starting/);
  }
  const hello = { model: 'farebox-demo', messages: [{ role: 'user', content: 'Hi' }] };
  const isUp = async (): Promise<boolean> =>
    (await ask('/chat/completions', { ...hello, max_tokens: 4 })).status === 200;
  await until(isUp, 'the demo', LOOK_MS);
});

test('a model that cannot be downloaded is not listed, and its error has the reason', async () => {
  await until(
    async () => (await told('farebox-transcription')).offlineReason?.includes('could not') === true,
    'the fetch that fails',
    LOOK_MS,
  );
  const { offline, offlineReason } = await told('farebox-transcription');
  assert.equal(offline, true);
  assert.equal(offlineReason, 'The model could not be downloaded; the server tries again');
  assert.equal(await isListed('farebox-transcription'), false);
  assert.equal(await isListed('farebox-cutout'), true);
  for (const model of [undefined, 'farebox-transcription']) {
    const answer = await ask('/video/transcriptions', { url: `${site.url}/talk.mp4`, model });
    const said = (await answer.json()) as { code: string; error: string };
    assert.deepEqual([answer.status, said.code], [503, 'MODEL_OFFLINE']);
    assert.match(said.error, /farebox-transcription" could not be downloaded/);
    assert.equal(answer.headers.get('retry-after'), null);
  }
  assert.deepEqual(site.asked, []);
  const spec = await told('qwen3-0.6b');
  assert.equal(spec.offline, true);
  assert.match(spec.offlineReason ?? '', /could not be downloaded from huggingface\.co/);
  assert.equal(await isListed('qwen3-0.6b'), false);
});

test('after all engines were tried, an unknown model gets 404', async () => {
  const isUnknown = async (): Promise<boolean> =>
    (await ask('/embeddings', { model: 'x', input: 'a' })).status === 404;
  await until(isUnknown, 'the end of the attempts', LOOK_MS);
});

test('the check of a running server reports its engines and starts none', async () => {
  const headers = { authorization: `Bearer ${await farebox.key({ kind: 'ADMIN' })}` };
  const started: unknown[] = [];
  const hear = (message: unknown): unknown => started.push(message);
  subscribe('child_process', hear);
  const answer = await fetch(`${farebox.url}/admin/check`, { headers });
  const { findings } = (await answer.json()) as { findings: { what: string; state: string }[] };
  const engines = findings.filter(({ what }) => what.startsWith('engine embedded'));
  assert.ok(engines.some(({ what, state }) => what === 'engine embedded' && state === 'ok'));
  assert.ok(engines.some(({ what }) => what === 'engine embedded-cutout'));
  unsubscribe('child_process', hear);
  assert.equal(started.length, 0);
});
