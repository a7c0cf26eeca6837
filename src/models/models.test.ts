import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { type TestApp, startTestApp } from '../../test/app/test-app.ts';
import { codexModels } from './codex-models.ts';

describe('GET /models', () => {
  let farebox: TestApp;

  before(async () => {
    const price = 'price: { input: 1, output: 2 }, context: 4096';
    farebox = await startTestApp({
      yaml: `
engines: { one: { url: "http://127.0.0.1:9" } }
models:
  - { id: mine, type: text, ${price}, capabilities: [functionCalling], aliases: [gpt-4o], replicas: [{ engine: one }] }
  - { id: theirs, type: text, privacy: anonymized, ${price}, replicas: [{ engine: one }] }
  - { id: Vendor/Named, type: text, privacy: anonymized, ${price}, replicas: [{ engine: one }] }
  - { id: vectors, type: embedding, privacy: anonymized, embedding: { dimensions: 8 }, price: { input: 1 }, replicas: [{ engine: one }] }
`,
    });
  });
  after(() => farebox.stop());

  async function ids(type: string, secret?: string): Promise<string[]> {
    const headers: Record<string, string> =
      secret === undefined ? {} : { authorization: `Bearer ${secret}` };
    const answer = await fetch(`${farebox.url}/models?type=${type}`, { headers });
    assert.equal(answer.status, 200);
    const { data } = (await answer.json()) as { data: { id: string }[] }; // checked by the document
    return data.map(({ id }) => id);
  }

  test('lists all models without a key, with a key, and with an unknown key', async () => {
    const all = ['mine', 'theirs', 'Vendor/Named', 'vectors'];
    assert.deepEqual(await ids('all'), all);
    assert.deepEqual(await ids('all', farebox.owner.secret), all);
    assert.deepEqual(await ids('all', 'SVC_INFERENCE_KEY_unknown'), all);
    assert.deepEqual(await ids('text'), ['mine', 'theirs', 'Vendor/Named']);
  });

  test('lists private models to a key that is limited to them', async () => {
    assert.deepEqual(await ids('all', await farebox.key({ modelPrivacy: 'PRIVATE_ONLY' })), [
      'mine',
    ]);
    assert.deepEqual(await ids('all', await farebox.key({ modelPrivacy: 'PRIVATE_TEXT' })), [
      'mine',
      'vectors',
    ]);
  });

  test('lists only the models of a key with a model list', async () => {
    const secret = await farebox.key({ models: ['theirs', 'vectors'] });
    assert.deepEqual(await ids('all', secret), ['theirs', 'vectors']);
    assert.deepEqual(await ids('text', secret), ['theirs']);
    const both = await farebox.key({ models: ['mine', 'theirs'], modelPrivacy: 'PRIVATE_ONLY' });
    assert.deepEqual(await ids('all', both), ['mine']);
    assert.deepEqual(await ids('all'), ['mine', 'theirs', 'Vendor/Named', 'vectors']);
  });

  test('lists models with tool calls for Codex, limited to those of the key', async () => {
    const known = await body('/models/codex?client_version=0.169.0');
    const [only] = known['models'] as Record<string, unknown>[];
    assert.deepEqual(
      [only?.['slug'], only?.['context_window'], only?.['apply_patch_tool_type']],
      ['mine', 4096, 'freeform'],
    );
    const secret = await farebox.key({ models: ['theirs'] });
    const none = await body('/models/codex', { authorization: `Bearer ${secret}` });
    assert.deepEqual(none, { models: [] });
  });

  test('lists the default effort of a model for Codex', () => {
    const mine = farebox.app.catalog.get('mine');
    assert.ok(mine !== undefined);
    const capabilities = new Set([...mine.capabilities, 'reasoning', 'reasoningEffort'] as const);
    const usualOf = (further: object) =>
      codexModels([{ ...mine, capabilities, ...further }]).models[0]?.default_reasoning_level;
    assert.equal(usualOf({ defaultReasoningEffort: 'high' }), 'high');
    assert.equal(usualOf({}), 'medium');
    assert.equal(usualOf({ reasoningEfforts: ['low', 'high'] }), 'low');
  });

  async function body(path: string, headers: Record<string, string> = {}, status = 200) {
    const answer = await fetch(`${farebox.url}${path}`, { headers });
    const text = await answer.text();
    assert.equal(answer.status, status, text);
    return JSON.parse(text); // checked by the document
  }

  test('returns one model as the list does, by any of its names', async () => {
    const [listed] = (await body('/models')).data;
    assert.deepEqual(await body('/models/mine'), listed);
    for (const name of ['gpt-4o', 'default', 'claude-mine', 'claude-sonnet-4-5', 'MINE']) {
      assert.equal((await body(`/models/${name}`)).id, 'mine', name);
    }
    assert.equal((await body('/models/vectors')).type, 'embedding');
    assert.equal((await body('/models/Vendor%2FNamed')).id, 'Vendor/Named');
    assert.equal((await body('/models/Vendor/Named')).id, 'Vendor/Named');
    assert.match((await body('/models/mien', {}, 404)).error, /did you mean "mine"/);
  });

  test('does not find a model that the key may not use', async () => {
    const secret = await farebox.key({ models: ['theirs'] });
    const headers = { authorization: `Bearer ${secret}` };
    assert.equal((await body('/models/theirs', headers)).id, 'theirs');
    assert.equal((await body('/models/mine', headers, 404)).code, 'MODEL_NOT_FOUND');
  });
});
