/**
 * A server whose engines are on their way: what is loading is 503 with a time, never 404, and a model
 * that cannot be fetched says so before anybody's media is touched.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { openSite, type Site } from '../media/site.ts';

const folder = mkdtempSync(join(tmpdir(), 'farebox-starting-'));
let farebox: TestApp;
let site: Site;
/** Asked before any engine was there. */
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

async function listed(id: string): Promise<Listed['model_spec'] | undefined> {
  const answer = await fetch(`${farebox.url}/models?type=all`);
  const { data } = (await answer.json()) as { data: Listed[] };
  return data.find((one) => one.id === id)?.model_spec;
}

async function eventually(isTrue: () => Promise<boolean>): Promise<void> {
  for (let turn = 0; turn < 600; turn += 1) {
    if (await isTrue()) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  assert.fail('It did not come true');
}

test('what is asked for while engines start is 503 with the seconds that they take', async () => {
  for (const answer of first) {
    const said = (await answer.json()) as { code: string; error: string };
    assert.deepEqual([answer.status, said.code], [503, 'MODEL_OFFLINE'], said.error);
    assert.equal(answer.headers.get('retry-after'), '3');
    assert.match(said.error, /engines of this server are starting/);
  }
  await eventually(async () => {
    const hello = { model: 'farebox-demo', messages: [{ role: 'user', content: 'Hi' }] };
    return (await ask('/chat/completions', { ...hello, max_tokens: 4 })).status === 200;
  });
});

test('a model that cannot be fetched is offline, says why, and touches no media', async () => {
  await eventually(
    async () =>
      (await listed('farebox-transcription'))?.offlineReason?.includes('could not') === true,
  );
  assert.deepEqual(await listed('farebox-transcription'), {
    ...(await listed('farebox-transcription')),
    offline: true,
    offlineReason: 'The model could not be fetched, which is tried again',
  });
  for (const model of [undefined, 'farebox-transcription']) {
    const answer = await ask('/video/transcriptions', { url: `${site.url}/talk.mp4`, model });
    const said = (await answer.json()) as { code: string; error: string };
    assert.deepEqual([answer.status, said.code], [503, 'MODEL_OFFLINE']);
    assert.match(said.error, /farebox-transcription" could not be fetched/);
    assert.equal(answer.headers.get('retry-after'), null);
  }
  assert.deepEqual(site.asked, []);
  const spec = await listed('qwen3-0.6b');
  assert.equal(spec?.offline, true);
  assert.match(spec.offlineReason ?? '', /could not be fetched from huggingface\.co/);
});

test('once all of them were tried, an unknown model is unknown', async () => {
  await eventually(
    async () => (await ask('/embeddings', { model: 'x', input: 'a' })).status === 404,
  );
});
